#!/bin/sh
# Builds for the GPU of this machine, runs the tests that need a GPU, and measures speed, all in one call.
#
#   bench/gpu/run.sh [build] [test] [soak] [sanitize] [bench] [experts] [batch] [idle] [profile] [load] [ops] [kernels] [tuned] [ladder] [depth] [serving] [power] [quality] [images] [scans] [offload] [parallel] [parallel70b] [wheel] [ptx]
#   default: build test bench
#
# The build goes to build-gpu/ (BUILD=...), results to $OUT if it is set. CMAKE_ARGS are passed to cmake. With TESTS_LIKE=...,
# only the groups of tests whose names contain this word run.
#
#   soak         steps of a few rows on the whole GPU, with drawn sizes and contexts, for MINUTES (10)
#   sanitize     compute-sanitizer checks for invalid accesses, races and barrier errors
#   experts      models with experts, and models with recurrent layers
#   batch        several sequences at once, without and with the engine
#   idle         how long the GPU idles between decode steps
#   profile      the time of each kernel of a decoded token (ncu)
#   load         how fast files are loaded (writes a 2.5 GB model)
#   ops          attention and draws alone
#   kernels      products alone
#   tuned        kernels compiled for the model's sizes and this device, against the fixed ones
#   ladder       more types
#   depth        decoding far into the context, one sequence and sixteen
#   serving      requests of 1,000 + 1,000 tokens through the whole engine; steps that mix prompts and decodes
#   power        the GPU's power and clock during prompts and decodes
#   quality      perplexity and logits of the demo model with its weights and cache in several formats
#   images       vision towers, and the first token of an answer about a picture of 1,024 x 1,024
#   scans        recurrent models, and the share of each kernel in their prompts
#   offload      models divided between the GPU and 16 cores of the CPU, with their tests
#   parallel     one model on 2 GPUs (and on 4, if the machine has them) against one GPU: tests, equal text, sums by size, prompts
#                and decode, serving, also as a pipeline
#   parallel70b  as parallel, for a model of 70 billion parameters; prompts and decode only
#   wheel        the Python package of $BUILD/wheel (from `make wheel-cuda`, or from scripts/wheel.py on a machine that reaches PyPI)
#                in a separate environment
#   ptx          the tests with a program that has only PTX. The driver compiles the PTX, as on a GPU that is newer than the toolkit.
#                $BUILD holds this program afterwards.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build-gpu}
OUT=${OUT:-$BUILD}
steps=${*:-build test bench}
failed=0

has() { case " $steps " in *" $1 "*) true ;; *) false ;; esac; }

build_programs() {
  cmake --build "$BUILD" --target ingot-cli test_backend test_model test_engine >"$OUT/build.log" 2>&1 || { grep -E 'error|FAILED' "$OUT/build.log" | head -40; exit 1; }
}
configure() {
  cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DINGOT_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$1" \
    ${CMAKE_ARGS:-} >"$OUT/cmake.log" 2>&1 || { tail -20 "$OUT/cmake.log"; exit 1; }
}
if has build; then
  test -f "$BUILD/build.ninja" || configure 90a-real
  build_programs
fi

# One process per test group. Several run at once, because ref is slow and has one thread. $1: added to the last line of
# output.
run_tests() {
  each() { "$BUILD/$1" --gtest_list_tests --gtest_filter="$2" | awk -v program="$1" '/^[^ ]/ {suite = $1} /^ / {print program, suite $1}'; }
  { each test_backend '*Cuda*:*/cuda'; each test_model '*CudaPerplexity*'; } >"$OUT/tests.txt"
  for filter in '*CudaGoldens*' 'Speech*'; do echo "test_model $filter" >>"$OUT/tests.txt"; done
  for filter in 'CudaFaults.*' '*CudaReplay*.F16/*:CudaReplays.*' '*CudaReplay*.F32/*' '*CudaReplay*.Deterministic/*' 'Devices/Deterministic.*/cuda' \
    'Models/BatchInvariance.*/cuda_*' 'Models/Hybrid.*/*_cuda' 'Models/CachedFamilies.*/*_cuda' 'Models/Scoring.*/cuda_*' 'Models/CudaVisionLogits.*'; do
    echo "test_engine $filter"
  done >>"$OUT/tests.txt"
  test -z "${TESTS_LIKE:-}" || sed -i "/$TESTS_LIKE/!d" "$OUT/tests.txt"
  xargs -P ${TESTS_AT_ONCE:-8} -L 1 sh -c '"$0"/"$1" --gtest_filter="$2" >"$0/$1.$$.log" 2>&1 || { echo "FAILED $1 $2"; grep -A4 -E "Failure|CHECK|terminate|what" "$0/$1.$$.log" | head -${LINES_EACH:-30}; grep "^\[  FAILED  \] .* (" "$0/$1.$$.log"; exit 1; }' \
    "$BUILD" <"$OUT/tests.txt" || { failed=1; return; }
  echo "all $(wc -l <"$OUT/tests.txt") groups of tests passed$1"
}

