from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.build.documents import StoredDocuments
from bertpt.build.pairs import (
    IS_NEXT,
    NO_PAIR,
    RANDOM,
    Pair,
    PairMaker,
    count_sentences,
    join,
    num_heads,
    truncate_pair,
)
from bertpt.rng import generator
from bertpt.tokenizer import tokenizer


def corpus(*documents):
    """Documents given by the lengths of their sentences; every token in them is another number."""
    numbers = iter(range(5, 10**9))
    return StoredDocuments.of(
        [[[next(numbers) for _ in range(n)] for n in lengths] for lengths in documents]
    )


def pairs(documents, index=0, *, max_num_tokens=20, short_seq_prob=0.1, seed=0):
    """Pairs of a document cut to fit: the ids of A, those of B, and the label."""
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
def test_no_sentence_is_left_unused_where_nothing_is_cut(documents, seed):
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


def test_the_labels_are_even_wherever_documents_have_two_sentences():
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
    copies = StoredDocuments.of([[[5, 6], [7, 8, 9], [10]]] * 3)
    for seed in range(300):
        for a, b, label in pairs(copies, max_num_tokens=50, seed=seed):
            follows = b[0] == a[-1] + 1
            assert follows == (label == IS_NEXT)


def test_copies_of_one_sentence_give_no_pair_that_is_wrongly_labelled():
    same = StoredDocuments.of([[[5, 6]] * 3] * 2)
    labels = {label for seed in range(50) for _, _, label in pairs(same, seed=seed)}
    assert labels == {IS_NEXT}


def test_a_random_segment_is_about_as_long_as_a_true_one():
    """Otherwise the length alone would give the label away."""
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


# ------------------------------------------------------------------------------------ truncation


def truncated(num_a, num_b, max_num_tokens, seed=0):
    """A and B of numbers from 0 and from 1000 on, cut."""
    pair = Pair(0, num_a, 1000, 1000 + num_b, RANDOM)
    cut = truncate_pair(pair, max_num_tokens, generator(seed, "test"))
    assert cut.next_sentence_label == RANDOM
    return range(cut.a_start, cut.a_end), range(cut.b_start, cut.b_end)


def test_the_longer_segment_loses_tokens_first():
    a, b = truncated(30, 4, 10)
    assert len(a) == 6
    assert list(b) == [1000, 1001, 1002, 1003]


def test_equal_segments_lose_tokens_in_turn_b_first():
    """As google-research/bert: `trunc_tokens = tokens_a if len(a) > len(b) else tokens_b`."""
    a, b = truncated(10, 10, 17)
    assert (len(a), len(b)) == (9, 8)


@given(n=st.integers(1, 300), m=st.integers(1, 300), limit=st.integers(2, 620), seed=st.integers(0))
def test_truncation_leaves_the_lengths_of_googles_loop(n, m, limit, seed):
    left = [n, m]
    while sum(left) > limit:
        left[0 if left[0] > left[1] else 1] -= 1
    a, b = truncated(n, m, limit, seed)
    assert [len(a), len(b)] == left
    assert 0 <= a.start < a.stop <= n
    assert 1000 <= b.start < b.stop <= 1000 + m


def test_front_and_back_are_cut_alike():
    starts = [truncated(40, 4, 24, seed)[0].start for seed in range(500)]
    assert np.mean(starts) == pytest.approx(10, abs=0.4)  # half of the 20 tokens cut


@pytest.mark.parametrize("count", [0, 1, 2, 52, 53, 54, 106, 200])
def test_the_heads_of_fair_coins_have_their_mean_and_spread(count):
    rng = generator(0, "test", count)
    heads = np.array([num_heads(count, rng) for _ in range(3000)])
    assert 0 <= heads.min() <= heads.max() <= count
    spread = (count / 4) ** 0.5  # of a binomial distribution
    assert heads.mean() == pytest.approx(count / 2, abs=4 * spread / 3000**0.5)
    assert heads.std() == pytest.approx(spread, rel=0.08)


# ------------------------------------------------------------------------------- pairs to examples


def test_joining_puts_cls_and_sep_in_place():
    vocabulary = tokenizer.from_vocab(
        ["[SEP]", *"abc", "[CLS]", "[PAD]", "[UNK]", "[MASK]"], lowercase=True, strip_accents=True
    )
    pairs = [Pair(0, 2, 5, 6, RANDOM), Pair(3, 4, 4, 4, NO_PAIR), Pair(1, 2, 2, 5, IS_NEXT)]
    joined = join(pairs, np.array([50, 51, 52, 53, 54, 55], dtype=np.uint16), vocabulary)
    assert joined.input_ids.tolist() == [
        *(4, 50, 51, 0, 55, 0),
        *(4, 53, 0),
        *(4, 51, 0, 52, 53, 54, 0),
    ]
    assert joined.input_ids.dtype == np.uint16
    assert joined.num_tokens.tolist() == [6, 3, 7] == [pair.num_tokens for pair in pairs]
    assert joined.b_starts.tolist() == [4, 3, 3]


@given(documents=corpora, max_num_tokens=st.integers(2, 40), seed=st.integers(0))
def test_truncated_sentences_are_those_that_lack_tokens(documents, max_num_tokens, seed):
    maker = PairMaker(documents, max_num_tokens=max_num_tokens, short_seq_prob=0.3)
    rng = generator(seed, "test")
    wholes = list(maker.pairs(0, rng))
    cut = [truncate_pair(whole, max_num_tokens, rng) for whole in wholes]
    sentences = [
        set(range(start, end)) for start, end in pairwise(documents.sentence_ends.tolist())
    ]
    num_sentences = num_truncated = 0
    for whole, pair in zip(wholes, cut, strict=True):
        for slot in (0, 2):
            before, after = (set(range(one[slot], one[slot + 1])) for one in (whole, pair))
            inside = [sentence for sentence in sentences if sentence <= before]
            num_sentences += len(inside)
            num_truncated += sum(not sentence <= after for sentence in inside)
    assert count_sentences(wholes, cut, documents.sentence_ends) == (num_sentences, num_truncated)
