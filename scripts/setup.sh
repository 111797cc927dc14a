# Sourced by scripts/demo, scripts/test and scripts/package: makes sure that everything needed to
# build is installed.
#
# Needs bash. With apt (Debian, Ubuntu) missing packages are installed, which needs root or sudo; with
# dnf (Fedora, RHEL) or pacman (Arch) the command to type is printed. It does not touch what is already
# installed, so a second run needs no network.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=${TIDEMARK_JOBS:-$(nproc 2>/dev/null || echo 2)}

# program-or-files:Debian's package:Fedora's:Arch's. A name with a slash is a file (globs allowed;
# any of several, separated by |), any other name a program.
build_needs=(
  c++:g++:gcc-c++:gcc
  cmake:cmake:cmake:cmake
  ninja:ninja-build:ninja-build:ninja
  pkg-config:pkg-config:pkgconf-pkg-config:pkgconf
  python3:python3:python3:python
  protoc:protobuf-compiler:protobuf-compiler:protobuf
  /usr/include/google/protobuf/message.h:libprotobuf-dev:protobuf-devel:protobuf
  /usr/include/zstd.h:libzstd-dev:libzstd-devel:zstd
  '/usr/lib/*/libzstd.a|/usr/lib*/libzstd.a:libzstd-dev:libzstd-static:zstd'
  /usr/include/zlib.h:zlib1g-dev:zlib-devel:zlib
  /usr/include/fmt/format.h:libfmt-dev:fmt-devel:fmt
  "/usr/include/CLI/CLI.hpp|$root/third_party/cli11/include/CLI/CLI.hpp:libcli11-dev:cli11-devel:cli11"
  /usr/include/elfutils/libdw.h:libdw-dev:elfutils-devel:libelf
)
test_needs=(
  /usr/include/gtest/gtest.h:libgtest-dev:gtest-devel:gtest
  xvfb-run:xvfb:xorg-x11-server-Xvfb:xorg-server-xvfb
  xauth:xauth:xorg-x11-xauth:xorg-xauth
  '/usr/lib/*/libXtst.so.6|/usr/lib*/libXtst.so.6:libxtst6:libXtst:libxtst'
  'mpirun|/usr/lib*/openmpi/bin/mpirun:openmpi-bin:openmpi:openmpi'
  '/usr/lib/python3*/dist-packages/pytest|/usr/lib/python3*/site-packages/pytest:python3-pytest:python3-pytest:python-pytest'
  /usr/sbin/slurmctld:slurmctld:slurm-slurmctld:slurm-llnl
  /usr/sbin/slurmd:slurmd:slurm-slurmd:slurm-llnl
  srun:slurm-client:slurm:slurm-llnl
  /usr/sbin/munged:munge:munge:munge
)
viewer_needs=(
  xz:xz-utils:xz:xz
  /usr/include/GLFW/glfw3.h:libglfw3-dev:glfw-devel:glfw
  /usr/include/GL/glcorearb.h:libgl-dev:libglvnd-devel:libglvnd
  /usr/include/EGL/egl.h:libegl-dev:libglvnd-devel:libglvnd
  '/usr/lib/*/libOpenGL.so.0|/usr/lib*/libOpenGL.so.0:libopengl0:libglvnd-opengl:libglvnd'
  '/usr/lib/*/libEGL_mesa.so.0|/usr/lib*/libEGL_mesa.so.0:libegl-mesa0:mesa-libEGL:mesa'
  '/usr/lib/*/dri/swrast_dri.so|/usr/lib*/dri/swrast_dri.so:libgl1-mesa-dri:mesa-dri-drivers:mesa'
  '/usr/include/stb/stb_image_write.h|/usr/include/stb_image_write.h:libstb-dev:stb_image_write-devel:stb'
  '/usr/share/fonts/*/dejavu/DejaVuSans.ttf|/usr/share/fonts/*/DejaVuSans.ttf:fonts-dejavu-core:dejavu-sans-fonts:ttf-dejavu'
)
# The viewer as a page (scripts/web), and Chromium to test it.
web_needs=(
  em++:emscripten:emscripten:emscripten
  bzip2:bzip2:bzip2:bzip2
  pyftsubset:fonttools:fonttools:python-fonttools
)
web_test_needs=(
  chromium:chromium:chromium:chromium
)

say() { printf '%s\n' "$*" >&2; }