has test && run_tests ""

if has soak; then
  INGOT_SOAK_MINUTES=${MINUTES:-10} "$BUILD/test_backend" --gtest_filter='CudaSoak.*' >"$OUT/soak.log" 2>&1 || { echo "FAILED soak"; tail -20 "$OUT/soak.log"; failed=1; }
  echo "soak: $(grep -c '^soak: seed' "$OUT/soak.log") rounds"
fi

# Small cases of every kind of kernel, because the tool makes kernels some hundred times slower. Races within cuBLASLt's
# kernels (nvjet) are ignored.
# Each tool also runs layers on a cluster. A block's sums alternate between two buffers, so that barriers known to
# racecheck order them. racecheck sees neither the accesses of st.async between blocks nor their order; the correct
# result is the only check of those.
if has sanitize; then
  cases='CudaBackend.SmallCasesOfEachKernel:*Cuda*Recurrence*:SmallestCudaLayers.*'
  for tool in memcheck racecheck synccheck; do
    timeout 300 compute-sanitizer --tool $tool "$BUILD/test_backend" --gtest_filter="$cases" >"$OUT/$tool.log" 2>&1 || { echo "FAILED $tool"; tail -30 "$OUT/$tool.log"; failed=1; }
  done
  for tool in memcheck synccheck; do
    grep -q 'ERROR SUMMARY: 0 errors' "$OUT/$tool.log" || { echo "FAILED $tool"; grep -A5 '^=* [IEB]' "$OUT/$tool.log" | head -30; failed=1; }
  done
  grep -q 'RACECHECK SUMMARY' "$OUT/racecheck.log" && ! grep 'Race reported' "$OUT/racecheck.log" | grep -v nvjet || { echo "FAILED racecheck"; failed=1; }
  test $failed = 0 && echo "no bad access, no race, no misused barrier"
fi

measure() { "$BUILD/ingot" bench --device cuda -b 2048 --shape "$1" --type "$2" -p 512,2048 -n 128 -r 5 2>&1 | grep -E "$1|rror|failed|CHECK"; }

# together SHAPE TYPE SEQUENCES [TOKENS OF CONTEXT]
together() { echo "$1 $2"; "$BUILD/ingot" bench batch --device cuda -b 2048 --shape "$1" --type "$2" --npp "${4:-1024}" --ntg 24 --npl "$3" 2>&1 | grep -E "^\| |rror|CHECK"; }

if has bench; then
  for type in F16 Q4_0; do measure smollm-135m $type; done
  for type in BF16 Q4_0 Q4_K Q8_0; do measure llama-3.2-1b $type; done
  for type in BF16 Q4_0 Q4_K Q8_0; do measure llama-3.1-8b $type; done
fi
if has experts; then
  for type in BF16 Q4_0; do
    for shape in granite-1b-a400m qwen3-30b-a3b qwen3.5-0.8b; do measure $shape $type; done
  done
  together qwen3-30b-a3b Q4_0 1,8,32,64,128
