"""Random generators that depend on nothing but a seed and the name of what is drawn."""

import hashlib

import numpy as np


def generator(seed: int, what: str, *which: int) -> np.random.Generator:
    """A generator for one draw, such as `generator(seed, "masks", epoch, row)`.

    Equal arguments give equal draws whatever was drawn before, in any process. Draw with
    `random()` only: numpy may change its other methods between versions, and its shuffles too.
    """
    entropy = _entropy(seed, what, which)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def torch_seed(seed: int, what: str, *which: int) -> int:
    """A 63-bit seed for torch's generators; equal arguments give equal seeds."""
    return _entropy(seed, what, which) >> 65


def _entropy(seed: int, what: str, which: tuple[int, ...]) -> int:
    """128 bits from the words; a hash, since numpy takes (1, 0) and (1,) for the same seed."""
    name = " ".join([str(int(seed)), what, *(str(int(number)) for number in which)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big")


def permutation(rng: np.random.Generator, length: int) -> np.ndarray:
    """The numbers 0 to length - 1 in random order, int64."""
    return np.argsort(rng.random(length), kind="stable")


def below(rng: np.random.Generator, limit: int) -> int:
    """A whole number drawn evenly from 0 to limit - 1."""
    return int(rng.random() * limit)
