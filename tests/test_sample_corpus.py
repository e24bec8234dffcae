"""data/python_docs.py, the corpus of `make demo`."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "data" / "python_docs.py"


def print_corpus():
    return subprocess.run([sys.executable, SCRIPT], capture_output=True, check=True).stdout.decode()


@pytest.mark.slow
def test_the_sample_corpus_is_prose_in_documents():
    text = print_corpus()
    documents = text.strip().split("\n\n")
    assert len(documents) > 300
    assert min(map(len, documents)) >= 200
    assert ">>>" not in text
    assert "**" not in text
    assert sum(map(len, documents)) > 1_000_000


@pytest.mark.slow
def test_the_sample_corpus_is_the_same_every_time():
    assert print_corpus() == print_corpus()
