#!/bin/bash
# Fetches the sources that the viewer is built from: Dear ImGui (docking) and ImPlot; with --glfw also
# GLFW, which packages link statically, with --cli11 CLI11, which Debian 11 has no package of, and with
# --web zstd and zlib, which the page compiles.
#
# usage: scripts/fetch_gui_sources.sh [--glfw] [--cli11] [--web] [DEST]      (default: third_party/)
#
# What is already there is kept, without using the network. Otherwise the sources come from Debian's
# archive if this is a Debian (checked by apt's signatures and by the sha256 below), else, or if that
# fails, from their repositories at the commits below. No root is needed, and nothing on the system
# changes. Without network, unpack your own copies and point CMake at them (TIDEMARK_IMGUI_DIR,
# TIDEMARK_IMGUI_BACKENDS_DIR, TIDEMARK_IMPLOT_DIR).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# suite package tarball sha256. monado contains ImGui 1.90.8-docking with its OpenGL backend and
# ImPlot 0.17, which are compatible; imgui contains the GLFW backend, which monado leaves out.
gui_tarballs="
trixie monado monado_25.0.0+dfsg.orig.tar.xz ddfa1899078173bea3db98034dc8b990df727a169f490896570ff6e3bda72113
trixie imgui  imgui_1.90.1+ds.orig.tar.xz    ecce377df0f90b292f15dcbd83d438bddc162b2388c881132bde18c787572a1c
"
glfw_tarballs="
trixie glfw3  glfw3_3.4.orig.tar.gz          c038d34200234d071fae9345bc455e4a8f2f544ab60150765d7704e08f3dac01
"
cli11_tarballs="
bookworm cli11 cli11_2.1.2+ds.orig.tar.xz    8143d20b688e98ccce8e24562d3b68e5f47c12e896c42c7ca8553dbde5bed55d
"
web_tarballs="
bookworm libzstd libzstd_1.5.4+dfsg2.orig.tar.xz  8cf4bbb65e77ec348d052c8d6230eba66d435bddf64c8b5be2fcb16880c19953
bookworm zlib    zlib_1.2.13.dfsg.orig.tar.bz2    71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1
"
# folder repository commit: the same versions (ImGui v1.90.8-docking, GLFW 3.4,
# CLI11 v2.1.2, zstd v1.5.4, zlib v1.2.13).
gui_commits="
imgui  ocornut/imgui  6d948ab47ecf984239af01434f3ed03808dbf188
implot epezent/implot f156599faefe316f7dd20fe6c783bf87c8bb6fd9
"
glfw_commits="
glfw   glfw/glfw      7b6aead9fb88b3623e3b3725ebb42670cbe4c579
"
cli11_commits="
cli11  CLIUtils/CLI11 70f8072f9dd2292fd0b9f9e5f58e279f60483ed3
"
web_commits="
zstd   facebook/zstd  945f27758c0fd67b636103a38dbf050266c6b90a
zlib   madler/zlib    04f42ceca40f73e2978b50e93806c2a18c1281fc
"
repositories=${TIDEMARK_GUI_REPOSITORIES:-https://github.com}

say() { printf 'fetch_gui_sources: %s\n' "$*" >&2; }

tarballs_present() {
  awk 'NF{print $4"  "$3}' <<<"$1" | (cd "$dest" && sha256sum -c --status -) 2>/dev/null
}

# Names the archive that apt uses, or says why there is none.
debian_archive() {
  command -v apt-get >/dev/null || { say "Debian's archive: this system has no apt"; return 1; }
  local id codename uri
  id=$(. /etc/os-release && echo "${ID:-}")
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [ "$id" = debian ] || { say "Debian's archive: this is not a Debian"; return 1; }
  [ -r "$keyring" ] || { say "Debian's archive: $keyring is missing (package debian-archive-keyring)"; return 1; }
  uri=$(apt-get update --print-uris 2>/dev/null |
        sed -nE "s#^'([^']*)/dists/$codename/InRelease'.*#\1#p" | head -1)
  [ -n "$uri" ] || { say "Debian's archive: apt uses none for $codename"; return 1; }
  echo "$uri"
}

# download TARBALLS: the source packages, into $dest.
download() {
  local uri apt
  uri=$(debian_archive) || return 1
  apt=$(mktemp -d "$dest/.apt-XXXXXX")
  chmod 755 "$apt"
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,empty.d,dl}
  : > "$apt/status"
  printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
    "$uri" "$(awk 'NF{print $1}' <<<"$1" | sort -u | xargs)" "$keyring" > "$apt/src.sources"
  local options=(
    -o Dir::Etc::sourcelist="$apt/src.sources" -o Dir::Etc::sourceparts="$apt/empty.d"
    -o Dir::Etc::preferencesparts="$apt/empty.d" -o Dir::Etc::preferences=/dev/null
    -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
    -o Dir::Cache="$apt/cache" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o Acquire::AllowInsecureRepositories=false -o APT::Get::AllowUnauthenticated=false
    -o APT::Sandbox::User="$(id -un)")
  # shellcheck disable=SC2046  # package names are words
  apt-get "${options[@]}" update -qq &&
    (cd "$apt/dl" && apt-get "${options[@]}" source -qq --download-only --tar-only \
      $(awk 'NF{print $2"/"$1}' <<<"$1")) &&
    cp "$apt"/dl/*.orig.tar.* "$dest"/ || { rm -rf "$apt"; return 1; }
  rm -rf "$apt"
}

unpack_gui() {
  tar -xJf "$dest"/monado_*.orig.tar.xz -C "$dest" --strip-components=4 --wildcards \
    '*/src/external/imgui/implot/*' '*/src/external/imgui/imgui/*'
  mkdir -p "$dest/imgui-glfw"
  tar -xJf "$dest"/imgui_*.orig.tar.xz -C "$dest/imgui-glfw" --strip-components=1 --wildcards \
    '*/backends/imgui_impl_glfw.*' '*/LICENSE.txt'
}

