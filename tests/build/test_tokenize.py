"""Counts of the text made while tokenizing it."""

import random

import numpy as np
import pytest

from bertpt.build import tokenize as stage
from bertpt.build import workers
from bertpt.build.tokenize import tokenize
from bertpt.build.workers import Workers
from bertpt.corpus.corpus import Piece
from bertpt.progress import Progress
from bertpt.tokenizer.tokenizer import from_vocab

VOCAB = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), *"abcdefgh", "."]
UINT16, INT32 = np.dtype(np.uint16), np.dtype(np.int32)


@pytest.fixture
def text_counts(tmp_path):
    """Tokenize documents with the toy vocabulary; return the counts."""
    tokenizer = from_vocab(VOCAB, lowercase=True, strip_accents=True)
    tokenizer.save(tmp_path / "tokenizer")

    def text_counts(documents, number=1, dtype=UINT16):
        with Workers(number) as pool:
            return tokenize(
                [Piece(document, ends_document=True) for document in documents],
                tmp_path / "tokenizer",
                tmp_path,
                dtype,
                workers=pool,
                progress=Progress(quiet=True),
            )[1]

    return text_counts


@pytest.fixture
def count(text_counts):
    """The same without the fingerprint."""

    def count(*arguments, **named):
        counts = text_counts(*arguments, **named)
        assert len(counts.pop("text_sha256")) == 64
        return counts

    return count


def test_the_fingerprint_depends_on_the_documents_only(text_counts, monkeypatch):
    documents = [["a b .", "c d"], ["e f g"], ["a b ."]]
    expected = text_counts(documents)["text_sha256"]
    monkeypatch.setattr(stage, "CHARS_PER_TASK", 1)
    assert text_counts([*documents, ["\u00ad"]])["text_sha256"] == expected
    others = (
        [["a b ."], ["c d"], ["e f g"], ["a b ."]],
        [["c d", "a b ."], ["e f g"], ["a b ."]],
        [["e f g"], ["a b .", "c d"], ["a b ."]],
        [["a b .", "c d"], ["e f g"]],
        [["a b .", "c d"], ["e f g"], ["a b . ."]],
        [],
    )
    found = {text_counts(other)["text_sha256"] for other in others}
    assert len(found | {expected}) == len(others) + 1


def test_the_counts_are_those_of_a_count_by_hand(count):
    assert count([["a b .", "c d"], ["a b .", "c d"], ["e f g", "a b .", "h"]]) == {
        "characters": 5 + 3 + 5 + 3 + 5 + 5 + 1,
        "empty_sentences": 0,
        "duplicate_sentences": 3,
        "duplicate_documents": 1,
        "longest_document": 3,
    }


@pytest.mark.parametrize(
    ("documents", "num_sentences", "num_documents"),
    [
        ([["a b"], ["c d"]], 0, 0),
        ([["a b", "a b", "a b"]], 2, 0),
        ([["a b"], ["b a"]], 0, 0),
        ([["a"], ["a a"], ["a a a"]], 0, 0),
        # The same tokens, split differently.
        ([["a b", "c"], ["a", "b c"]], 0, 0),
        # The same sentences, in another order or number.
        ([["a", "b"], ["b", "a"]], 2, 0),
        ([["a", "b"], ["a"]], 1, 0),
        # What the model sees is the same, although the text is not.
        ([["A b."], ["a  b ."]], 1, 1),
        # Both are [UNK].
        ([["x"], ["y"]], 1, 1),
        # Cleaning removes U+00AD, a soft hyphen.
        ([["a", "\u00ad"], ["\u00ad"], ["a"], ["\u00ad"]], 1, 1),
    ],
)
def test_a_duplicate_has_the_ids_of_an_earlier_one(count, documents, num_sentences, num_documents):
    counts = count(documents)
    assert (counts["duplicate_sentences"], counts["duplicate_documents"]) == (
        num_sentences,
        num_documents,
    )


def test_no_text_has_no_duplicates(count):
    assert set(count([]).values()) == {0}


@pytest.fixture(scope="module")
def documents():
    """Short sentences of few words, so many sentences and some documents repeat."""
    rng = random.Random(3)
    drawn = [
        [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 6))]
        for _ in range(300)
    ]
    return [*drawn, *drawn[40:90]]


@pytest.mark.parametrize(("number", "chars"), [(1, 1), (1, 100), (1, 1 << 20), (2, 40), (3, 700)])
def test_the_counts_do_not_depend_on_workers_or_tasks(count, documents, monkeypatch, number, chars):
    monkeypatch.setattr(workers, "TASKS_ALONE", 0)
    monkeypatch.setattr(stage, "CHARS_PER_TASK", chars)
    sentences = [sentence for document in documents for sentence in document]
    assert count(documents, number) == {
        "characters": sum(len(sentence) for sentence in sentences),
        "empty_sentences": 0,
        "duplicate_sentences": len(sentences) - len(set(sentences)),
        "duplicate_documents": len(documents) - len(set(map(tuple, documents))),
        "longest_document": 6,
    }


def test_wide_ids_give_the_same_counts(count, documents):
    assert count(documents, dtype=INT32) == count(documents, dtype=UINT16)
