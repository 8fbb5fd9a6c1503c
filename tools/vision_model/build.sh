#!/bin/sh
# Trains the vision model from nothing but the seeds in these scripts. Needs python3 with torch, tokenizers, numpy, pillow
# and matplotlib, and one GPU: some nine minutes on an H200. Then run export.py and verify.py (README.md), which need none.
#   build.sh OUT [MINUTES_OF_TRAINING]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
python3 "$here/tokenizer.py" --out "$1"
python3 "$here/train.py" --out "$1" --minutes "${2:-8}"
python3 "$here/evaluate.py" --run "$1"
