"""What all tests share."""

import os
import random
import signal
from pathlib import Path

import hypothesis
import pytest
import torch

from bertpt.build.build import build_data
from bertpt.config import BuildConfig, TokenizerConfig

SHARED = Path(__file__).parents[2] / "shared"
WORDS = ("cat", "dog", "bird", "sees", "hears", "the", "a", "old", "red", "hill")

# A shell's background jobs have Ctrl-C ignored, and so would the processes that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No deadline, since machines are shared and the time of one example says nothing.
hypothesis.settings.register_profile("fast", deadline=None, max_examples=40)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("fast")
# Sums depend on how they are split among threads, and some tests compare bits. Child processes get
# one thread, too, since pytest-xdist runs several at a time.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def shared():
    """Real texts, vocabularies and other systems' outputs, which are no part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"needs {SHARED}, which this machine lacks")
    return SHARED


@pytest.fixture(scope="session")
def build_tiny():
    """Makes a DATA folder of documents of six sentences, in sequences of at most 16 tokens."""

    def build(
        folder,
        *,
        text_seed=0,
        num_documents=20,
        num_sentences=6,
        words=WORDS,
        cleaning=(),
        **settings,
    ):
        rng = random.Random(text_seed)
        documents = [
            "\n".join(
                " ".join(rng.choices(words, k=rng.randint(2, 6))) for _ in range(num_sentences)
            )
            for _ in range(num_documents)
        ]
        text = folder.with_suffix(".txt")
        text.write_text("\n\n".join(documents), encoding="utf-8")
        settings = {"sentence_per_line": True, "seq_len": 16, "valid_fraction": 0.2, **settings}
        build_data(
            [str(text)],
            folder,
            tokenizer_path=None,
            config=BuildConfig(**settings),
            tokenizer_config=TokenizerConfig(vocab_size=60, **dict(cleaning)),
        )
        return folder

    return build


@pytest.fixture(scope="session")
def data(build_tiny, tmp_path_factory):
    """A DATA folder of about 60 examples; change nothing."""
    return build_tiny(tmp_path_factory.mktemp("data") / "data")
