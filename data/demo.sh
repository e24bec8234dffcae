#!/bin/sh
# Train and evaluate a BERT on Python's own documentation; `make demo` runs this.
set -eu
BIN=${BIN:-.venv/bin}
OUT=${OUT:-build/demo}

show() {
    line=
    for word; do
        case $word in *' '*) line="$line '$word'" ;; *) line="$line $word" ;; esac
    done
    if [ -t 2 ]; then printf '\n\033[1m$%s\033[0m\n' "$line" >&2; else printf '\n$%s\n' "$line" >&2; fi
}
step() { show "$@"; "$BIN/$@"; }

mkdir -p "$OUT"
build="build-data - --vocab-size 4000 --seq-len 64 --out $OUT/data --overwrite"
# shellcheck disable=SC2086
show python data/python_docs.py "|" bertpt $build
# shellcheck disable=SC2086
"$BIN/python" data/python_docs.py | "$BIN/bertpt" $build
step bertpt inspect "$OUT/data" --examples 1
step bertpt pretrain "$OUT/data" --out "$OUT/run" --model tiny --max-minutes 1.8 --eval-every 0 \
    --eval-examples 0 --overwrite
step bertpt eval-mlm "$OUT/run" "$OUT/data"
step bertpt fill-mask "$OUT/run" --top-k 3 \
    "Return [MASK] if the object is not found." \
    "Return the [MASK] of the given object." \
    "Raises a TypeError if the [MASK] is not a string."
