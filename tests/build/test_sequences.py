"""Sentence pairs as model inputs: truncation, special tokens, counts of sentences."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.build.documents import StoredDocuments
from bertpt.build.pairs import IS_NEXT, RANDOM, Pair, PairMaker
from bertpt.build.sequences import build_sequences, count_pairs, num_heads, truncate_pair
from bertpt.config.data import IGNORE_INDEX
from bertpt.rng import generator
from bertpt.tokenizer.tokenizer import from_vocab

documents_of_lengths = st.lists(
    st.lists(st.integers(1, 30), min_size=1, max_size=9), min_size=2, max_size=5
).map(lambda lengths: StoredDocuments.from_lists([[[5] * n for n in one] for one in lengths]))


# ------------------------------------------------------------------------------------ truncation


def truncated(num_a, num_b, max_num_tokens, seed=0):
    """Truncate A, which starts at 0, and B, which starts at 1000."""
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
def test_truncation_gives_the_lengths_of_googles_loop(n, m, limit, seed):
    left = [n, m]
    while sum(left) > limit:
        left[0 if left[0] > left[1] else 1] -= 1
    a, b = truncated(n, m, limit, seed)
    assert [len(a), len(b)] == left
    assert 0 <= a.start < a.stop <= n
    assert 1000 <= b.start < b.stop <= 1000 + m


def test_front_and_back_are_cut_equally():
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


def test_cls_and_sep_are_added():
    vocabulary = from_vocab(
        ["[SEP]", *"abc", "[CLS]", "[PAD]", "[UNK]", "[MASK]"], lowercase=True, strip_accents=True
    )
    pairs = [Pair(0, 2, 5, 6, RANDOM), Pair(3, 4, 4, 4, IGNORE_INDEX), Pair(1, 2, 2, 5, IS_NEXT)]
    sequences = build_sequences(
        pairs, np.array([50, 51, 52, 53, 54, 55], dtype=np.uint16), vocabulary
    )
    assert sequences.input_ids.tolist() == [
        *(4, 50, 51, 0, 55, 0),
        *(4, 53, 0),
        *(4, 51, 0, 52, 53, 54, 0),
    ]
    assert sequences.input_ids.dtype == np.uint16
    assert sequences.num_tokens.tolist() == [6, 3, 7] == [pair.num_tokens for pair in pairs]
    assert sequences.b_starts.tolist() == [4, 3, 3]


@given(documents=documents_of_lengths, max_num_tokens=st.integers(2, 40), seed=st.integers(0))
def test_truncated_sentences_are_those_that_lost_tokens(documents, max_num_tokens, seed):
    maker = PairMaker(documents, max_num_tokens=max_num_tokens, short_seq_prob=0.3)
    rng = generator(seed, "test")
    untruncated = list(maker.pairs(0, rng))
    cut = [truncate_pair(pair, max_num_tokens, rng) for pair in untruncated]
    sentences = [
        set(range(start, end)) for start, end in pairwise(documents.sentence_ends.tolist())
    ]
    num_sentences = num_truncated = 0
    for long, pair in zip(untruncated, cut, strict=True):
        for slot in (0, 2):
            before, after = (set(range(one[slot], one[slot + 1])) for one in (long, pair))
            inside = [sentence for sentence in sentences if sentence <= before]
            num_sentences += len(inside)
            num_truncated += sum(not sentence <= after for sentence in inside)
    num_tokens = sum(len(range(p.a_start, p.a_end)) for p in untruncated)
    num_tokens += sum(len(range(p.b_start, p.b_end)) for p in untruncated)
    num_kept = sum(pair.num_tokens - 3 for pair in cut)
    assert count_pairs(untruncated, cut, documents.sentence_ends) == (
        num_sentences,
        num_truncated,
        num_tokens,
        num_tokens - num_kept,
    )
