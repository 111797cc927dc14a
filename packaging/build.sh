#!/usr/bin/env bash
# Run by scripts/package inside its Debian 11, in /tidemark: builds the programs for ARCH from
# source/, installs them into a tree, and makes every package from this tree. Plain tar, dpkg-deb and
# rpmbuild instead of CPack, since they let us fix order, owner and time of every file.
#   packaging/build.sh ARCH DEBIAN_ARCH JOBS
set -euo pipefail
arch=$1
debian=$2
jobs=$3
source=$PWD/source
build=$PWD/build-$arch
out=$PWD/out/$arch
tree=$PWD/stage-$arch

compile() {
  local options=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DTIDEMARK_PORTABLE=ON -DTIDEMARK_TESTS=OFF)
  [ "$arch" = "$(uname -m)" ] ||
    options+=(-DCMAKE_TOOLCHAIN_FILE="$source/cmake/cross.cmake" -DTIDEMARK_CROSS="$arch")
  [ -z "${CCACHE_DIR-}" ] ||
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake -S "$source" -B "$build" "${options[@]}" > "$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  cmake --build "$build" --parallel "$jobs" --target tidemark_cli libtidemark.so sample_leak simgpu_cuda \
    simgpu_cupti simgpu_nvml
  cmake --build "$build" --parallel "$jobs" --target tidemark_view
}

# The licence of everything that is linked in, and the texts that Debian's files only refer to.
add_licences() {
  local place=$tree/share/doc/tidemark/licences package
  mkdir -p "$place"
  for package in gcc-10-base libbz2-dev libdw-dev libfmt-dev liblzma-dev libprotobuf-dev \
      libstb-dev libzstd-dev zlib1g-dev; do
    cp -L "/usr/share/doc/$package/copyright" "$place/$package.txt"
  done
  cp "$source/third_party/imgui/LICENSE.txt" "$place/imgui.txt"
  cp "$source/third_party/implot/LICENSE" "$place/implot.txt"
  cp "$source/third_party/glfw/LICENSE.md" "$place/glfw.txt"
  cp "$source/third_party/cli11/LICENSE" "$place/cli11.txt"
  cp "$source/build/web/"*.txt "$place/"
  cp "$source/LICENSE" "$place/tidemark.txt"
  cp /usr/share/common-licenses/{GPL-2,GPL-3,LGPL-2.1,LGPL-3} "$place/"
}

install_tree() {
  rm -rf "$tree" "$out"
  mkdir -p "$out"
  local strip=strip
  [ "$arch" = "$(uname -m)" ] || strip=$arch-linux-gnu-strip
  cmake --install "$build" --prefix "$tree" > /dev/null
  [ -f "$tree/share/tidemark/tidemark-view.html" ] || { echo "the page is missing in $tree" >&2; exit 1; }
  add_licences
  find "$tree" -type f -exec sh -c 'head -c4 "$1" | grep -q ELF' _ {} \; -print0 |
    xargs -0 "$strip" --strip-unneeded
  chmod -R u=rwX,go=rX "$tree"
  python3 "$source/packaging/check_elf.py" "$tree"
}

make_tarball() {
  local name=tidemark-$version-linux-$arch
  tar -C "$tree" -c --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --format=gnu --transform="s,^\.,$name," . | gzip -9n > "$out/$name.tar.gz"
}

# Packages of a distribution: the library is no one else's, and manuals are compressed.
make_system_tree() {
  local to=$1
  mkdir -p "$to"
  cp -a "$tree/." "$to/"
  mv "$to/lib/libtidemark.so" "$to/lib/tidemark/"
  gzip -9n "$to"/share/man/man1/*.1
  gzip -9n "$to/share/doc/tidemark/CHANGELOG.md"
  mv "$to/share/doc/tidemark/CHANGELOG.md.gz" "$to/share/doc/tidemark/changelog.gz"
  rm "$to/share/doc/tidemark/LICENSE"
}

make_deb() {
  local package=$PWD/deb-$arch
  rm -rf "$package"
  make_system_tree "$package/usr"
  cp "$source/packaging/debian/copyright" "$package/usr/share/doc/tidemark/copyright"
  mkdir -p "$package/usr/share/lintian/overrides"
  cp "$source/packaging/debian/overrides" "$package/usr/share/lintian/overrides/tidemark"
  mkdir "$package/DEBIAN"
  sed -e "s/@VERSION@/$version/; s/@ARCH@/$debian/" \
    -e "s/@SIZE@/$(du -sk --apparent-size "$package/usr" | cut -f1)/" \
    "$source/packaging/debian/control.in" > "$package/DEBIAN/control"
  (cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$package/DEBIAN/md5sums"
  chmod 644 "$package/DEBIAN/"*
  find "$package" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --build --root-owner-group -Zxz "$package" "$out/tidemark_${version}_$debian.deb" > /dev/null
}

make_rpm() {
  local work=$PWD/rpm-$arch
  rm -rf "$work"
  make_system_tree "$work/tree"
  cp "$source/LICENSE" "$work/tree/share/doc/tidemark/"
  find "$work/tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  rpmbuild -bb --quiet --target "$arch-linux" --define "_topdir $work" --define "tree $work/tree" \
    --define "tidemark_version $version" \
    --define "tidemark_date $(date -u -d "@$SOURCE_DATE_EPOCH" "+%a %b %d %Y")" --define "_buildhost tidemark" \
    --define "use_source_date_epoch_as_buildtime 1" \
    --define "clamp_mtime_to_source_date_epoch 1" --define "_binary_payload w9.xzdio" \
    "$source/packaging/tidemark.spec"
  cp "$work/RPMS/$arch/"*.rpm "$out/"
}

compile
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
install_tree
make_tarball
python3 "$source/packaging/wheel.py" "$tree" "$version" "$arch" "$source/README.md" "$out" > /dev/null
make_deb
make_rpm
