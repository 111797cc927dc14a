#!/usr/bin/env bash
# Arms every container that enroot starts: a site puts this file into /etc/enroot/hooks.d and tidemark
# into /opt/tidemark of each node. enroot runs it with the container's root and environment file.
# Not run where it was written (no enroot there); tests/packaging runs it with a stand-in.
set -euo pipefail
[ -e /opt/tidemark/lib/libtidemark.so ] || exit 0
mkdir -p "$ENROOT_ROOTFS/opt/tidemark"
enroot-mount --root "$ENROOT_ROOTFS" - <<<"/opt/tidemark /opt/tidemark none x-create=dir,bind,ro"
# What the user sets comes later in the file, and wins.
printf '%s\n' CUDA_INJECTION64_PATH=/opt/tidemark/lib/libtidemark.so TIDEMARK_ARM=1 |
  cat - "$ENROOT_ENVIRON" > "$ENROOT_ENVIRON.tidemark"
mv "$ENROOT_ENVIRON.tidemark" "$ENROOT_ENVIRON"
