"""A tiny corpus, and a data folder and a run made of it by the commands themselves."""

import random
import signal

import pytest
from helpers import TINY, TWO_DOCUMENTS, VOCABULARY
from typer.testing import CliRunner

from bertpt_cli.main import app

NUM_DOCUMENTS, SENTENCES_EACH = 8, 6
HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@pytest.fixture(scope="session")
def run():
    """Calls bertpt as a shell does; gives stdout, stderr and exit_code.

    What a shell would see as a traceback fails the test.
    """

    def call(*arguments, stdin=None):
        handlers = {n: signal.getsignal(n) for n in HANDLED}
        try:
            words = [str(argument) for argument in arguments]
            return CliRunner().invoke(app, words, input=stdin, catch_exceptions=False)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    return call


@pytest.fixture(scope="session")
def done(run):
    """The same for a command that must succeed."""

    def call(*arguments, stdin=None):
        result = run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return result

    return call


@pytest.fixture(scope="session")
def documents():
    """Documents as lists of sentences, all words from a small vocabulary."""
    rng = random.Random(13)
    who = ("The old dog", "A small bird", "Her brother", "The river", "Our cat")
    does = ("sees", "likes", "finds", "hears")
    what = ("the house", "a stone", "the green tree", "another fish", "the river")
    when = ("", " today", " at night", " in the morning")
    return [
        [
            f"{rng.choice(who)} {rng.choice(does)} {rng.choice(what)}{rng.choice(when)}."
            for _ in range(SENTENCES_EACH)
        ]
        for _ in range(NUM_DOCUMENTS)
    ]


@pytest.fixture(scope="session")
def text(documents):
    """The documents as prose, a blank line after each."""
    return "".join(" ".join(sentences) + "\n\n" for sentences in documents)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, text):
    """The documents as a text file."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def data(done, corpus, tmp_path_factory):
    """A DATA folder of sequences of 32 tokens; read it, change nothing."""
    path = tmp_path_factory.mktemp("built") / "data"
    done("build-data", corpus, "--out", path, "--vocab-size", 99, "--seq-len", 32, "--quiet")
    return path


@pytest.fixture(scope="session")
def trained(done, data, tmp_path_factory):
    """A RUN folder after 4 steps, its model 12 wide with 32 positions; change nothing."""
    path = tmp_path_factory.mktemp("trained") / "run"
    length = ("--steps", 4, "--save-every", 2, "--log-every", 1, "--batch-size", 3)
    shape = (*TINY, "--max-position-embeddings", 32)
    done("pretrain", data, "--out", path, *length, *shape, "--quiet")
    return path


@pytest.fixture
def two(tmp_path):
    """Returns a folder with two.txt and vocab.txt, small enough to count by hand."""
    (tmp_path / "two.txt").write_text(TWO_DOCUMENTS)
    (tmp_path / "vocab.txt").write_text(VOCABULARY)
    return tmp_path
