#!/usr/bin/env bash
# Installs the packages in bare systems, records, reports, draws and attaches there, removes them again,
# and checks that nothing is left:
#   packaging/try_packages.sh PACKAGES ROOT...
# PACKAGES is a directory made by scripts/package for this machine, ROOT a Debian to enter with chroot,
# for instance from: debootstrap --variant=minbase --include=python3-venv,rpm bookworm ROOT. The wheel is
# skipped where there is no venv, the .rpm where there is no rpm. Needs root, and no network.
set -euo pipefail

if [ "${1-}" != --inside ]; then
  packages=$(cd "${1:?"usage: try_packages.sh PACKAGES ROOT..."}" && pwd)
  shift
  here=$(cd "$(dirname "$0")" && pwd)
  for root in "$@"; do
    echo "== $(. "$root/etc/os-release" && echo "$PRETTY_NAME") in $root"
    unshare --mount --pid --fork --propagation private bash -ec '
      mount -t proc proc "$1/proc"
      mount -t tmpfs none "$1/dev" && mkdir "$1/dev/shm" && ln -s /proc/self/fd "$1/dev/fd"
      for device in null zero random urandom; do : > "$1/dev/$device"; mount --bind "/dev/$device" "$1/dev/$device"; done
      mount -t tmpfs none "$1/tmp" && mkdir "$1/tmp/packages"
      mount --bind "$2" "$1/tmp/packages" && cp "$3" "$1/tmp/try.sh"
      exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp/home LC_ALL=C.UTF-8 \
        MESA_SHADER_CACHE_DISABLE=true MESA_GLSL_CACHE_DISABLE=true \
        bash /tmp/try.sh --inside' _ "$root" "$packages" "$here/try_packages.sh"
  done
  exit
fi

machine=$(uname -m)
debian=$(dpkg --print-architecture)
fail() { echo "FAILED: $*"; exit 1; }

# Everything but what dpkg and rpm themselves write down.
listing() {
  find / -xdev \( -path /proc -o -path /tmp -o -path /dev -o -path /var/lib/dpkg -o -path /var/lib/rpm \
    -o -path /var/log -o -path /var/cache \) \
    -prune -o -print | sort
}

# try NAME BIN: what a user does in the first minutes.
try() {
  local name=$1 tidemark=$2/tidemark parts
  parts=$(dirname "$2")/lib/tidemark
  rm -rf /tmp/run && mkdir -p /tmp/run/cards && cd /tmp/run
  "$tidemark" doctor > doctor || true
  grep -q "^ok .*recorded on a simulated GPU and read back" doctor || { cat doctor; fail "$name: doctor"; }
  grep -q "^Next: tidemark report" doctor || fail "$name: doctor says no next command"
  export LD_LIBRARY_PATH=$parts/simgpu SIMGPU_DIR=/tmp/run/cards TIDEMARK_CONTROL_DIR=/tmp/run/control
  "$tidemark" run -o out -- "$parts/leak" 100 > /dev/null 2> said
  grep -q "tidemark: creep: memory grows by 1.0 MiB each time" said || { cat said; fail "$name: run ends without its finding"; }
  "$tidemark" report out | grep -q "memory grows by 1.0 MiB each time" || fail "$name: report"
  if "$tidemark" view out --screenshot picture.png 2> why; then
    [ "$(stat -c %s picture.png)" -gt 10000 ] || fail "$name: the picture is empty"
    drawn="a picture"
  else
    [ "$(wc -l < why)" = 1 ] || { cat why; fail "$name: the viewer says more than one line"; }
    drawn="no picture: $(cat why)"
  fi
  TMPDIR=/tmp/run "$tidemark" view out | grep -q "open it in a browser" || fail "$name: view without a display"
  [ "$(cat /tmp/run/tidemark-view-*.html | wc -c)" -gt 1000000 ] || fail "$name: the page is empty"
  "$parts/leak" 2000 10 > /dev/null &
  local job=$!
  sleep 1
  "$tidemark" attach "$job" --for 2s -o attached > attach.log 2>&1 || { cat attach.log; fail "$name: attach"; }
  "$tidemark" report attached > /dev/null || fail "$name: report of the attached process"
  kill "$job"
  wait "$job" 2> /dev/null || true
  unset LD_LIBRARY_PATH
  "$tidemark" version > /dev/null
  echo "ok $name: doctor, run, report, attach, a page; $drawn"
}

before=$(listing)
gone() {
  local after
  after=$(listing)
  [ "$after" = "$before" ] || { diff <(echo "$before") <(echo "$after") | head || true; fail "$1 left something behind"; }
}

tar -xzf /tmp/packages/tidemark-*-linux-"$machine".tar.gz -C /opt
try tarball /opt/tidemark-*/bin
rm -r /opt/tidemark-*
gone tarball

dpkg -i /tmp/packages/tidemark_*_"$debian".deb > /dev/null
try .deb /usr/bin
dpkg --purge tidemark > /dev/null
gone .deb

if command -v rpm > /dev/null; then
  # Without dependencies: rpm does not know the packages of dpkg.
  rpm -i --nodeps /tmp/packages/tidemark-*."$machine".rpm
  rpm -V --nodeps tidemark || fail "the .rpm is not installed as it was packed"
  try .rpm /usr/bin
  rpm -e --nodeps tidemark
  gone .rpm
else
  echo "skipped .rpm: no rpm here"
fi

if python3 -c 'import ensurepip, venv' 2> /dev/null; then
  python3 -m venv /tmp/venv
  /tmp/venv/bin/pip --disable-pip-version-check install -q --no-index /tmp/packages/tidemark-*_"$machine".whl
  try wheel /tmp/venv/bin
  /tmp/venv/bin/python -m tidemark version > /dev/null
  /tmp/venv/bin/pip --disable-pip-version-check uninstall -q -y tidemark
  [ -z "$(find /tmp/venv -path '*tidemark*' ! -name '*.pyc' ! -name __pycache__)" ] || fail "the wheel left something behind"
else
  echo "skipped wheel: no python3-venv here"
fi
