#!/usr/bin/env bash
# Builds tidemark on a machine with a GPU and tries the injector on real hardware.
#   samples/gpu/check_on_gpu.sh OUT_DIR
# Writes to OUT_DIR: traces.tgz (one per sample) and log.txt, which ends with the overhead.
set -u
out=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/gpu
cd "$root" || exit 1
{
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIDEMARK_TESTS=OFF \
    -DTIDEMARK_VIEWER=OFF && cmake --build "$build" -- -k 0 || exit 1
  traces=$(mktemp -d)
  for sample in all_kinds leak pool_holes run_out; do
    echo "== $sample"
    arguments=()
    [ $sample = all_kinds ] && arguments=(1500)
    "$build/tidemark" run -o "$traces/$sample" -- "$build/samples/cuda/$sample" "${arguments[@]}" \
      > "$traces/$sample.expected.json"
    echo "exit $?"
    cat "$traces/$sample.expected.json"
    "$build/tidemark" report "$traces/$sample" --json > "$traces/$sample.report.json"
    "$build/tidemark" report "$traces/$sample" | head -60
  done
  echo "== train"
  "$build/tidemark" run -o "$traces/train" -- python3 samples/gpu/train.py 20 --hold 1 \
    --json "$traces/train.truth.json"
  echo "exit $?"
  cat "$traces/train.truth.json"; echo
  "$build/tidemark" info "$traces/train"
  "$build/tidemark" report "$traces/train" | head -60
  "$build/tidemark" report "$traces/train" --json > "$traces/train.report.json"
  ls -la "$traces"/*
  tar czf "$out/traces.tgz" -C "$traces" .
  echo "== overhead: step time with and without tidemark, alternating"
  for round in 1 2 3 4 5; do
    echo "off $(python3 samples/gpu/train.py 60 | grep step)"
    echo "on  $("$build/tidemark" run -q -o "$traces/over$round" -- python3 samples/gpu/train.py 60 | grep step)"
    echo "on without kernels  $("$build/tidemark" run -q --no-kernels -o "$traces/nk$round" -- python3 samples/gpu/train.py 60 | grep step)"
  done
} 2>&1 | tee "$out/log.txt"
