#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs both fuzzers side by side. New inputs and findings go under the build folder, the seeds in
# tests/fuzz/corpus stay as they are.
#   tools/fuzz.sh BUILD_FOLDER SECONDS
set -eu
build=$1
seconds=$2

fuzz() {
  mkdir -p "$build/run/$1"
  "$build/bin/$1_fuzz" -max_total_time="$seconds" -artifact_prefix="$build/run/" \
    -dict=tests/fuzz/text.dict "$build/run/$1" "tests/fuzz/corpus/$1" >"$build/run/$1.log" 2>&1
}
fuzz graph &
graph=$!
fuzz schedule &
schedule=$!
status=0
for job in $graph $schedule; do wait "$job" || status=1; done
for parser in graph schedule; do
  echo "$parser: $(tail -n 1 "$build/run/$parser.log")"
done
[ "$status" -eq 0 ] || echo "a finding: see $build/run" >&2
exit "$status"