fi
if has batch; then
  together smollm-135m Q4_0 1,8,32,64,128
  together llama-3.2-1b Q4_0 1,8,32,64,128
  together llama-3.1-8b BF16 1,8,32,64,128,256
  for type in Q4_0 Q8_0; do together llama-3.1-8b $type 1,8,32,64,128; done
  for type in BF16 Q4_0 Q4_K Q8_0 MXFP4 AFFINE4_64; do together llama-3.1-8b $type 2,4,8,16,32,64,128,256 128; done
  together llama-3.1-8b Q4_0 2,8 128,1500,4300,9000  # short contexts where long ones are allowed, as in a server
  for type in BF16 Q4_0; do
    "$BUILD/ingot" bench engine --device cuda -b 2048 --shape llama-3.1-8b --type $type --requests 256 --rate 0 --max-seqs 64 --json
  done
fi
if has idle; then
  for run in "smollm-135m Q4_0 1" "llama-3.2-1b BF16 1" "llama-3.2-1b BF16 64" "llama-3.1-8b BF16 1" "llama-3.1-8b BF16 64"; do
    set -- $run
    "$BUILD/ingot" bench engine --device cuda --shape "$1" --type "$2" --requests "$3" --max-seqs "$3" --rate 0 --spread 0 -p 64 -n 300 \
      --trace "$OUT/idle-$1-$2-$3.json" --trace-steps >>"$OUT/idle.log" 2>&1 || failed=1
  done
  python3 bench/gpu/idle.py "$OUT"/idle-*.json || failed=1
fi
# profile SHAPE TYPE TOKENS SKIP COUNT: measures COUNT kernels after the first SKIP. The skipped kernels repack weights,
# measure the peaks, and run the first tokens, which are launched directly and recorded.
profile() {
  ncu --csv --clock-control none --cache-control none --graph-profiling node --metrics gpu__time_duration.sum --launch-skip "$4" --launch-count "$5" \
    "$BUILD/ingot" bench --device cuda --shape "$1" --type "$2" -p 0 -n "$3" -r 1 >"$OUT/profile-$1-$2.csv" 2>&1
  python3 bench/gpu/profile.py "$OUT/profile-$1-$2.csv" || { tail -3 "$OUT/profile-$1-$2.csv"; failed=1; }
}
if has profile; then
  profile smollm-135m Q4_0 60 560 60
  profile llama-3.2-1b BF16 8 480 340
  profile llama-3.1-8b BF16 9 1470 700
  profile llama-3.1-8b Q4_0 9 930 700