is_there() {
  local names name
  IFS='|' read -r -a names <<<"$1"
  for name in "${names[@]}"; do
    case $name in
      */*) compgen -G "$name" >/dev/null && return 0 ;;
      *) command -v "$name" >/dev/null && return 0 ;;
    esac
  done
  return 1
}

# missing_packages COLUMN NEED…: the packages of what is not there; column 1 is Debian's.
missing_packages() {
  local column=$1 need words
  shift
  for need in "$@"; do
    IFS=: read -r -a words <<<"$need"
    is_there "${words[0]}" || echo "${words[$column]:-${words[1]}}"
  done | sort -u
}

# install_missing NEED…: installs the missing packages, or says what to type.
install_missing() {
  local missing
  mapfile -t missing < <(missing_packages 1 "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    if command -v dnf >/dev/null; then
      say "tidemark: please install what is missing (on RHEL and its like, enable CRB and EPEL first):"
      say "  sudo dnf install $(missing_packages 2 "$@" | paste -sd ' ')"
    elif command -v pacman >/dev/null; then
      say "tidemark: please install what is missing:"
      say "  sudo pacman -S --needed $(missing_packages 3 "$@" | paste -sd ' ')"
    else
      say "tidemark: this system has no apt; please install the equivalents of these Debian packages:"
      say "  ${missing[*]}"
    fi
    exit 2
  fi
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "tidemark: you are not root and there is no sudo; please install these packages:"
      say "  apt-get install ${missing[*]}"
      exit 2
    fi
    as_root=(sudo)
  fi
  say "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  # Debian 11 has no package of CLI11: its source is unpacked, which takes xz.
  local cli11=
  if [[ " ${missing[*]} " == *" libcli11-dev "* ]] && ! apt-cache show libcli11-dev >/dev/null 2>&1; then
    cli11=fetched
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" xz-utils | grep -vx libcli11-dev)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  [ -z "$cli11" ] || "$root/scripts/fetch_gui_sources.sh" --cli11
}

# Without the viewer's sources, everything else is built.
fetch_viewer_sources() {
  "$root/scripts/fetch_gui_sources.sh" || say "tidemark: the viewer is left out (see above)"
}

# The page needs Emscripten 3.1 or later; Debian 11 has 2.0. Looks at the installed one, else at the one
# that apt would install.
emscripten_is_old() {
  local version=
  if is_there em++; then
    version=$(em++ --version | sed -nE '1s/.* ([0-9]+\.[0-9.]+).*/\1/p')
  elif command -v apt-cache >/dev/null; then
    version=$(apt-cache policy emscripten | sed -nE 's/^ *Candidate: ([0-9.]+).*/\1/p')
  fi
  [ -n "$version" ] && [ "$(printf '3.1\n%s\n' "$version" | sort -V | sed -n 1p)" != 3.1 ]
}

# preset_options PRESET: what `cmake --preset` would set, for a CMake older than 3.21 (Debian 11).
preset_options() {
  python3 -B - "$root" "$1" <<'END'
import json, sys
root, name = sys.argv[1:]
presets = {p["name"]: p for p in json.load(open(root + "/CMakePresets.json"))["configurePresets"]}
values = {}
while name:
    values = {**presets[name].get("cacheVariables", {}), **values}
    name = presets[name].get("inherits")
print("-GNinja", *(f"-D{key}={value}" for key, value in values.items()), sep="\n")
END
}

# configure PRESET [CMAKE ARGUMENT…]
configure() {
  local preset=$1 options=(--preset "$1")
  shift
  if [ "$(printf '3.21\n%s\n' "$(cmake --version | sed -n '1s/.* //p')" | sort -V | head -1)" != 3.21 ]; then
    mapfile -t options < <(preset_options "$preset")
    options+=(-S "$root" -B "$root/build/$preset")
  fi
  (cd "$root" && cmake "${options[@]}" "$@")
}

# build PRESET [CMAKE ARGUMENT…]: configures, then builds what changed of $targets (everything).
build() {
  local preset=$1
  shift
  configure "$preset" "$@" >"$root/build/$preset.configure.log" 2>&1 || {
    cat "$root/build/$preset.configure.log" >&2
    say "tidemark: configuring failed"
    exit 1
  }
  cmake --build "$root/build/$preset" --parallel "$jobs" --target "${targets:-all}"
}

mkdir -p "$root/build"
