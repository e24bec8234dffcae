"""Sentence pairs: what follows, what is random or swapped, and that nothing is lost."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.build.documents import StoredDocuments
from bertpt.build.pairs import IS_NEXT, RANDOM, OrderMaker, PairMaker, SegmentMaker
from bertpt.build.sequences import truncate_pair
from bertpt.config.data import IGNORE_INDEX
from bertpt.rng import generator


def corpus(*documents):
    """Documents given by the lengths of their sentences; all tokens are distinct."""
    numbers = iter(range(5, 10**9))
    return StoredDocuments.from_lists(
        [[[next(numbers) for _ in range(n)] for n in lengths] for lengths in documents]
    )


def pairs(documents, index=0, *, max_num_tokens=20, short_seq_prob=0.1, seed=0):
    """Truncated pairs of a document: the ids of A and of B, and the label."""
    maker = PairMaker(documents, max_num_tokens=max_num_tokens, short_seq_prob=short_seq_prob)
    rng = generator(seed, "test", index)
    return [
        segments(truncate_pair(pair, max_num_tokens, rng), documents)
        for pair in maker.pairs(index, rng)
    ]


def segments(pair, documents):
    a_start, a_end, b_start, b_end, label = pair
    return documents.tokens[a_start:a_end], documents.tokens[b_start:b_end], label


def numbers(documents, index):
    start, *_, end = documents.ends(index)
    return set(documents.tokens[start:end].tolist())


corpora = st.lists(
    st.lists(st.integers(1, 30), min_size=1, max_size=9), min_size=2, max_size=5
).map(lambda documents: corpus(*documents))


@given(
    documents=corpora, max_num_tokens=st.integers(2, 40), short=st.floats(0, 1), seed=st.integers(0)
)
def test_every_pair_keeps_the_rules(documents, max_num_tokens, short, seed):
    for index in range(len(documents)):
        own = numbers(documents, index)
        for a, b, label in pairs(
            documents, index, max_num_tokens=max_num_tokens, short_seq_prob=short, seed=seed
        ):
            assert len(a) >= 1
            assert len(b) >= 1
            assert len(a) + len(b) <= max_num_tokens
            assert (np.diff(a) == 1).all(), "A is consecutive text"
            assert (np.diff(b) == 1).all(), "B is consecutive text"
            assert set(a.tolist()) <= own
            if label == IS_NEXT:
                assert set(b.tolist()) <= own
                assert b[0] > a[-1]
            else:
                assert not set(b.tolist()) & own
                of = [i for i in range(len(documents)) if numbers(documents, i) & set(b.tolist())]
                assert len(of) == 1


@given(documents=corpora, seed=st.integers(0))
def test_every_sentence_is_used_if_nothing_is_truncated(documents, seed):
    used = set()
    for a, b, label in pairs(documents, max_num_tokens=10_000, seed=seed):
        used |= set(a.tolist()) | (set(b.tolist()) if label == IS_NEXT else set())
    assert used == numbers(documents, 0)


def test_a_true_pair_of_two_sentences_is_those_sentences():
    documents = corpus([3, 4], [2, 2])
    for seed in range(20):
        for a, b, label in pairs(documents, seed=seed):
            assert a.tolist() == [5, 6, 7]
            assert b.tolist() == ([8, 9, 10, 11] if label == IS_NEXT else [14, 15])


def test_sentences_are_taken_until_they_fill_the_example():
    # 5 + 5 + 5 + 5 fill 20 tokens, so the pairs of a pass without random ones are 4 sentences each
    documents = corpus([5] * 8, [5] * 8)
    for seed in range(50):
        found = pairs(documents, short_seq_prob=0, seed=seed)
        if all(label == IS_NEXT for _, _, label in found):
            assert [len(a) + len(b) for a, b, _ in found] == [20, 20]
            break
    else:
        pytest.fail("no pass without a random pair in 50")


def test_labels_are_balanced_if_documents_have_two_sentences():
    documents = corpus([7, 9], [3, 4, 5], [30, 2], [6] * 40, [1, 1], [15] * 7)
    labels = Counter(
        label
        for seed in range(600)
        for index in range(len(documents))
        for _, _, label in pairs(documents, index, seed=seed)
    )
    assert labels[RANDOM] / labels.total() == pytest.approx(0.5, abs=0.015)


def test_a_document_of_one_sentence_gives_random_pairs_only():
    documents = corpus([4], [3, 3])
    for seed in range(20):
        assert [label for _, _, label in pairs(documents, seed=seed)] == [RANDOM]


def test_the_true_continuation_in_a_copy_of_the_document_is_never_called_random():
    copies = StoredDocuments.from_lists([[[5, 6], [7, 8, 9], [10]]] * 3)
    for seed in range(300):
        for a, b, label in pairs(copies, max_num_tokens=50, seed=seed):
            follows = b[0] == a[-1] + 1
            assert follows == (label == IS_NEXT)


def test_copies_of_one_sentence_give_no_wrong_label():
    same = StoredDocuments.from_lists([[[5, 6]] * 3] * 2)
    labels = {label for seed in range(50) for _, _, label in pairs(same, seed=seed)}
    assert labels == {IS_NEXT}


def test_a_random_segment_is_about_as_long_as_a_true_one():
    """Otherwise the length would leak the label."""
    rng = np.random.default_rng(0)
    documents = corpus(*(rng.integers(3, 40, size=rng.integers(2, 30)) for _ in range(60)))
    lengths = {IS_NEXT: [], RANDOM: []}
    for seed in range(60):
        for index in range(len(documents)):
            for a, b, label in pairs(documents, index, max_num_tokens=125, seed=seed):
                lengths[label].append((len(a), len(b)))
    true, random = (np.array(lengths[label]).mean(axis=0) for label in (IS_NEXT, RANDOM))
    assert random == pytest.approx(true, rel=0.06)


def test_short_pairs_are_drawn_as_often_as_asked():
    documents = corpus([1] * 60_000, [1] * 3000)
    found = [len(a) + len(b) for a, b, _ in pairs(documents, max_num_tokens=40, short_seq_prob=0.3)]
    # Of the short targets, 2 to 40 tokens, one in 39 is 40 by chance.
    assert np.mean(np.array(found) < 40) == pytest.approx(0.3 * 38 / 39, abs=0.03)


def test_a_document_of_a_million_sentences_is_cut_in_linear_time():
    """A list copied for each pair would make this 30,000 times a million."""
    ends = np.arange(2_000_001)
    big = StoredDocuments(np.arange(5, 2_000_005), ends, np.array([0, 1_000_000, 2_000_000]))
    num_pairs = len(pairs(big, max_num_tokens=125))
    assert num_pairs > 8000


# -------------------------------------------------------------- sentence order, single segments

LENGTHS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4)


def documents_of(lengths):
    """Documents with distinct tokens."""
    token, documents = 5, []
    for sentences in lengths:
        documents.append([])
        for length in sentences:
            documents[-1].append(list(range(token, token + length)))
            token += length
    return StoredDocuments.from_lists(documents)


def tokens_of(documents, number):
    start, *_, end = documents.ends(number)
    return documents.tokens[start:end].tolist()


def all_pairs(kind, documents, *, max_num_tokens, short_seq_prob, seed=0):
    """For each document, its tokens and its truncated pairs: A, B and the label."""
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
def test_an_order_pair_is_consecutive_or_swapped(lengths, max_num_tokens, short, seed):
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
def test_order_pairs_use_every_token_if_they_fit(lengths, seed):
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


def test_swapping_does_not_change_the_lengths_of_an_order_pair():
    """Of two equally long segments, B loses the odd token."""
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
        assert all(len(b) == 0 and label == IGNORE_INDEX for _, b, label in pairs)
        assert all(1 <= len(a) <= max_num_tokens for a, _, _ in pairs)
        if short == 0:
            assert all(len(a) == max_num_tokens for a, _, _ in pairs[:-1])