fi
# A JPEG file like a photograph: smooth colours with some noise.
photo() { python3 -c '
import sys, numpy as np, PIL.Image
x, y = np.meshgrid(np.linspace(0, 6, int(sys.argv[2])), np.linspace(0, 5, int(sys.argv[3])))
noise = np.random.default_rng(1).normal(0, 6, (*x.shape, 3))
waves = np.stack([np.sin(x + y), np.cos(x * y / 3), np.sin(2 * x - y)], -1)
PIL.Image.fromarray((127 + 90 * waves + noise).clip(0, 255).astype(np.uint8)).save(sys.argv[1], quality=90)' "$@"; }
seen() { timeout 200 "$BUILD/ingot" bench images --device cuda --json "$@" 2>&1 | grep -E '^{|rror|CHECK' || failed=1; }
if has images; then
  photo "$OUT/photo.jpg" 1024 1024 && photo "$OUT/square.jpg" 896 896 || failed=1
  seen --tower gemma-3 -n 20 -i "$OUT/square.jpg"
  for tower in qwen3.5 qwen2.5-vl smolvlm-256m; do seen --tower $tower -n 20 -i "$OUT/photo.jpg"; done
  seen --tower qwen3.5 --shape qwen3.5-9b --type BF16 -n 10 --streams 16 -i "$OUT/photo.jpg"
fi
# prompt_profile SHAPE SKIP COUNT: measures COUNT kernels of a prompt of 2,048 tokens after the first SKIP
prompt_profile() {
  ncu --csv --clock-control none --cache-control none --metrics gpu__time_duration.sum --launch-skip "$2" --launch-count "$3" \
    "$BUILD/ingot" bench --device cuda -b 2048 --shape "$1" --type BF16 -p 2048 -n 0 -r 1 >"$OUT/prompt-$1.csv" 2>&1
  echo "$1" && python3 bench/gpu/profile.py --part "$OUT/prompt-$1.csv" || { tail -3 "$OUT/prompt-$1.csv"; failed=1; }
}
if has scans; then
  for shape in mamba-2.8b mamba2-2.7b rwkv7-2.9b recurrentgemma-2b granite-4.0-h-tiny; do
    measure $shape BF16
    together $shape BF16 64
  done
  for shape in mamba-2.8b mamba2-2.7b rwkv7-2.9b; do prompt_profile $shape 1000 500; done
fi
if has speech; then
  for shape in large-v3-turbo large-v3; do
    timeout 300 "$BUILD/ingot" bench speech --device cuda --shape $shape --batches 1,4,16,64 -n 3 2>&1 | grep -E "time|rror|CHECK" || failed=1
  done
  timeout 200 "$BUILD/ingot" bench speech --device cuda --batches 1,16 --beams 5 -n 3 2>&1 | grep -E "time|rror|CHECK" || failed=1
fi
if has load; then
  python3 tools/load_times.py --ingot "$BUILD/ingot" --device cuda --work "$BUILD/load" --only "safetensors BF16" --before "bench/gpu/bus.py" || failed=1
fi
if has ops; then
  cmake -DINGOT_BENCH=ON "$BUILD" >>"$OUT/build.log" 2>&1 && cmake --build "$BUILD" --target ops_bench >>"$OUT/build.log" 2>&1 && "$BUILD/bench/ops_bench" cuda 2>&1 | tail -34 || failed=1
fi
if has kernels; then
  for type in Q4_0 Q8_0; do "$BUILD/ingot" inspect --kernels --device cuda --shape llama-3.1-8b --type $type || failed=1; done
fi
if has tuned; then
  for shape in llama-3.2-1b llama-3.1-8b; do
    for type in Q4_0 Q4_K Q8_0; do
      for kernels in tuned fixed tuned fixed; do
        "$BUILD/ingot" bench --device cuda --kernels $kernels -b 2048 --shape $shape --type $type -p 512 -n 128 -r 3 --log-level info 2>&1 |
          grep -E "$shape|rror|kernels" | sed "s/^/$kernels /"
      done
    done
  done
fi
if has ladder; then
  for type in F32 Q6_K Q5_K Q3_K Q2_K IQ4_NL MXFP4; do measure llama-3.2-1b $type; done
fi
# Heads of 64, of 128 and of 256, and latents. The last two shapes have a window in some layers.
deep() {
  echo "$1 $2"
  for depths in "1,8192,32768,122880 --npl 1" "1,8192,32768 --npl 16"; do  # the last may not fit
    "$BUILD/ingot" bench batch --device cuda --shape "$1" --type "$2" --empty-prompts --ntg 32 --npp $depths 2>&1 | grep -E "^\| |rror|CHECK|^ingot:"
  done
}
if has depth; then
  for shape in llama-3.2-1b llama-3.1-8b qwen3-8b qwen3.5-0.8b qwen3.5-9b deepseek-v2-lite glm-4.7-flash gemma-3-4b gemma-3-27b gpt-oss-20b; do deep $shape BF16; done
fi
# divided SHAPE TYPE RANKS...
divided() {
  shape=$1 type=$2
  shift 2
  for tp; do
    test "$(nvidia-smi -L | wc -l)" -ge "$tp" || continue
    echo "tp $tp: $("$BUILD/ingot" bench --device cuda --tp "$tp" -b 2048 --shape "$shape" --type "$type" -p 512,2048 -n 128 -r 3 2>&1 | grep -E "$shape|rror|failed|CHECK")"
  done
}
# libnccl.so.2 from the system, or from PyTorch's or PyPI's package.
if has parallel || has parallel70b; then
  nccl=$(find / -name libnccl.so.2 -not -path '/proc/*' -printf '%h\n' 2>/dev/null | head -1)
  export LD_LIBRARY_PATH="$nccl:${LD_LIBRARY_PATH:-}"
fi
if has parallel70b; then
  divided llama-3.1-70b Q4_0 1 2 4
  divided llama-3.1-70b BF16 1 4
fi
if has parallel; then
  n_gpus=$(nvidia-smi -L | wc -l)
  nvidia-smi topo -m | head -$((n_gpus + 1))
  "$BUILD/test_backend" --gtest_filter='CudaRanks.*' >"$OUT/ranks.log" 2>&1 || { echo "FAILED CudaRanks"; tail -30 "$OUT/ranks.log"; failed=1; }
  "$BUILD/test_model" --gtest_filter='*CudaParallel*' >"$OUT/parallel.log" 2>&1 || { echo "FAILED CudaParallel"; grep -E 'Failure|FAILED|what' "$OUT/parallel.log" | head -30; failed=1; }
  write() { "$BUILD/ingot" run --device cuda --tp "$1" --raw -p "Once upon a time" -n 100 --temp 0 --ignore-eos --kv-type f32 --activations f32 2>>"$OUT/parallel.log"; }
  test "$(write 1)" = "$(write 2)" && test -n "$(write 2)" && echo "the text of two GPUs is that of one" || { echo "FAILED: two GPUs write another text"; failed=1; }
  for tp in 2 4; do
    test "$n_gpus" -ge $tp || continue
    "$BUILD/ingot" bench reduce --device cuda --tp $tp -r 200
  done
  for type in BF16 Q4_0; do divided llama-3.1-8b $type 1 2 4; done
  for tp in 1 2 4; do
    test "$n_gpus" -ge $tp || continue
    echo "tp $tp, llama-3.1-8b BF16, 256 sequences: $("$BUILD/ingot" bench engine --device cuda --tp $tp --shape llama-3.1-8b --type BF16 \
      --requests 256 --max-seqs 256 --spread 0 -p 1000 -n 1000 2>&1 | grep -E "throughput|rror|CHECK")"
  done
  for flags in "" --ep; do
    echo "tp 2 $flags, experts: $("$BUILD/ingot" bench --device cuda --tp 2 $flags -b 2048 --shape qwen3-30b-a3b --type Q4_0 -p 512,2048 -n 128 -r 3 2>&1 | grep -E "qwen3|rror|CHECK")"
  done
  for n in 256 512; do  # a pipeline has room for more sequences than one GPU
    echo "pp 2, llama-3.1-8b BF16, $n sequences: $("$BUILD/ingot" bench engine --device cuda:0,cuda:1 --pp 2 --shape llama-3.1-8b --type BF16 \
      --requests $n --max-seqs $n --spread 0 -p 1000 -n 1000 2>&1 | grep -E "throughput|rror|CHECK")"
  done
  "$BUILD/ingot" bench engine --device cuda --tp 2 --shape llama-3.1-8b --type BF16 --requests 1 --max-seqs 1 --rate 0 --spread 0 -p 64 -n 300 \
    --trace "$OUT/parallel-trace.json" --trace-steps >>"$OUT/parallel.log" 2>&1 && python3 bench/gpu/idle.py "$OUT/parallel-trace.json" || failed=1
fi
# 64 or more sequences at once. There are as many requests as sequences, and all are submitted at the start.
if has serving; then
  for run in "BF16 f16" "BF16 fp8" "F8_E4M3 f16" "F8_E4M3 fp8" "Q4_0 f16" "Q4_0 fp8"; do
    set -- $run
    for n in 64 256 512; do
      echo "llama-3.1-8b $1, KV $2, $n sequences: $("$BUILD/ingot" bench engine --device cuda --shape llama-3.1-8b --type "$1" --kv-type "$2" \
        --requests $n --max-seqs $n --spread 0 -p 1000 -n 1000 2>&1 | grep -E "throughput|rror|CHECK")"
    done
  done
  # The steps with prompts of such a run, and the same prompts alone.
  # engine_steps TYPE KV FILE SEQUENCES ANSWER: a trace of steps
  engine_steps() {
    "$BUILD/ingot" bench engine --device cuda --shape llama-3.1-8b --type "$1" --kv-type "$2" --requests "$4" --max-seqs "$4" \
      --spread 0 -p 1000 -n "$5" --trace "$OUT/$3" --trace-steps >"$OUT/mixed.log" 2>&1 || { tail -3 "$OUT/mixed.log"; failed=1; }
  }
  for run in "BF16 f16 64" "BF16 f16 256" "F8_E4M3 fp8 64" "F8_E4M3 fp8 256" "F8_E4M3 fp8 512"; do
    set -- $run
    engine_steps "$1" "$2" prompts.trace "$3" 1
    engine_steps "$1" "$2" mixed.trace "$3" 320  # after fewer steps, all prompts are read
    printf 'llama-3.1-8b %s, KV %s, %s sequences: ' $run
    python3 bench/gpu/mixed.py "$OUT/mixed.trace" "$OUT/prompts.trace" || failed=1
  done
fi
# A command of ingot, and the mean power and clock of 23 samples before its last 0.4 s, in which it ends.
power() {
  nvidia-smi --query-gpu=power.draw.instant,clocks.sm --format=csv,noheader,nounits -lms 50 >"$OUT/power.csv" &
  watcher=$!
  "$BUILD/ingot" "$@" 2>&1 | grep -E "^\| |rror|CHECK" | tail -1
  kill $watcher
  tail -n 31 "$OUT/power.csv" | head -n 23 | awk -F, '{watts += $1; clock += $2} END {printf "%.0f W, %.0f MHz\n", watts / NR, clock / NR}'
}
if has power; then
  for run in "BF16 f16" "F8_E4M3 fp8"; do
    set -- $run
    power bench --device cuda -b 2048 --shape llama-3.1-8b --type "$1" -p 2048 -n 0 -r 120
    for context in 1400 16; do
      power bench batch --device cuda --shape llama-3.1-8b --type "$1" --kv-type "$2" --npp $context --ntg 300 --npl 186
    done
  done
fi
if has quality; then
  python3 bench/gpu/quality.py "$BUILD/ingot" || failed=1
fi
# Goals at batch 1: with all experts on the CPU, at least 60 tok/s; with 8 GiB on the GPU, 1.5 times that speed.
shared() {
  echo "$*"
  "$BUILD/ingot" bench --device cuda -t 16 -p 512 -n 64 -r 3 --log-level info "$@" 2>&1 | grep -E "^\| |does not fit|on cpu|rror|CHECK"
}
if has offload; then
  "$BUILD/test_model" --gtest_filter='*CudaSplits*:PlannedGpu.*' >"$OUT/offload.log" 2>&1 || { echo "FAILED offload"; grep -A4 -E "Failure|CHECK|terminate|what" "$OUT/offload.log" | head -40; failed=1; }
  shared --shape qwen3-30b-a3b --type Q4_0
  shared --shape qwen3-30b-a3b --type Q4_0 --cpu-experts all
  shared --shape qwen3-30b-a3b --type Q4_0 --gpu-memory 8GiB
  shared --shape llama-3.1-8b --type Q4_0 --gpu-layers 16
  shared --shape smollm-135m --type Q4_0 --override-tensor ffn_=CPU  # 30 crossings of little work
  "$BUILD/ingot" bench engine --device cuda --shape qwen3-30b-a3b --type Q4_0 --cpu-experts all -t 16 --requests 8 --max-seqs 8 --rate 0 --spread 0 -p 64 -n 64 2>&1 |
    grep -E "throughput|rror|CHECK"
fi
if has wheel; then
  python3 bench/gpu/wheel.py "$BUILD"/wheel/ingot-*.whl || failed=1
fi
# The first run makes the driver compile a file of kernels. The driver caches the result in ~/.nv.
if has ptx; then
  configure 90-virtual
  build_programs
  export CUDA_CACHE_MAXSIZE=4294967296
  for run in first second; do
    begun=$(date +%s%N)
    "$BUILD/ingot" run --device cuda -p "Tell me a story." -n 8 >/dev/null || failed=1
    echo "$run start from PTX: $((($(date +%s%N) - begun) / 1000000)) ms"
  done
  run_tests ", from PTX"
fi
exit $failed
