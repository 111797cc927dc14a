#!/usr/bin/env bash
# Records jobs of several ranks on a machine with one GPU and PyTorch.
#   samples/ranks/record.sh OUT_DIR
# Writes to OUT_DIR: log.txt and ranks.tgz with, per job, the directory of rank files, the merged
# trace, its report as text and JSON, and torch's statistics per rank.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/gpu
jobs=$(mktemp -d)
port=29500

# record NAME RANKS ARGUMENT…
record() {
  local name=$1 ranks=$2
  shift 2
  port=$((port + 1))
  echo "== $name: $ranks ranks, $*"
  mkdir -p "$jobs/$name.truth"
  timeout -k 20 120 "$build/tidemark" run -o "$jobs/$name" -- \
    torchrun --nproc-per-node "$ranks" --master-port "$port" \
    "$root/samples/ranks/train_ddp.py" --truth "$jobs/$name.truth" "$@"
  echo "exit $?"
  ls -la "$jobs/$name"
  "$build/tidemark" recover "$jobs/$name"
  "$build/tidemark" merge "$jobs/$name" -o "$jobs/$name.tmk"
  echo "merge: exit $?"
  "$build/tidemark" info "$jobs/$name.tmk"
  "$build/tidemark" report "$jobs/$name.tmk" > "$jobs/$name.report.txt"
  echo "report: exit $?"
  "$build/tidemark" report "$jobs/$name.tmk" --json > "$jobs/$name.report.json"
  head -80 "$jobs/$name.report.txt"
}

{
  cd "$root" || exit 1
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIDEMARK_TESTS=OFF \
    -DTIDEMARK_VIEWER=OFF >/dev/null && cmake --build "$build" --target tidemark tidemark_cli \
    strip_trace || exit 1
  python3 -c 'import torch; print("torch", torch.__version__, "nccl", torch.cuda.nccl.version())'
  record ddp2 2 --steps 20
  record ddp4 4 --steps 20
  record guilty4 4 --steps 40 --guilty 2
  cat "$jobs"/*.truth/*.json
  du -sh "$jobs"/*
  tar czf "$out/ranks.tgz" -C "$jobs" .
  ls -la "$out"
} 2>&1 | tee "$out/log.txt"
