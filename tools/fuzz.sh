#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzzers side by side. New inputs and findings go under the build folder, the seeds in
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
parsers="graph schedule plan_file"
jobs=
for parser in $parsers; do
  fuzz "$parser" &
  jobs="$jobs $!"
done
status=0
for job in $jobs; do wait "$job" || status=1; done
for parser in $parsers; do
  echo "$parser: $(tail -n 1 "$build/run/$parser.log")"
done
[ "$status" -eq 0 ] || echo "a finding: see $build/run" >&2
exit "$status"
