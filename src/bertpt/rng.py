"""Random generators that depend on nothing but a seed and the name of what is drawn."""

import zlib

import numpy as np


def generator(seed: int, what: str, *which: int) -> np.random.Generator:
    """A generator for one draw, such as `generator(seed, "mask", epoch, row)`.

    Equal arguments give equal draws whatever was drawn before, in any process. Draw with
    `random()` only: numpy may change its other methods between versions, and its shuffles too.
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, what, which)))


def _sequence(seed: int, what: str, which: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence((seed, zlib.crc32(what.encode()), *which))


def permutation(rng: np.random.Generator, length: int) -> np.ndarray:
    """The numbers 0 to length - 1 in random order, int64."""
    return np.argsort(rng.random(length), kind="stable")


def below(rng: np.random.Generator, limit: int) -> int:
    """A whole number drawn evenly from 0 to limit - 1."""
    return int(rng.random() * limit)


def torch_seed(seed: int, what: str, *which: int) -> int:
    """A 63-bit seed for torch's generators; equal arguments give equal seeds."""
    return int(_sequence(seed, what, which).generate_state(1, np.uint64)[0] >> np.uint64(1))
