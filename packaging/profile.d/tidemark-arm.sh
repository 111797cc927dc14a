# Makes every job on this machine attachable: copy to /etc/profile.d and unpack tidemark in
# /opt/tidemark. An armed process has one sleeping thread and one socket, nothing more
# (docs/attach.md). A user who injects a library of their own, or sets TIDEMARK_ARM=0, is left alone.
if [ -z "${CUDA_INJECTION64_PATH-}" ] && [ "${TIDEMARK_ARM-}" != 0 ] &&
  [ -e /opt/tidemark/lib/libtidemark.so ]; then
  export CUDA_INJECTION64_PATH=/opt/tidemark/lib/libtidemark.so TIDEMARK_ARM=1
fi
