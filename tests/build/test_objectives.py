"""Sentence order and single segments: what is cut, what is swapped, and that nothing is lost."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.build.documents import StoredDocuments
from bertpt.build.pairs import (
    IS_NEXT,
    NO_PAIR,
    RANDOM,
    OrderMaker,
    SegmentMaker,
    truncate_pair,
)
from bertpt.rng import generator

LENGTHS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4)


def documents_of(lengths):
    """Documents whose tokens are all different, so that every piece can be found again."""
    token, documents = 5, []
    for sentences in lengths:
        documents.append([])
        for length in sentences:
            documents[-1].append(list(range(token, token + length)))
            token += length
    return StoredDocuments.of(documents)


def tokens_of(documents, number):
    start, *_, end = documents.ends(number)
    return documents.tokens[start:end].tolist()


def all_pairs(kind, documents, *, max_num_tokens, short_seq_prob, seed=0):
    """For each document, its own tokens and its pairs, cut to fit: A, B and the label."""
    maker = kind(documents, max_num_tokens=max_num_tokens, short_seq_prob=short_seq_prob)
    made = []
    for number in range(len(documents)):
        rng = generator(seed, "test", number)
        cut = [truncate_pair(pair, max_num_tokens, rng) for pair in maker.pairs(number, rng)]
        segments = [
            (
                documents.tokens[pair.a_start : pair.a_end],
                documents.tokens[pair.b_start : pair.b_end],
            )
            for pair in cut
        ]
        labels = [pair.next_sentence_label for pair in cut]
        pairs = [(a, b, label) for (a, b), label in zip(segments, labels, strict=True)]
        made.append((tokens_of(documents, number), pairs))
    return made


@given(LENGTHS, st.integers(2, 30), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9))
def test_a_pair_of_order_is_consecutive_or_swapped(lengths, max_num_tokens, short, seed):
    documents = documents_of(lengths)
    made = all_pairs(
        OrderMaker, documents, max_num_tokens=max_num_tokens, short_seq_prob=short, seed=seed
    )
    for own, pairs in made:
        for a, b, label in pairs:
            assert label in (IS_NEXT, RANDOM)
            assert 1 <= len(a) <= max_num_tokens - 1
            assert len(b) >= 1
            assert len(a) + len(b) <= max_num_tokens
            first, second = (a, b) if label == IS_NEXT else (b, a)
            assert first[-1] < second[0]
            assert set(first) | set(second) <= set(own)


@given(LENGTHS, st.integers(0, 9))
def test_pairs_of_order_use_every_token_where_there_is_room(lengths, seed):
    documents = documents_of(lengths)
    made = all_pairs(OrderMaker, documents, max_num_tokens=99, short_seq_prob=0.0, seed=seed)
    for own, pairs in made:
        used = {token for a, b, _ in pairs for token in (*a.tolist(), *b.tolist())}
        assert used == (set(own) if len(own) > 1 else set())


def test_half_of_the_pairs_are_swapped():
    documents = documents_of([[5] * 8] * 600)
    made = all_pairs(OrderMaker, documents, max_num_tokens=12, short_seq_prob=0.1)
    labels = Counter(label for _, pairs in made for _, _, label in pairs)
    assert labels.total() > 1500
    assert labels[RANDOM] / labels.total() == pytest.approx(0.5, abs=0.03)


def test_the_lengths_of_a_pair_of_order_are_the_same_swapped_or_not():
    """Of two segments as long as each other, the odd token is cut from B, whichever B is."""
    documents = documents_of([[7] * 2] * 400)
    made = all_pairs(OrderMaker, documents, max_num_tokens=13, short_seq_prob=0.0)
    lengths = {(label, len(a), len(b)) for _, pairs in made for a, b, label in pairs}
    assert lengths == {(IS_NEXT, 7, 6), (RANDOM, 7, 6)}


@given(LENGTHS, st.integers(2, 30), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9))
def test_the_segments_of_a_document_are_the_document(lengths, max_num_tokens, short, seed):
    documents = documents_of(lengths)
    made = all_pairs(
        SegmentMaker, documents, max_num_tokens=max_num_tokens, short_seq_prob=short, seed=seed
    )
    for own, pairs in made:
        assert np.concatenate([a for a, _, _ in pairs]).tolist() == own
        assert all(len(b) == 0 and label == NO_PAIR for _, b, label in pairs)
        assert all(1 <= len(a) <= max_num_tokens for a, _, _ in pairs)
        if short == 0:
            assert all(len(a) == max_num_tokens for a, _, _ in pairs[:-1])
