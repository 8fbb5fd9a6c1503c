#!/bin/sh
# Measures ingot and other programs alternately on the same files, and prints medians and ratios.
#
#   bench/cpu/peers.sh [-s SHAPES] [-q TYPES] [-t THREADS] [-n ROUNDS] [-p PROMPT] [-g TOKENS] [-w FOLDER] [-i INGOT] NAME=LLAMA_BENCH...
#   bench/cpu/peers.sh -s "smollm-135m llama-3.2-1b" -q "Q4_0 Q4_K_M" -t "1 2 4" llama.cpp=/usr/bin/llama-bench
#
# THREADS are the numbers of threads, by default that of all CPUs. A peer is a name and its llama-bench program. Files of random weights are written to FOLDER (build/peers) by random_model.py
# and `ingot quantize`, and stay there. FOLDER/peers.csv has every measurement. WRAP is put before each command, such as
# WRAP="taskset -c 0,1". INGOT_FLAGS are given to `ingot bench`, such as "--isa avx2".
set -eu
here=$(dirname "$0")
shapes=llama-3.2-1b types="Q4_0 Q8_0 Q4_K_M Q5_K_M Q6_K Q3_K_M IQ4_XS F16" rounds=3 prompt=512 tokens=64
work=build/peers ingot=build/ingot counts=$(nproc)
while getopts s:q:t:n:p:g:w:i: option; do
  case $option in
    s) shapes=$OPTARG ;; q) types=$OPTARG ;; t) counts=$OPTARG ;; n) rounds=$OPTARG ;; p) prompt=$OPTARG ;; g) tokens=$OPTARG ;;
    w) work=$OPTARG ;; i) ingot=$OPTARG ;; *) sed -n '4,5s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
mkdir -p "$work"

model_file() {  # SHAPE TYPE: makes the file if it is not there
  file=$work/$1-$2.gguf
  test -f "$file" && return
  case $2 in
    F16 | IQ[123]* | TQ*) python3 "$here/random_model.py" "$1" "$file" --type "$2"; return ;;
  esac
  (model_file "$1" F16)
  "$ingot" quantize "$work/$1-F16.gguf" "$file" "$2" >&2
}

measure() {  # PROGRAM COMMAND...: appends a row for each test of the bench
  program=$1
  shift
  ${WRAP:-} "$@" -m "$file" -p "$prompt" -n "$tokens" -t "$threads" -r 2 -o csv 2>"$work/peers.log" >"$work/peers.out" ||
    { echo "peers.sh: $program failed on $file: see $work/peers.log" >&2; exit 1; }
  python3 "$here/peers.py" add "$work/peers.csv" "$shape" "$type" "$threads" "$program" <"$work/peers.out"
}

rm -f "$work/peers.csv"
for shape in $shapes; do
  for type in $types; do
    model_file "$shape" "$type"
    for round in $(seq "$rounds"); do
      for threads in $counts; do
        # shellcheck disable=SC2086
        measure ingot "$ingot" bench ${INGOT_FLAGS:-}
        for peer; do measure "${peer%%=*}" "${peer#*=}"; done
      done
    done
  done
done
python3 "$here/peers.py" table "$work/peers.csv"
