import hashlib

import numpy as np

from bertpt.rng import below, generator, permutation, torch_seed


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
