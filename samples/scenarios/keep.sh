#!/usr/bin/env bash
# Converts the recordings of record.sh to the traces the tests read.
#   samples/scenarios/keep.sh RECORDED KEPT TIDEMARK STRIP_TRACE
# Snapshots become traces (about 30 times smaller). For scenarios about the whole card the recorded
# traces are kept, with host names and paths removed.
set -eu
recorded=$1 kept=$2 tidemark=$3 strip=$4
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$kept"
python3 - "$here/expected.json" <<'PY' | while read -r name source; do
import json, sys
for name, expected in json.load(open(sys.argv[1])).items():
    print(name, expected["source"])
PY
  for variant in bad fixed unlimited roles; do
    target=$kept/$name.$variant
    if [ "$source" = trace ]; then
      [ -d "$recorded/$name.$variant.trace" ] || continue
      mkdir -p "$target"
      number=1
      for trace in "$recorded/$name.$variant.trace"/*.tmk; do
        "$strip" "$trace" "$target/process$number.tmk" gpu-host
        number=$((number + 1))
      done
    elif [ -f "$recorded/$name.$variant.pickle.gz" ]; then
      "$tidemark" import "$recorded/$name.$variant.pickle.gz" -o "$target.tmk" > /dev/null
    elif [ -f "$recorded/$name.$variant.rank0.pickle.gz" ]; then
      mkdir -p "$target"
      for snapshot in "$recorded/$name.$variant".rank*.pickle.gz; do
        file=$(basename "$snapshot" .pickle.gz)
        "$tidemark" import "$snapshot" -o "$target/${file##*.}.tmk" > /dev/null
      done
    fi
  done
done
du -sh "$kept"
