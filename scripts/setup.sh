# Sourced by scripts/demo and scripts/test: makes sure that everything needed to build is installed.
#
# Needs bash and apt (Debian 12, Ubuntu 22.04 or later), and root or sudo only if something is
# missing. It does not touch what is already installed, so a second run needs no network.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=${TIDEMARK_JOBS:-$(nproc 2>/dev/null || echo 2)}

# program-or-file:package. A name with a slash is a file (globs allowed), any other name a program.
build_needs=(
  c++:g++
  cmake:cmake
  ninja:ninja-build
  pkg-config:pkg-config
  python3:python3
  protoc:protobuf-compiler
  /usr/include/google/protobuf/message.h:libprotobuf-dev
  /usr/include/zstd.h:libzstd-dev
  /usr/include/zlib.h:zlib1g-dev
  /usr/include/fmt/format.h:libfmt-dev
  /usr/include/CLI/CLI.hpp:libcli11-dev
  /usr/include/elfutils/libdw.h:libdw-dev
)
test_needs=(
  /usr/include/gtest/gtest.h:libgtest-dev
  xvfb-run:xvfb
  xauth:xauth
  '/usr/lib/*/libXtst.so.6:libxtst6'
  mpirun:openmpi-bin
  /usr/lib/python3/dist-packages/pytest:python3-pytest
  /usr/sbin/slurmctld:slurmctld
  /usr/sbin/slurmd:slurmd
  srun:slurm-client
  /usr/sbin/munged:munge
)
viewer_needs=(
  xz:xz-utils
  /usr/include/GLFW/glfw3.h:libglfw3-dev
  /usr/include/GL/gl.h:libgl-dev
  '/usr/lib/*/libOpenGL.so:libopengl-dev'
  /usr/include/EGL/egl.h:libegl-dev
  '/usr/lib/*/libEGL_mesa.so.0:libegl-mesa0'
  '/usr/lib/*/dri/swrast_dri.so:libgl1-mesa-dri'
  /usr/include/stb/stb_image_write.h:libstb-dev
  /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:fonts-dejavu-core
)

say() { printf '%s\n' "$*" >&2; }

is_there() {
  case $1 in
    */*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# install_missing NEED…: installs the missing packages, or lists them.
install_missing() {
  local missing=() need
  for need in "$@"; do
    is_there "${need%%:*}" || missing+=("${need##*:}")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    say "tidemark: this system has no apt; please install the equivalents of these Debian packages:"
    say "  ${missing[*]}"
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
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The viewer's sources come from Debian's archive. Without them, everything else is built.
fetch_viewer_sources() {
  "$root/scripts/fetch_gui_sources.sh" || say "tidemark: the viewer is left out (see above)"
}

# build PRESET [CMAKE ARGUMENT…]: configures, then builds what changed of $targets (everything).
build() {
  local preset=$1
  shift
  (cd "$root" && cmake --preset "$preset" "$@" >"$root/build/$preset.configure.log" 2>&1) || {
    cat "$root/build/$preset.configure.log" >&2
    say "tidemark: configuring failed"
    exit 1
  }
  cmake --build "$root/build/$preset" --parallel "$jobs" --target "${targets:-all}"
}

mkdir -p "$root/build"
