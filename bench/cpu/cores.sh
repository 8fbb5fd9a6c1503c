#!/bin/sh
# Measures this machine and ingot by number of threads: builds, makes files, measures beside llama.cpp in turns, and
# writes CSV, in less than nine minutes on 16 CPUs.
#
#   bench/cpu/cores.sh [-i INGOT] [-l FOLDER] [-w FOLDER] [-t THREADS] [-m ROWS] [-n ROUNDS] [-c SERVED] [-s SHAPES] [STEP...]
#   bench/cpu/cores.sh -l /usr/bin                                    # all steps, beside /usr/bin/llama-bench and llama-server
#   bench/cpu/cores.sh -i build/ingot -t "1 2" -m "smollm-135m:Q4_0" -c smollm-135m:Q4_0:4:64:16 machine speed serving
#
#   build     builds ingot in build/, unless -i names a program
#   machine   prints cores, caches and peaks (`ingot bench machine`), to FOLDER/machine.json, too
#   speed     prompts of 512 tokens and 32 decoded tokens, for each of ROWS and THREADS: FOLDER/cores.csv
#   threads   whether more threads are slower: each of SHAPES at each of THREADS, medians of 5: FOLDER/threads.csv
#   serving   requests through the whole engine, beside llama-server, with the most threads: FOLDER/serving.csv
#
# ROWS are SHAPE:TYPE, or SHAPE:TYPE:THREADS with commas for counts of its own. SERVED is
# SHAPE:TYPE:REQUESTS:PROMPT:OUTPUT, or with :LAYERS for fewer layers than the shape has.
# SHAPES are SHAPE:TYPE:PROMPT:TOKENS:LAYERS, tokens of a prompt, decoded tokens, and the layers of the file (0: all). Large
# shapes have fewer layers of the same size here, because each count of threads loads the file again.
# FOLDER (-w, build/cores) keeps the files of random weights. llama.cpp's programs are those of the folder -l; without it,
# ingot is measured alone.
set -eu
here=$(dirname "$0")
ingot='' peers='' work=build/cores rounds=1 served=llama-3.1-8b:Q4_K_M:16:128:32 port=${PORT:-18231}
n_cpus=$(nproc)
counts=$(n=1; while [ "$n" -lt "$n_cpus" ]; do printf '%s ' "$n"; n=$((2 * n)); done; echo "$n_cpus")
rows="smollm-135m:Q4_0 llama-3.2-1b:Q4_0 llama-3.2-1b:Q4_K_M llama-3.1-8b:Q4_K_M:$(((n_cpus + 1) / 2)),$n_cpus"
shapes="smollm-135m:Q4_0:256:16:0 llama-3.2-1b:Q4_0:128:8:0 llama-3.2-1b:Q4_K_M:128:8:0 llama-3.1-8b:Q4_K_M:128:4:6 qwen3-30b-a3b:Q4_K:128:8:6"
while getopts i:l:w:t:m:n:c:s: option; do
  case $option in
    i) ingot=$OPTARG ;; l) peers=$OPTARG ;; w) work=$OPTARG ;; t) counts=$OPTARG ;; m) rows=$OPTARG ;; n) rounds=$OPTARG ;;
    c) served=$OPTARG ;; s) shapes=$OPTARG ;; *) sed -n '5p' "$0" | sed 's/^# *//' >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
steps=${*:-build machine speed threads serving}
mkdir -p "$work"

has() { case " $steps " in *" $1 "*) true ;; *) false ;; esac; }
field() { echo "$1" | cut -d: -f"$2"; }  # TEXT NUMBER
note() { echo "== $(date -u +%T) $*"; }
fail() { echo "cores.sh: $*" >&2; exit 1; }

make_file() {  # SHAPE TYPE [LAYERS]
  file=$work/$1${3:+-$3-layers}-$2.gguf
  test -f "$file" && return
  case $2 in Q4_0 | Q4_K | Q4_K_M | Q6_K | F16) python3 "$here/random_model.py" "$1" "$file" --type "$2" ${3:+--layers "$3"} 2>/dev/null && return ;; esac
  [ -z "${3:-}" ] || fail "$1 cannot be written as $2: give a type of random_model.py"
  python3 "$here/random_model.py" "$1" "$work/$1-F16.gguf"  # other types, and shapes with rows of no whole blocks
  "$ingot" quantize "$work/$1-F16.gguf" "$file" "$2" >&2
}

