#!/bin/sh
# From the documentation that every Python ships to an evaluated BERT: what `make demo` runs.
set -eu
BIN=${BIN:-.venv/bin}
OUT=${OUT:-build/demo}

step() { printf '\n\033[1m$ %s\033[0m\n' "$*" >&2; "$@"; }

mkdir -p "$OUT"
echo "$ python data/python_docs.py | bertpt build-data - --out $OUT/data" >&2
"$BIN/python" data/python_docs.py |
    "$BIN/bertpt" build-data - --vocab-size 4000 --seq-len 64 --out "$OUT/data" --overwrite
step "$BIN/bertpt" pretrain "$OUT/data" --model mini --max-minutes 1.7 --eval-every 0 \
    --out "$OUT/run" --overwrite
step "$BIN/bertpt" eval-mlm "$OUT/run" "$OUT/data"
step "$BIN/bertpt" fill-mask "$OUT/run" --top-k 3 \
    "Return [MASK] if the object is not found, otherwise False." \
    "If the argument is omitted, the default [MASK] is used." \
    "Raises a TypeError if the [MASK] is not a string."
