#!/usr/bin/env bash
# Builds the tests that inject into running processes, and runs them many times.
#   tests/collector/attach/inject/check_here.sh [ROUNDS]
set -eu
root=$(cd "$(dirname "$0")/../../../.." && pwd)
build=$root/build/inject
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIDEMARK_VIEWER=OFF >/dev/null
cmake --build "$build" --target inject_test
for _ in 1 2 3; do "$build/tests/collector/attach/inject/inject_test"; done
TIDEMARK_INJECT_ROUNDS=${1:-200} "$build/tests/collector/attach/inject/inject_test"
