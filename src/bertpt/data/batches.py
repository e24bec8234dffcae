"""Batches of examples, as a pure function of the seed and the step.

Dimensions: B examples, L tokens in the longest of them, P predictions in the batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bertpt.data.example import FILLER, Example
from bertpt.rng import Order, evenly_spaced, generator

if TYPE_CHECKING:  # avoids importing `datasets`
    from bertpt.data.dataset import Examples
    from bertpt.data.masking import Masking

STEPS_PER_BLOCK = 64  # steps whose rows are drawn together


@dataclass(frozen=True)
class Batch:
    """A batch of examples, all int64.

    Attributes:
        input_ids: masked, padded at the end. (B, L)
        token_type_ids: 0 for [CLS] A [SEP], 1 for B [SEP]. (B, L)
        lengths: tokens in each example, without padding. (B,)
        masked_positions: positions to predict, as indices into the flattened (B * L). (P,)
        masked_lm_labels: the original ids there. (P,)
        next_sentence_labels: 0 = B follows A, 1 = random, -100 = no pair. (B,)
    """

    input_ids: Tensor
    token_type_ids: Tensor
    lengths: Tensor
    masked_positions: Tensor
    masked_lm_labels: Tensor
    next_sentence_labels: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of `BertForPreTraining.forward`."""
        return self.input_ids, self.token_type_ids, self.lengths, self.masked_positions

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device."""
        return Batch(*(getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)))


def collate(examples: Sequence[Example], *, pad_id: int, length: int | None = None) -> Batch:
    """Mask examples and pad them to `length`, or to the longest of them."""
    lengths = np.array([len(example.input_ids) for example in examples])
    shape = (len(examples), length or lengths.max())
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    token_type_ids = np.zeros(shape, dtype=np.int64)
    positions, labels = [], []
    for row, example in enumerate(examples):
        input_ids[row, : lengths[row]] = example.input_ids
        input_ids[row, example.masked_positions] = example.masked_input_ids
        token_type_ids[row, example.b_start : lengths[row]] = 1
        positions.append(row * shape[1] + example.masked_positions)
        labels.append(example.input_ids[example.masked_positions])
    arrays = (
        input_ids,
        token_type_ids,
        lengths,
        np.concatenate(positions),
        np.concatenate(labels),
        np.array([example.next_sentence_label for example in examples]),
    )
    return Batch(*(torch.from_numpy(array.astype(np.int64, copy=False)) for array in arrays))


class TrainingExamples:
    """The examples of each optimizer step, as a function of only the seed and the step.

    Each epoch visits every example once, in a new order; its last step may be smaller.

    Args:
        examples: the training split.
        batch_size: examples per step, over all ranks.
        seed: determines order and masks.
        masking: draws new masks each epoch; `None` uses the stored ones.
        rank: of this process.
        num_ranks: number of processes that share each step.
    """

    def __init__(
        self,
        examples: "Examples",
        *,
        batch_size: int,
        seed: int,
        masking: "Masking | None",
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        self._examples = examples
        self._batch_size = batch_size
        self._seed = seed
        self._masking = masking
        self._rank, self._num_ranks = rank, num_ranks
        self.steps_per_epoch = -(-len(examples) // batch_size)
        self._block: tuple[int, int] | None = None  # epoch and number of the block in `_rows`
        self._rows = np.zeros(0, dtype=np.int64)

    def rows(self, step: int) -> np.ndarray:
        """Return the rows of a step (counted from 0), for all ranks."""
        epoch, position = divmod(step, self.steps_per_epoch)
        block, number = divmod(position, STEPS_PER_BLOCK)
        if self._block != (epoch, block):
            self._block, self._rows = (epoch, block), self._draw_rows(epoch, block)
        start = number * self._batch_size
        return self._rows[start : start + self._batch_size]

    def _draw_rows(self, epoch: int, block: int) -> np.ndarray:
        """Draw the rows of a block of steps, which takes as long as drawing those of one step."""
        num_rows = len(self._examples)
        first = block * STEPS_PER_BLOCK * self._batch_size
        last = min(first + STEPS_PER_BLOCK * self._batch_size, num_rows)
        order = Order(num_rows, generator(self._seed, "order", epoch))
        return order[np.arange(first, last)]

    def __getitem__(self, step: int) -> list[Example]:
        """Return this rank's examples of a step (counted from 0); there may be none."""
        rows = np.array_split(self.rows(step), self._num_ranks)[self._rank]
        examples = self._examples.take(rows) if len(rows) else []
        if self._masking is None or not examples:
            return examples
        epoch = step // self.steps_per_epoch
        random_numbers = [
            self._masking.random_numbers(
                len(example.input_ids), generator(self._seed, "masks", epoch, int(row))
            )
            for row, example in zip(rows, examples, strict=True)
        ]
        return _remask(examples, self._masking, random_numbers)


def _remask(
    examples: Sequence[Example], masking: "Masking", random_numbers: Sequence[np.ndarray]
) -> list[Example]:
    num_tokens = np.array([len(example.input_ids) for example in examples])
    ids = np.concatenate([example.input_ids for example in examples])
    masks = masking.apply(ids, num_tokens, random_numbers)
    stops = masks.num_masked.cumsum()[:-1]
    return [
        example._replace(masked_positions=positions, masked_input_ids=seen)
        for example, positions, seen in zip(
            examples,
            np.split(masks.positions, stops),
            np.split(masks.input_ids, stops),
            strict=True,
        )
    ]


def in_order(
    examples: "Examples",
    *,
    batch_size: int,
    pad_id: int,
    at_most: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
) -> Iterator[Batch]:
    """Yield batches with the stored masks: all examples, or `at_most` of them, evenly spaced.

    With several ranks, batches are dealt in turn; a rank that would get one fewer gets `FILLER`.
    """
    rows = evenly_spaced(len(examples), at_most or len(examples))
    for first in range(0, len(rows), batch_size * num_ranks):
        start = first + rank * batch_size
        own = rows[start : start + batch_size]
        yield collate(examples.take(own) if own else [FILLER], pad_id=pad_id)
