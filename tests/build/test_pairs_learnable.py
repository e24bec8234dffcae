"""A classifier that sees only the lengths of A and B does not learn the next-sentence label."""

import gzip
from itertools import pairwise

import numpy as np
import pytest

from bertpt.build.build import build_data
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.data.dataset import Dataset

WORDS = [f"w{i}" for i in range(200)]
SEQ_LEN = 64


def novel(num_tokens, rng):
    """Text with chapters and sentences as long as in a novel."""
    documents = []
    while num_tokens > 0:
        num_sentences = 1 + int(rng.lognormal(np.log(80), 1))
        lengths = 1 + rng.lognormal(np.log(24), 0.7, num_sentences).astype(int)
        words = [WORDS[i] for i in rng.integers(0, len(WORDS), lengths.sum())]
        ends = np.cumsum([0, *lengths])
        sentences = (words[i:j] for i, j in pairwise(ends))
        documents.append("\n".join(" ".join(sentence) for sentence in sentences))
        num_tokens -= len(words)
    return "\n\n".join(documents)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A file of text, and its vocabulary."""
    folder = tmp_path_factory.mktemp("novel")
    (folder / "text.txt").write_text(novel(675_000, np.random.default_rng(0)))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in [*special, *WORDS]))
    return folder / "text.txt", folder / "vocab.txt"


def lengths_and_labels(text, vocabulary, out, **settings):
    """The lengths of A and of B, and the label, of every pair; 1 = random."""
    config = BuildConfig(**{"sentence_per_line": True, "valid_fraction": 0, **settings})
    build_data(
        [str(text)],
        out,
        tokenizer_path=vocabulary,
        config=config,
        tokenizer_config=TokenizerConfig(),
    )
    stored = Dataset(out).examples("train").stored.with_format("arrow")[:]
    num_tokens = stored["input_ids"].combine_chunks().value_lengths().to_numpy()
    b_starts, labels = stored["b_start"].to_numpy(), stored["next_sentence_label"].to_numpy()
    return np.stack([b_starts - 2, num_tokens - b_starts - 1], axis=1), labels


def accuracy_from_lengths(lengths, labels, *, number):
    """Train a logistic regression on `number` pairs; return its accuracy on as many others.

    Both labels are equally frequent there.
    """
    rng = np.random.default_rng(0)
    of_each = [rng.permutation(np.flatnonzero(labels == label))[:number] for label in (0, 1)]
    assert [len(rows) for rows in of_each] == [number, number], "too few pairs"
    rows = rng.permutation(np.concatenate(of_each))
    x, y = features(lengths[rows].astype(float)), labels[rows].astype(float)
    x = np.hstack([(x - x[:number].mean(0)) / x[:number].std(0), np.ones((len(x), 1))])
    weights = logistic_regression(x[:number], y[:number])
    return float(((x[number:] @ weights > 0) == y[number:]).mean())


def features(lengths):
    a, b = lengths.T
    total = a + b
    columns = [a, b, total, a * a, b * b, total * total, a * b, a * total, b * total]
    columns += [np.minimum(a, b), np.maximum(a, b)]
    return np.stack(columns, axis=1)


def logistic_regression(x, y):
    """Newton's method, with a little weight decay since some features are sums of others."""
    weights = np.zeros(x.shape[1])
    for _ in range(15):
        p = 1 / (1 + np.exp(-x @ weights))
        gradient = x.T @ (y - p) - 1e-3 * weights
        curvature = (x.T * (p * (1 - p))) @ x + 1e-3 * np.eye(len(weights))
        weights += np.linalg.solve(curvature, gradient)
    return weights


def test_lengths_do_not_leak_the_label(inputs, tmp_path):
    settings = {"seq_len": SEQ_LEN, "dupe_factor": 3}
    lengths, labels = lengths_and_labels(*inputs, tmp_path / "data", **settings)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.01)
    assert accuracy_from_lengths(lengths, labels, number=16_000) < 0.52


def test_lengths_of_googles_pairs_leak_the_label(inputs, tmp_path):
    """This shows that the test above can fail."""
    settings = {"seq_len": SEQ_LEN, "pairing": "google"}
    lengths, labels = lengths_and_labels(*inputs, tmp_path / "data", **settings)
    assert np.mean(labels) > 0.55
    assert accuracy_from_lengths(lengths, labels, number=4_000) > 0.53


@pytest.mark.slow
def test_lengths_of_real_novels_do_not_leak_the_label(shared, tmp_path):
    with gzip.open(shared / "corpora/en.novels.train.txt.gz") as file:
        (tmp_path / "text.txt").write_bytes(file.read())
    inputs = tmp_path / "text.txt", shared / "vocab/bert-base-uncased.txt"
    settings = {"sentence_per_line": False, "dupe_factor": 2}
    lengths, labels = lengths_and_labels(*inputs, tmp_path / "data", **settings)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.01)
    assert accuracy_from_lengths(lengths, labels, number=20_000) < 0.52