if has build && [ -z "$ingot" ]; then
  note build
  { cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DINGOT_CUDA=OFF -DINGOT_TESTS=OFF && ninja -C build ingot; } >"$work/build.log" 2>&1 ||
    { grep -E 'error|FAILED|Error' "$work/build.log" | head -20; tail -5 "$work/build.log"; fail "the build failed: see $work/build.log"; }
fi
ingot=${ingot:-build/ingot}
[ -x "$ingot" ] || fail "$ingot is not there: build it, or name a program with -i"

if has machine; then
  note machine
  grep -m1 'model name' /proc/cpuinfo || true
  "$ingot" bench machine -t "$(echo "$counts" | tr ' ' ',')" --json >"$work/machine.json"
  python3 "$here/peers.py" machine "$work/machine.json"
fi

if has speed; then
  rm -f "$work/cores.csv"
  for row in $rows; do
    shape=$(field "$row" 1) type=$(field "$row" 2) own=$(field "$row:" 3 | tr ',' ' ')
    note "$shape $type"
    make_file "$shape" "$type"
    "$here/peers.sh" -s "$shape" -q "$type" -t "${own:-$counts}" -n "$rounds" -p 512 -g 32 -w "$work" -i "$ingot" \
      ${peers:+llama.cpp=$peers/llama-bench} >"$work/table.txt"
    tail -n +3 "$work/table.txt"
    if [ -f "$work/cores.csv" ]; then tail -n +2 "$work/peers.csv" >>"$work/cores.csv"; else cp "$work/peers.csv" "$work/cores.csv"; fi
  done
fi

if has threads; then
  rm -f "$work/threads.csv"
  for row in $shapes; do
    shape=$(field "$row" 1) type=$(field "$row" 2) layers=$(field "$row" 5)
    [ "$layers" != 0 ] || layers=''
    note "$shape $type${layers:+, $layers layers}"
    make_file "$shape" "$type" "$layers"
    "$ingot" bench "$file" -t "$(echo "$counts" | tr ' ' ',')" -p "$(field "$row" 3)" -n "$(field "$row" 4)" -r 5 -o json 2>"$work/threads.log" |
      python3 "$here/peers.py" threads "$work/threads.csv" "$shape${layers:+, $layers layers}" "$type"
  done
fi

# Waits until the server answers, then sends the requests.
load_server() {  # NAME COMMAND...: the server
  name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 &
  server=$!
  trap 'kill $server 2>/dev/null || true' EXIT
  waited=0
  while ! "$ingot" bench serve --url "http://127.0.0.1:$port" --requests 1 -p 4 -n 1 >"$work/first.log" 2>&1; do
    waited=$((waited + 1))
    if [ $waited -gt 120 ] || ! kill -0 $server 2>/dev/null; then tail -5 "$work/$name.log" "$work/first.log"; fail "$name does not answer"; fi
    sleep 1
  done
  "$ingot" bench serve --url "http://127.0.0.1:$port" --requests "$requests" --concurrency "$requests" -p "$prompt" -n "$output" -o json \
    >"$work/$name.json"
  kill $server
  wait $server 2>/dev/null || true
  trap - EXIT
  python3 "$here/peers.py" served "$work/serving.csv" "$served" "$most" "$name" <"$work/$name.json"
}

if has serving; then
  note "serving $served"
  shape=$(field "$served" 1) type=$(field "$served" 2) requests=$(field "$served" 3) prompt=$(field "$served" 4) output=$(field "$served" 5) layers=$(field "$served:" 6)
  most=${counts##* }
  make_file "$shape" "$type" "$layers"
  rm -f "$work/serving.csv"
  "$ingot" bench engine "$file" --device cpu -t "$most" --requests "$requests" --max-seqs "$requests" -p "$prompt" -n "$output" --spread 0 --json \
    >"$work/engine.json"
  python3 "$here/peers.py" served "$work/serving.csv" "$served" "$most" "ingot bench engine" <"$work/engine.json"
  if [ -n "$peers" ]; then
    load_server llama-server "$peers/llama-server" -m "$file" -t "$most" -np "$requests" -c $((requests * (prompt + output + 64))) --port "$port"
  fi
  cat "$work/serving.csv"
fi
note end
