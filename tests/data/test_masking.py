import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.data.masking import Masking
from bertpt.rng import generator

PAD, UNK, CLS, SEP, MASK = range(5)


def masking(vocab_size=99, *, prob=0.15, cap=None):
    never_predicted = np.isin(np.arange(vocab_size), [PAD, CLS, SEP, MASK])
    return Masking(never_predicted, np.arange(5, vocab_size), MASK, prob, cap)


def example(a, b):
    return np.array([CLS, *a, SEP, *b, SEP])


ordinary = st.lists(st.integers(1, 98).filter(lambda i: i not in (CLS, SEP, MASK)), min_size=1)
examples = st.builds(example, ordinary, ordinary)


@given(
    ids=examples, prob=st.floats(0.001, 1), cap=st.none() | st.integers(1, 9), seed=st.integers(0)
)
def test_positions_are_ascending_and_never_on_cls_sep_or_pad(ids, prob, cap, seed):
    positions, seen = masking(prob=prob, cap=cap).draw(ids, generator(seed, "test"))
    assert len(positions) == len(seen) >= 1
    assert (np.diff(positions) > 0).all()
    assert not np.isin(ids[positions], [PAD, CLS, SEP]).any()


@given(ids=examples, seed=st.integers(0))
def test_what_the_model_sees_is_mask_an_ordinary_token_or_the_token_itself(ids, seed):
    positions, seen = masking().draw(ids, generator(seed, "test"))
    assert ((seen == MASK) | (seen >= 5) | (seen == ids[positions])).all()


@pytest.mark.parametrize(
    ("length", "prob", "cap", "expected"),
    [
        (13, 0.15, None, 2),  # 1.95
        (10, 0.15, None, 2),  # 1.5, to the even number as Python and Google round
        (5, 0.15, None, 1),  # 0.75
        (5, 0.01, None, 1),  # 0.05, and one at least
        (128, 0.15, None, 19),  # 19.2
        (128, 0.15, 7, 7),
        (13, 1.0, None, 10),  # all but [CLS] and two [SEP]
    ],
)
def test_the_number_to_predict_is_the_share_of_the_example(length, prob, cap, expected):
    ids = example(range(10, 10 + length - 4), [9])
    assert len(ids) == length
    positions, _ = masking(200, prob=prob, cap=cap).draw(ids, generator(0, "test"))
    assert len(positions) == expected


def test_four_fifths_become_mask_a_tenth_random_and_a_tenth_stays():
    ids = example([50] * 60, [60] * 60)
    drawn = [masking().draw(ids, generator(0, "test", i)) for i in range(1500)]
    seen = np.concatenate([seen for _, seen in drawn])
    true = np.concatenate([ids[positions] for positions, _ in drawn])
    assert len(seen) > 25_000
    stays = 0.1 + 0.1 / 94  # a random one of the 94 ordinary tokens may be the same
    assert (seen == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (seen == true).mean() == pytest.approx(stays, abs=0.008)
    assert ((seen != MASK) & (seen != true)).mean() == pytest.approx(0.2 - stays, abs=0.008)


def test_random_tokens_come_evenly_from_all_ordinary_ones():
    ids = example([7] * 60, [7] * 60)
    drawn = [masking(12).draw(ids, generator(1, "test", i))[1] for i in range(3000)]
    seen = np.concatenate(drawn)
    others = seen[(seen != MASK) & (seen != 7)]
    counts = np.bincount(others, minlength=12)[[5, 6, 8, 9, 10, 11]]
    assert counts.sum() == len(others)
    assert counts.min() > 0.8 * counts.mean()


def test_every_place_is_as_likely_as_another():
    ids = example(range(10, 20), range(20, 30))
    counts = np.zeros(len(ids))
    for i in range(4000):
        counts[masking().draw(ids, generator(2, "test", i))[0]] += 1
    chosen = counts[~np.isin(ids, [CLS, SEP])]
    assert chosen.min() > 0.85 * chosen.mean()
    assert counts[[0, 11, 22]].sum() == 0


def test_a_vocabulary_of_one_word_ends():
    positions, seen = masking(6).draw(example([5], [5]), generator(0, "test"))
    assert set(seen) <= {MASK, 5}
    assert len(positions) == 1


def test_an_unknown_token_may_be_predicted_but_never_replaces_one():
    ids = example([UNK], [UNK])
    for i in range(300):
        positions, seen = masking(8).draw(ids, generator(3, "test", i))
        assert ids[positions[0]] == UNK
        assert seen[0] in (MASK, 5, 6, 7, UNK)
