"""data/python_docs.py, the corpus of `make demo`."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "data" / "python_docs.py"


def test_the_sample_corpus_is_prose_in_documents_and_the_same_every_time():
    first, second = (
        subprocess.run([sys.executable, SCRIPT], capture_output=True, check=True).stdout.decode()
        for _ in range(2)
    )
    assert first == second
    documents = first.strip().split("\n\n")
    assert len(documents) > 300
    assert min(map(len, documents)) >= 200
    assert ">>>" not in first
    assert "**" not in first
    assert sum(map(len, documents)) > 1_000_000
