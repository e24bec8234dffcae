"""One example, many of them by column, and which of many to look at."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Example(NamedTuple):
    """One row: [CLS] A [SEP] B [SEP], its label, and its stored masks.

    Attributes:
        input_ids: uncorrupted. (length,)
        b_start: index of B's first token; the length where there is no B.
        next_sentence_label: 0 = B follows A, 1 = random, -100 = no pair.
        masked_positions: ascending positions to predict. (predictions,)
        masked_input_ids: what the model sees there. (predictions,)
    """

    input_ids: np.ndarray
    b_start: int
    next_sentence_label: int
    masked_positions: np.ndarray
    masked_input_ids: np.ndarray


_NOTHING = np.zeros(0, np.int64)
# One token and nothing to predict, so it adds nothing to a loss, a gradient or a count. A process
# that has no example runs this where all processes must make the same number of passes.
FILLER = Example(np.zeros(1, np.int64), 1, -100, _NOTHING, _NOTHING)


@dataclass(frozen=True)
class Rows:
    """Examples by column, as a shard has them: lists lie one after another, beside their lengths.

    Attributes:
        input_ids: of all examples, in the type of the shard.
        num_tokens: how many of them each example has. (examples,)
        b_starts: (examples,)
        next_sentence_labels: (examples,)
        masked_positions: of all examples.
        masked_input_ids: of all examples, in the type of the shard.
        num_masked: how many of both each example has. (examples,)
    """

    input_ids: np.ndarray
    num_tokens: np.ndarray
    b_starts: np.ndarray
    next_sentence_labels: np.ndarray
    masked_positions: np.ndarray
    masked_input_ids: np.ndarray
    num_masked: np.ndarray

    @classmethod
    def of_columns(cls, dtype: np.dtype, columns: Iterable[np.ndarray]) -> "Rows":
        """Makes them of all columns in order, ids in `dtype`, the others in a shard's types."""
        int32 = np.dtype(np.int32)
        kinds: tuple[np.dtype, ...] = (
            dtype,
            int32,
            int32,
            np.dtype(np.int8),
            np.dtype(np.uint16),
            dtype,
            int32,
        )
        return cls(*(c.astype(kind, copy=False) for c, kind in zip(columns, kinds, strict=True)))

    @classmethod
    def of(cls, examples: Sequence[Example], dtype: np.dtype) -> "Rows":
        """Makes them of examples, ids in `dtype`."""
        ids, starts, labels, positions, seen = (
            zip(*examples, strict=True) if examples else ((),) * 5
        )
        lengths, num_masked = (np.array([len(one) for one in some]) for some in (ids, positions))
        columns = (_flat(ids), lengths, np.array(starts), np.array(labels))
        return cls.of_columns(dtype, (*columns, _flat(positions), _flat(seen), num_masked))

    @classmethod
    def joined(cls, parts: "Sequence[Rows]") -> "Rows":
        """One after another; there must be one part at least."""
        return cls(*(np.concatenate(c) for c in zip(*map(_columns, parts), strict=True)))

    def __len__(self) -> int:
        return len(self.num_tokens)

    def part(self, start: int, stop: int) -> "Rows":
        """The examples from `start` to `stop` (exclusive)."""
        tokens = slice(int(self.num_tokens[:start].sum()), int(self.num_tokens[:stop].sum()))
        masked = slice(int(self.num_masked[:start].sum()), int(self.num_masked[:stop].sum()))
        rows = slice(start, stop)
        cuts = (tokens, rows, rows, rows, masked, masked, rows)
        return Rows(*(c[cut] for c, cut in zip(_columns(self), cuts, strict=True)))


def _columns(rows: Rows) -> tuple[np.ndarray, ...]:
    return tuple(getattr(rows, field) for field in Rows.__dataclass_fields__)


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if len(arrays) else np.zeros(0)


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest integer that holds every id: uint16, or int32 where the vocabulary needs it."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)
