"""Examples -> batches of tensors, each a pure function of the seed and the step.

Dimensions: B examples, L the longest of them in tokens, P predictions in the whole batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bertpt.data.example import FILLER, Example
from bertpt.rng import Order, evenly_spaced, generator

if TYPE_CHECKING:  # who makes batches of other examples need not wait for `datasets`
    from bertpt.data.dataset import Examples
    from bertpt.data.masking import Masking


STEPS_AT_ONCE = 64


@dataclass(frozen=True)
class Batch:
    """A batch of examples, all int64.

    Attributes:
        input_ids: corrupted, padded at the end. (B, L)
        token_type_ids: 0 for [CLS] A [SEP], 1 for B [SEP]. (B, L)
        lengths: tokens of each example, padding left out. (B,)
        masked_positions: places to predict, as indices into the flattened (B * L). (P,)
        masked_lm_labels: the true ids there. (P,)
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
        """What `BertForPreTraining.forward` takes, in its order."""
        return self.input_ids, self.token_type_ids, self.lengths, self.masked_positions

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(*(getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)))


def collate(examples: Sequence[Example], *, pad_id: int, length: int | None = None) -> Batch:
    """Pads examples to `length` or else the longest of them, and puts their masks in."""
    lengths = np.array([len(example.input_ids) for example in examples])
    shape = (len(examples), length or lengths.max())
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    token_type_ids = np.zeros(shape, dtype=np.int64)
    places, labels = [], []
    for row, example in enumerate(examples):
        input_ids[row, : lengths[row]] = example.input_ids
        input_ids[row, example.masked_positions] = example.masked_input_ids
        token_type_ids[row, example.b_start : lengths[row]] = 1
        places.append(row * shape[1] + example.masked_positions)
        labels.append(example.input_ids[example.masked_positions])
    arrays = (
        input_ids,
        token_type_ids,
        lengths,
        np.concatenate(places),
        np.concatenate(labels),
        np.array([example.next_sentence_label for example in examples]),
    )
    return Batch(*(torch.from_numpy(array.astype(np.int64, copy=False)) for array in arrays))


class TrainingExamples:
    """What each optimizer step trains on, as a function of the seed and the step alone.

    An epoch visits every example once, in an order of its own; its last step may be smaller.

    Args:
        examples: the training split.
        batch_size: examples in a step.
        seed: of the order and the masks.
        masking: draws fresh masks each epoch; `None` keeps the stored ones.
        rank: which of the processes that train together this one is.
        num_ranks: how many they are; they share the examples of each step.
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
        self._drawn: tuple[int, int] | None = None  # epoch and block of the rows in memory
        self._rows = np.zeros(0, dtype=np.int64)

    def rows(self, step: int) -> np.ndarray:
        """The rows of a step (counted from 0), those of all ranks."""
        epoch, position = divmod(step, self.steps_per_epoch)
        block, number = divmod(position, STEPS_AT_ONCE)
        if self._drawn != (epoch, block):
            self._drawn, self._rows = (epoch, block), self._draw_rows(epoch, block)
        start = number * self._batch_size
        return self._rows[start : start + self._batch_size]

    def _draw_rows(self, epoch: int, block: int) -> np.ndarray:
        """The rows of some steps of an epoch, since drawing takes as long for one."""
        num_rows = len(self._examples)
        first = block * STEPS_AT_ONCE * self._batch_size
        last = min(first + STEPS_AT_ONCE * self._batch_size, num_rows)
        order = Order(num_rows, generator(self._seed, "order", epoch))
        return order[np.arange(first, last)]

    def __getitem__(self, step: int) -> list[Example]:
        """This rank's examples of a step (counted from 0), masks drawn; perhaps none."""
        rows = np.array_split(self.rows(step), self._num_ranks)[self._rank]
        examples = self._examples.take(rows) if len(rows) else []
        if self._masking is None or not examples:
            return examples
        epoch = step // self.steps_per_epoch
        draws = [
            self._masking.random_numbers(
                len(example.input_ids), generator(self._seed, "masks", epoch, int(row))
            )
            for row, example in zip(rows, examples, strict=True)
        ]
        return _remasked(examples, self._masking, draws)


def _remasked(
    examples: Sequence[Example], masking: "Masking", draws: Sequence[np.ndarray]
) -> list[Example]:
    """The examples with other masks: those that some draws of `masking.random_numbers` give."""
    num_tokens = np.array([len(example.input_ids) for example in examples])
    ids = np.concatenate([example.input_ids for example in examples])
    masks = masking.apply(ids, num_tokens, draws)
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
    """Batches with the stored masks: all examples, or `at_most` of them, evenly spaced.

    Of several ranks, each gets a batch in turn, and all get as many: a last one may hold `FILLER`.
    """
    rows = evenly_spaced(len(examples), at_most or len(examples))
    for first in range(0, len(rows), batch_size * num_ranks):
        start = first + rank * batch_size
        own = rows[start : start + batch_size]
        yield collate(examples.take(own) if own else [FILLER], pad_id=pad_id)
