#!/bin/bash
# Fetches Dear ImGui (docking) and ImPlot for the viewer from Debian's source packages.
#
# usage: scripts/fetch_gui_sources.sh [DEST]      (default: third_party/ of this repository)
#
# It uses the archive that this system's apt already uses, and checks its signatures; the sha256 of
# the tarballs are pinned below as well. It needs no root and changes nothing on the system. A second
# run finds everything in place and does not use the network. On systems without apt, unpack your own
# copies and point CMake at them (TIDEMARK_IMGUI_DIR, TIDEMARK_IMGUI_BACKENDS_DIR,
# TIDEMARK_IMPLOT_DIR).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dest=${1:-$here/../third_party}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# suite package tarball sha256. monado contains ImGui 1.90.8-docking with its OpenGL backend and
# ImPlot 0.17, which are compatible; imgui contains the GLFW backend, which monado leaves out.
pins="
trixie monado monado_25.0.0+dfsg.orig.tar.xz ddfa1899078173bea3db98034dc8b990df727a169f490896570ff6e3bda72113
trixie imgui  imgui_1.90.1+ds.orig.tar.xz    ecce377df0f90b292f15dcbd83d438bddc162b2388c881132bde18c787572a1c
"

mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
stamp=$dest/.gui-sources
want=$(awk 'NF{print $4}' <<<"$pins" | sort | sha256sum | cut -d' ' -f1)

say() { printf 'fetch_gui_sources: %s\n' "$*" >&2; }

tarballs_present() {
  awk 'NF{print $4"  "$3}' <<<"$pins" | (cd "$dest" && sha256sum -c --status -) 2>/dev/null
}

download() {
  command -v apt-get >/dev/null || { say "apt-get is not installed: unpack your own copies (see the top of this script)"; exit 1; }
  [ -r "$keyring" ] || { say "$keyring is missing: install debian-archive-keyring"; exit 1; }
  local codename uri
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  uri=$(apt-get update --print-uris 2>/dev/null |
        sed -nE "s#^'([^']*)/dists/$codename/InRelease'.*#\1#p" | head -1)
  [ -n "$uri" ] || { say "apt has no archive configured for $codename"; exit 1; }
  apt=$(mktemp -d)
  trap 'rm -rf "${apt:-}"' EXIT
  chmod 755 "$apt"
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,empty.d,dl}
  : > "$apt/status"
  # As root, apt downloads as the user _apt.
  [ "$(id -u)" != 0 ] || chown _apt "$apt/dl" "$apt/lists/partial"
  printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
    "$uri" "$(awk 'NF{print $1}' <<<"$pins" | sort -u | xargs)" "$keyring" > "$apt/src.sources"
  local options=(
    -o Dir::Etc::sourcelist="$apt/src.sources" -o Dir::Etc::sourceparts="$apt/empty.d"
    -o Dir::Etc::preferencesparts="$apt/empty.d" -o Dir::Etc::preferences=/dev/null
    -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
    -o Dir::Cache="$apt/cache" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o Acquire::AllowInsecureRepositories=false -o APT::Get::AllowUnauthenticated=false)
  apt-get "${options[@]}" update -qq
  # shellcheck disable=SC2046  # package names are words
  (cd "$apt/dl" && apt-get "${options[@]}" source -qq --download-only --tar-only \
     $(awk 'NF{print $2"/"$1}' <<<"$pins"))
  cp "$apt"/dl/*.orig.tar.* "$dest"/
}

unpack() {
  tar -xJf "$dest"/monado_*.orig.tar.xz -C "$dest" --strip-components=4 --wildcards \
    '*/src/external/imgui/implot/*' '*/src/external/imgui/imgui/*'
  mkdir -p "$dest/imgui-glfw"
  tar -xJf "$dest"/imgui_*.orig.tar.xz -C "$dest/imgui-glfw" --strip-components=1 --wildcards \
    '*/backends/imgui_impl_glfw.*' '*/LICENSE.txt'
}

if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
  exit 0
fi
tarballs_present || download
tarballs_present || { say "the sha256 of a tarball differs from the pinned one"; exit 1; }
unpack
echo "$want" > "$stamp"
say "ImGui and ImPlot are in $dest"
