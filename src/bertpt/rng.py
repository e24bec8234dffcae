"""Choosing: random generators that depend only on (seed, what is drawn), and even spacing."""

import hashlib

import numpy as np


def generator(seed: int, what: str, *which: int) -> np.random.Generator:
    """Return the generator of one draw, such as `generator(seed, "masks", epoch, row)`.

    Equal arguments give equal numbers, in any process and whatever was drawn before. Call only its
    `random()`: numpy may change the other methods between versions.
    """
    entropy = _entropy(seed, what, which)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def torch_seed(seed: int, what: str, *which: int) -> int:
    """Return a 63-bit seed for torch's generators; equal arguments give equal seeds."""
    return _entropy(seed, what, which) >> 65


def _entropy(seed: int, what: str, which: tuple[int, ...]) -> int:
    """Hash the arguments to 128 bits, since numpy seeds alike with (1, 0) and (1,)."""
    name = " ".join([str(int(seed)), what, *(str(int(number)) for number in which)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big")


def evenly_spaced(total: int, number: int) -> list[int]:
    """Return `number` of the rows 0 to total - 1, evenly spaced; all if there are no more."""
    number = min(number, total)
    return [i * total // number for i in range(number)]


def permutation(rng: np.random.Generator, length: int) -> np.ndarray:
    """Return the numbers 0 to length - 1 in random order, int64."""
    return np.argsort(rng.random(length), kind="stable")


def below(rng: np.random.Generator, limit: int) -> int:
    """Draw an integer uniformly from 0 to limit - 1."""
    return int(rng.random() * limit)


class Order:
    """A random order of the numbers 0 to length - 1, with random access.

    The swap-or-not shuffle (Hoang, Morris and Rogaway, "An enciphering scheme based on a card
    shuffle", CRYPTO 2012): each round swaps, or does not swap, two positions that are symmetric
    about a random point. So a billion rows need no list.

    Args:
        length: the number of numbers; below 2^53.
        rng: determines the order.
    """

    NUM_ROUNDS = 90  # as for the 2^40 validators that Ethereum's consensus allows for

    def __init__(self, length: int, rng: np.random.Generator) -> None:
        self._length = length
        self._points = (rng.random(self.NUM_ROUNDS) * length).astype(np.int64).tolist()
        self._salts = (rng.random(self.NUM_ROUNDS) * (1 << 53)).astype(np.int64).tolist()

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers at some positions of the order, int64."""
        numbers = positions.astype(np.int64)
        for point, salt in zip(self._points, self._salts, strict=True):
            partners = point - numbers
            partners += (partners < 0) * self._length
            is_swapped = _bit(np.maximum(numbers, partners).astype(np.uint64) + np.uint64(salt))
            numbers = np.where(is_swapped, partners, numbers)
        return numbers


def _bit(numbers: np.ndarray) -> np.ndarray:
    """Return a pseudo-random bit for each number: the last one of SplitMix64's output."""
    numbers = (numbers ^ (numbers >> 30)) * 0xBF58476D1CE4E5B9
    numbers = (numbers ^ (numbers >> 27)) * 0x94D049BB133111EB
    bits: np.ndarray = (numbers ^ (numbers >> 31)) & 1 == 1
    return bits
