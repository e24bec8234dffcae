"""Many examples by column, as an Arrow shard stores them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from bertpt.data.example import Example


@dataclass(frozen=True)
class Columns:
    """Examples by column: lists are concatenated, and their lengths kept separately.

    Attributes:
        input_ids: of all examples, in the shard's dtype.
        num_tokens: length of each example. (examples,)
        b_starts: (examples,)
        next_sentence_labels: (examples,)
        masked_positions: of all examples.
        masked_input_ids: of all examples, in the shard's dtype.
        num_masked: number of masked positions in each example. (examples,)
    """

    input_ids: np.ndarray
    num_tokens: np.ndarray
    b_starts: np.ndarray
    next_sentence_labels: np.ndarray
    masked_positions: np.ndarray
    masked_input_ids: np.ndarray
    num_masked: np.ndarray

    @classmethod
    def from_arrays(cls, dtype: np.dtype, arrays: Iterable[np.ndarray]) -> "Columns":
        """Convert all columns, in order, to a shard's dtypes; `dtype` is that of ids."""
        dtypes: tuple[np.dtype, ...] = (
            dtype,
            np.dtype(np.int32),
            np.dtype(np.int32),
            np.dtype(np.int8),
            np.dtype(np.uint16),
            dtype,
            np.dtype(np.int32),
        )
        return cls(*(a.astype(to, copy=False) for a, to in zip(arrays, dtypes, strict=True)))

    @classmethod
    def from_examples(cls, examples: Sequence[Example], dtype: np.dtype) -> "Columns":
        """Convert examples, perhaps none; `dtype` is that of ids."""
        ids, starts, labels, positions, seen = (
            zip(*examples, strict=True) if examples else ((),) * 5
        )
        num_tokens, num_masked = (np.array([len(one) for one in some]) for some in (ids, positions))
        head = (_concatenate(ids), num_tokens, np.array(starts), np.array(labels))
        return cls.from_arrays(
            dtype, (*head, _concatenate(positions), _concatenate(seen), num_masked)
        )

    @classmethod
    def concatenate(cls, parts: "Sequence[Columns]") -> "Columns":
        """Concatenate at least one part."""
        return cls(*map(np.concatenate, zip(*map(_arrays, parts), strict=True)))

    def __len__(self) -> int:
        return len(self.num_tokens)

    def slice(self, start: int, stop: int) -> "Columns":
        """Return the examples from `start` to `stop` (exclusive)."""
        tokens = slice(int(self.num_tokens[:start].sum()), int(self.num_tokens[:stop].sum()))
        masked = slice(int(self.num_masked[:start].sum()), int(self.num_masked[:stop].sum()))
        rows = slice(start, stop)
        slices = (tokens, rows, rows, rows, masked, masked, rows)
        return Columns(*(a[part] for a, part in zip(_arrays(self), slices, strict=True)))


def _arrays(columns: Columns) -> tuple[np.ndarray, ...]:
    return tuple(getattr(columns, field.name) for field in fields(columns))


def _concatenate(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if len(arrays) else np.zeros(0)
