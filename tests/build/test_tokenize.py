"""Counts of the text made while tokenizing it."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.build import tokenize as stage
from bertpt.build import workers
from bertpt.build.tokenize import tokenize
from bertpt.build.workers import Workers
from bertpt.corpus.corpus import Piece
from bertpt.progress import Progress
from bertpt.tokenizer.tokenizer import from_vocab

VOCAB = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), *"abcdefgh", "."]
NONE_REMOVED = {"removed_sentences": 0, "removed_documents": 0, "removed_tokens": 0}
UINT16, INT32 = np.dtype(np.uint16), np.dtype(np.int32)


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory):
    """Tokenize documents with the toy vocabulary; return them and the counts."""
    tmp_path = tmp_path_factory.mktemp("tokenized")
    tokenizer = from_vocab(VOCAB, lowercase=True, strip_accents=True)
    tokenizer.save(tmp_path / "tokenizer")

    def tokenized(documents, number=1, dtype=UINT16, dedup="none"):
        with Workers(number) as pool:
            return tokenize(
                [Piece(document, ends_document=True) for document in documents if document],
                tmp_path / "tokenizer",
                tmp_path,
                dtype,
                workers=pool,
                progress=Progress(quiet=True),
                dedup=dedup,
            )

    return tokenized


@pytest.fixture
def text_counts(tokenized):
    """The same, but only the counts."""
    return lambda *arguments, **named: tokenized(*arguments, **named)[1]


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
        **NONE_REMOVED,
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
        **NONE_REMOVED,
        "longest_document": 6,
    }


def test_wide_ids_give_the_same_counts(count, documents):
    assert count(documents, dtype=INT32) == count(documents, dtype=UINT16)


# ------------------------------------------------------------------------------------- duplicates

REPEATS = [["a", "b c"], ["b c"], ["d"], ["a", "b c"], ["d", "d e"], ["e", "e"]]


@pytest.mark.parametrize(
    ("dedup", "kept"),
    [
        ("none", REPEATS),
        ("sentences", [["a", "b c"], ["d"], ["d e"], ["e"]]),
        ("documents", [["a", "b c"], ["b c"], ["d"], ["d", "d e"], ["e", "e"]]),
    ],
)
def test_repeated_sentences_or_documents_are_left_out(tokenized, dedup, kept):
    stored, counts = tokenized(REPEATS, dedup=dedup)
    found = spelled(stored)
    assert found == spelled(tokenized(kept)[0])  # which takes the place of the files of `stored`
    for name in ("sentences", "documents"):
        of_all, of_kept = (
            sum(map(len, some)) if name == "sentences" else len(some) for some in (REPEATS, kept)
        )
        assert counts[f"removed_{name}"] == of_all - of_kept
    assert counts["removed_tokens"] == sum(
        len(sentence.split()) * sign
        for some, sign in ((REPEATS, 1), (kept, -1))
        for document in some
        for sentence in document
    )
    assert counts["duplicate_sentences"] == 5
    assert counts["duplicate_documents"] == 1


def spelled(stored):
    """All sentences as lists of ids."""
    return [
        [stored.tokens[start:end].tolist() for start, end in pairwise(stored.ends(number).tolist())]
        for number in range(len(stored))
    ]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a b", "c", "."]), max_size=4), max_size=9))
def test_deduplication_keeps_the_first_of_equal_ones_in_order(tokenized, documents):
    seen, by_sentence, by_document = set(), [], []
    for document in documents:
        left = [s for s in document if not (s in seen or seen.add(s))]
        by_sentence.append(left)
    for document in documents:
        if document not in by_document:
            by_document.append(document)
    for dedup, kept in (("sentences", by_sentence), ("documents", by_document)):
        found = spelled(tokenized(documents, dedup=dedup)[0])
        assert found == spelled(tokenized(kept)[0])
