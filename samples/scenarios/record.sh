#!/usr/bin/env bash
# Records every scenario on a machine with a GPU, with its problem and fixed, under `tidemark run`
# and with torch's own history at the same time.
#   samples/scenarios/record.sh OUT [TIDEMARK]
# TIDEMARK is the built program, by default build/gpu/tidemark; without one only torch's history is
# kept. Writes to OUT, for each SCENARIO and VARIANT (bad, fixed, unlimited, roles):
#   SCENARIO.VARIANT.pickle.gz (.rankN.…), SCENARIO.VARIANT.truth.json, SCENARIO.VARIANT.trace/,
#   log.txt.
# Runs eight at a time; those that look at the whole card run alone.
set -u
out=$1
here=$(cd "$(dirname "$0")" && pwd)
export TIDEMARK_PROGRAM=${2:-$here/../../build/gpu/tidemark}
[ -x "$TIDEMARK_PROGRAM" ] || TIDEMARK_PROGRAM=
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here" || exit 1
export out

record_one() {
  scenario=$1 variant=$2
  flags=()
  case $variant in
    fixed) flags=(--fixed) ;;
    unlimited) flags=(--unlimited) ;;
    roles) flags=(--unlimited --roles) ;;
  esac
  prefix=$out/$scenario.$variant
  command=(python3 "$scenario.py" "${flags[@]}" --out "$prefix")
  if [ -n "$TIDEMARK_PROGRAM" ] && [ "$variant" != roles ]; then
    kernels=(--no-kernels)
    [ "$scenario" = full_precision ] && kernels=()  # kernel names show the precision
    command=("$TIDEMARK_PROGRAM" run -q "${kernels[@]}" -o "$prefix.trace" -- "${command[@]}")
  fi
  timeout 120 "${command[@]}" > "$prefix.log" 2>&1
  echo "$scenario $variant exit $?"
  tail -n 3 "$prefix.log" | sed 's/^/    /'
}
export -f record_one

alone="many_communicators stray_contexts other_process pinned_growth healthy"
limited="batch_too_large long_sequences adam_first_step full_precision"
{
  for file in *.py; do
    name=${file%.py}
    case " $alone scenario model " in *" $name "*) continue ;; esac
    echo "$name bad"
    echo "$name fixed"
    case " $limited " in *" $name "*) echo "$name unlimited" ;; esac
    case " $limited validation_with_grad empty_cache_in_loop " in *" $name "*) echo "$name roles" ;; esac
  done | xargs -P 8 -L 1 bash -c 'record_one "$0" "$1"'
  for name in $alone; do
    record_one "$name" bad
    [ "$name" = healthy ] || record_one "$name" fixed
  done
  record_one healthy roles
} 2>&1 | tee "$out/log.txt"
