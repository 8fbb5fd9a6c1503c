#!/bin/sh
# Trains the demo model from nothing but the seeds in these scripts. Needs python3 with torch, tokenizers, transformers and numpy,
# and one GPU: some ten minutes on an H200. Then run export.py and verify.py (README.md), which need no GPU.
#   build.sh OUT [MINUTES_OF_TRAINING [MEGABYTES_PER_SHARD]]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1 minutes=${2:-7.5} megabytes=${3:-52}
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
mkdir -p "$out"
python3 "$here/tokenizer.py" --out "$out"
python3 "$here/shards.py" --tokenizer "$out/tokenizer.json" --out "$data" --megabytes "$megabytes"
python3 "$here/train.py" --data "$data" --out "$out" --minutes "$minutes"
python3 "$here/evaluate.py" --run "$out"
