#!/usr/bin/env bash
# Attaches to the job of a running pod from an ephemeral container that shares its processes:
#   packaging/kubernetes/attach.sh POD CONTAINER 60s
# The traces are written to /tmp/tidemark-out of the job's container. A job that was not armed needs the
# capability SYS_PTRACE, which the profile sysadmin gives. Not run where it was written (no cluster
# there); attaching across namespaces is tested (tests/end_to_end/attach.py).
set -euo pipefail
pod=${1:?"usage: attach.sh POD CONTAINER [DURATION]"}
container=${2:?"usage: attach.sh POD CONTAINER [DURATION]"}
kubectl debug -it "$pod" --image="${TIDEMARK_IMAGE:-tidemark}" --target="$container" --profile=sysadmin -- \
  tidemark attach --all --for "${3:-60s}" -o /proc/1/root/tmp/tidemark-out
kubectl cp -c "$container" "$pod:/tmp/tidemark-out" tidemark-out
tidemark report tidemark-out
