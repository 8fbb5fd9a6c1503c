#!/bin/sh
# Runs every libFuzzer target of a build folder for some seconds each: scripts/fuzz.sh BUILD SECONDS. The corpus grows in BUILD/corpus/TARGET,
# where the build has put the seeds. The first finding ends it, and says where it lies.
set -eu
build=$1
seconds=$2
found=0
for target in "$build"/tests/fuzz/fuzz_*; do
  [ -x "$target" ] && [ -f "$target" ] || continue
  name=$(basename "$target")
  corpus="$build/corpus/$name"
  findings="$build/findings/$name-"
  mkdir -p "$corpus" "$build/findings"
  echo "fuzz: $name, ${seconds} s"
  if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$findings" "$corpus" >"$build/$name.log" 2>&1; then
    tail -n 60 "$build/$name.log"
    echo "fuzz: $name found something; the input is in $build/findings" >&2
    exit 1
  fi
  grep -E 'number_of_executed_units|new_units_added|peak_rss_mb' "$build/$name.log"
  found=1
done
[ "$found" = 1 ] || { echo "fuzz: no target in $build/tests/fuzz" >&2; exit 1; }
