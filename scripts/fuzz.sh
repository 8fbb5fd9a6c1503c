#!/bin/sh
# Runs every libFuzzer target of a build folder for some seconds each, one target per core at a time: scripts/fuzz.sh
# BUILD SECONDS. The corpus grows in BUILD/corpus/TARGET, where the build has put the seeds. Each finding is printed and
# stored in BUILD/findings. FUZZ_SEED sets the random seed; without it, every run uses a different seed. FUZZ_RUNS ends a
# target after that many inputs, so that a fast and a slow machine try the same inputs with the same seed.
# An input may take 30 s: a constraint may use its whole limit of work, and sanitizers make it some twenty times slower.
set -eu
build=$1
seconds=$2

if [ $# -eq 3 ]; then  # one target
  name=$(basename "$3")
  corpus="$build/corpus/$name"
  mkdir -p "$corpus" "$build/findings"
  if ! "$3" -seed="${FUZZ_SEED:-0}" -runs="${FUZZ_RUNS:--1}" -reload=0 -max_total_time="$seconds" -timeout=30 \
      -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
      "$corpus" >"$build/$name.log" 2>&1; then
    tail -n 60 "$build/$name.log"
    echo "fuzz: $name found something; the input is in $build/findings" >&2
    exit 1
  fi
  echo "fuzz: $name:" $(grep -oE '(number_of_executed_units|new_units_added|peak_rss_mb): *[0-9]+' "$build/$name.log")
  exit 0
fi

targets=$(find "$build/tests/fuzz" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort)
[ -n "$targets" ] || { echo "fuzz: no target in $build/tests/fuzz" >&2; exit 1; }
echo "$targets" | xargs -P "$(nproc)" -n 1 "$0" "$build" "$seconds"
