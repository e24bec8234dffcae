"""Sentence order and single segments: what is cut, what is swapped, and that nothing is lost."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.data.documents import Document
from bertpt.data.pairs import IS_NEXT, NO_PAIR, RANDOM, OrderMaker, SegmentMaker
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
    return [Document.of(sentences) for sentences in documents]


def tokens_of(document):
    return document.tokens(0, len(document)).tolist()


def all_pairs(kind, documents, *, max_num_tokens, short_seq_prob, seed=0):
    maker = kind(documents, max_num_tokens=max_num_tokens, short_seq_prob=short_seq_prob)
    return [
        list(maker.pairs(number, generator(seed, "test", number)))
        for number in range(len(documents))
    ]


@given(LENGTHS, st.integers(2, 30), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9))
def test_a_pair_of_order_is_consecutive_or_swapped(lengths, max_num_tokens, short, seed):
    documents = documents_of(lengths)
    made = all_pairs(
        OrderMaker, documents, max_num_tokens=max_num_tokens, short_seq_prob=short, seed=seed
    )
    for document, pairs in zip(documents, made, strict=True):
        for a, b, label in pairs:
            assert label in (IS_NEXT, RANDOM)
            assert 1 <= len(a) <= max_num_tokens - 1
            assert len(b) >= 1
            assert len(a) + len(b) <= max_num_tokens
            first, second = (a, b) if label == IS_NEXT else (b, a)
            assert first[-1] < second[0]
            assert set(first) | set(second) <= set(tokens_of(document))


@given(LENGTHS, st.integers(0, 9))
def test_pairs_of_order_use_every_token_where_there_is_room(lengths, seed):
    documents = documents_of(lengths)
    made = all_pairs(OrderMaker, documents, max_num_tokens=99, short_seq_prob=0.0, seed=seed)
    for document, pairs in zip(documents, made, strict=True):
        used = {token for a, b, _ in pairs for token in (*a.tolist(), *b.tolist())}
        assert used == (set(tokens_of(document)) if len(tokens_of(document)) > 1 else set())


def test_half_of_the_pairs_are_swapped():
    documents = documents_of([[5] * 8] * 600)
    made = all_pairs(OrderMaker, documents, max_num_tokens=12, short_seq_prob=0.1)
    labels = Counter(pair.next_sentence_label for pairs in made for pair in pairs)
    assert labels.total() > 1500
    assert labels[RANDOM] / labels.total() == pytest.approx(0.5, abs=0.03)


@given(LENGTHS, st.integers(2, 30), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9))
def test_the_segments_of_a_document_are_the_document(lengths, max_num_tokens, short, seed):
    documents = documents_of(lengths)
    made = all_pairs(
        SegmentMaker, documents, max_num_tokens=max_num_tokens, short_seq_prob=short, seed=seed
    )
    for document, pairs in zip(documents, made, strict=True):
        assert np.concatenate([pair.a for pair in pairs]).tolist() == tokens_of(document)
        assert all(len(pair.b) == 0 and pair.next_sentence_label == NO_PAIR for pair in pairs)
        assert all(1 <= len(pair.a) <= max_num_tokens for pair in pairs)
        if short == 0:
            assert all(len(pair.a) == max_num_tokens for pair in pairs[:-1])