unpack_glfw() {
  mkdir -p "$dest/glfw"
  tar -xzf "$dest"/glfw3_*.orig.tar.gz -C "$dest/glfw" --strip-components=1
}

unpack_cli11() {
  mkdir -p "$dest/cli11"
  tar -xJf "$dest"/cli11_*.orig.tar.xz -C "$dest/cli11" --strip-components=1
}

unpack_web() {
  mkdir -p "$dest/zstd" "$dest/zlib"
  tar -xJf "$dest"/libzstd_*.orig.tar.xz -C "$dest/zstd" --strip-components=1 --wildcards '*/lib/*'
  tar -xjf "$dest"/zlib_*.orig.tar.bz2 -C "$dest/zlib" --strip-components=1
}

# A commit's id is the hash of its content: git refuses anything else for it.
clone() {
  command -v git >/dev/null || { say "the repositories: git is not installed"; return 1; }
  local folder repository commit work
  while read -r folder repository commit; do
    [ -n "$folder" ] || continue
    work=$(mktemp -d "$dest/.git-XXXXXX")
    if ! { git init -q "$work" &&
           git -C "$work" fetch -q --depth 1 "$repositories/$repository" "$commit" &&
           [ "$(git -C "$work" rev-parse FETCH_HEAD)" = "$commit" ] &&
           git -C "$work" -c advice.detachedHead=false checkout -q FETCH_HEAD; }; then
      rm -rf "$work"
      say "$repositories/$repository does not give commit $commit"
      return 1
    fi
    rm -rf "$work/.git" "${dest:?}/$folder"
    mv "$work" "$dest/$folder"
    chmod 755 "$dest/$folder"
  done <<<"$1"
}

after_clone_gui() {
  mkdir -p "$dest/imgui-glfw/backends"
  cp "$dest"/imgui/backends/imgui_impl_glfw.* "$dest/imgui-glfw/backends/"
  cp "$dest/imgui/LICENSE.txt" "$dest/imgui-glfw/"
}

after_clone_glfw() { :; }
after_clone_cli11() { :; }
after_clone_web() { :; }

# obtain KIND WHAT TARBALLS COMMITS
obtain() {
  local stamp=$dest/.$1-sources want
  want=$(awk 'NF{print $4}' <<<"$3" | sort | sha256sum | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
  if tarballs_present "$3" || { download "$3" && tarballs_present "$3"; }; then
    "unpack_$1"
  elif clone "$4"; then
    "after_clone_$1"
  else
    say "$2 could not be had from Debian's archive or $repositories (see above); unpack your own copies (see the top of $here/fetch_gui_sources.sh)"
    exit 1
  fi
  echo "$want" > "$stamp"
  say "$2: in $dest"
}

extra=()
while [[ ${1-} == --* ]]; do
  case $1 in
    --glfw | --cli11 | --web) extra+=("${1#--}") ;;
    *) say "unknown option $1" && exit 2 ;;
  esac
  shift
done
dest=${1:-$here/../third_party}
mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
obtain gui "ImGui and ImPlot" "$gui_tarballs" "$gui_commits"
for kind in ${extra[@]+"${extra[@]}"}; do
  case $kind in
    glfw) obtain glfw GLFW "$glfw_tarballs" "$glfw_commits" ;;
    cli11) obtain cli11 CLI11 "$cli11_tarballs" "$cli11_commits" ;;
    web) obtain web "zstd and zlib" "$web_tarballs" "$web_commits" ;;
  esac
done
