"""One example, and which of many to look at."""

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


def evenly_spaced(total: int, number: int) -> list[int]:
    """`number` rows of `total`, or all where there are no more, evenly spaced."""
    number = min(number, total)
    return [i * total // number for i in range(number)]
