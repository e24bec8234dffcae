"""Compare build-data with its floor: the tokenizer alone on the same sentences.

The floor is Tokenizer.encode_batch_fast on all cores, with the sentences in memory. build-data is
the full command: start, read, split, tokenize, pair, mask, write, checksums.

python benchmarks/build_data.py TEXT TOKENIZER
"""

import gzip
import resource
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

from _timing import medians

from bertpt.corpus.corpus import Corpus
from bertpt.tokenizer.tokenizer import load_tokenizer

SENTENCES_AT_ONCE = 8192


def main() -> None:
    text, tokenizer_path = sys.argv[1:]
    backend = load_tokenizer(Path(tokenizer_path)).backend
    sentences = [sentence for document in Corpus([text]) for sentence in document]
    with (gzip.open if text.endswith(".gz") else open)(text, "rb") as file:
        megabytes = sum(map(len, file)) / 1e6

    def floor() -> None:
        rest = iter(sentences)
        while batch := list(islice(rest, SENTENCES_AT_ONCE)):
            backend.encode_batch_fast(batch, add_special_tokens=False)

    def build_data() -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = ["--tokenizer", tokenizer_path, "--out", f"{folder}/data", "--quiet"]
            command = [sys.executable, "-m", "bertpt_cli", "build-data", text, *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    found = medians({"floor": floor, "build-data": build_data}, repeats=5)
    for name, seconds in found.items():
        print(f"{name:>10}  {seconds:6.2f} s  {megabytes / seconds:5.2f} MB/s")
    print(f"build-data has {found['floor'] / found['build-data']:.2f} times the floor's throughput")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"peak memory of its largest process: {peak} MB")


if __name__ == "__main__":
    main()
