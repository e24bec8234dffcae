import hashlib
from collections import Counter

import numpy as np
import pytest

from bertpt.rng import Order, below, generator, permutation, torch_seed


def test_equal_names_give_equal_draws_and_others_do_not():
    draws = {
        key: tuple(generator(*key).random(4))
        for key in [(0, "a"), (0, "b"), (1, "a"), (0, "a", 0), (0, "a", 1), (0, "a", 1, 0)]
    }
    assert len(set(draws.values())) == len(draws)
    assert all(tuple(generator(*key).random(4)) == drawn for key, drawn in draws.items())


def test_seeds_may_be_large():
    assert generator(2**70, "a").random() != generator(2**70 + 1, "a").random()


def test_draws_stay_the_same_from_version_to_version():
    """The bits of PCG64 on a SeedSequence, which numpy promises, not those of its methods."""
    entropy = int(hashlib.sha256(b"7 a 1").hexdigest()[:32], 16)
    raw = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(3) >> np.uint64(11)
    assert generator(7, "a", 1).random(3).tolist() == (raw / 2**53).tolist()


def test_a_permutation_holds_every_number_once():
    assert sorted(permutation(generator(0, "p"), 1000)) == list(range(1000))
    assert permutation(generator(0, "p"), 1000).tolist() != list(range(1000))


def test_below_is_even_over_its_range():
    rng = generator(0, "b")
    counts = np.bincount([below(rng, 5) for _ in range(10_000)], minlength=5)
    assert len(counts) == 5
    assert counts.min() > 1800


def test_torch_seeds_fit_63_bits_and_differ():
    seeds = {torch_seed(0, "dropout", step, micro) for step in range(50) for micro in range(4)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 64, 1000, 65_537])
def test_an_order_holds_every_number_once(length):
    order = Order(length, generator(0, "order"))[np.arange(length)]
    assert np.array_equal(np.sort(order), np.arange(length))


def test_every_order_of_four_is_as_likely_as_another():
    orders = Counter(
        tuple(Order(4, generator(seed, "order"))[np.arange(4)].tolist()) for seed in range(960)
    )
    assert len(orders) == 24
    chi_squared = sum((count - 40) ** 2 / 40 for count in orders.values())
    assert chi_squared < 50  # exceeded by chance once in a thousand


def test_neighbours_in_an_order_are_no_neighbours_before():
    """As many pairs as chance has follow each other: one on average, however long it is."""
    followers = [
        (np.diff(Order(500, generator(seed, "order"))[np.arange(500)]) == 1).sum()
        for seed in range(200)
    ]
    assert np.mean(followers) == pytest.approx(1, abs=0.3)


def test_a_slice_of_an_order_is_that_of_the_full_order_even_of_a_billion():
    order = Order(10**9, generator(3, "order"))
    places = np.array([0, 17, 999_999_999, 5])
    assert order[places].tolist() == [order[np.array([place])].item() for place in places]
    assert len(set(order[np.arange(10_000)].tolist())) == 10_000
    assert order[np.arange(10_000)].mean() == pytest.approx(5e8, rel=0.02)
