"""One example of a DATA folder."""

from typing import NamedTuple

import numpy as np

from bertpt.config.data import IGNORE_INDEX


class Example(NamedTuple):
    """One row: [CLS] A [SEP] B [SEP], its label, and its stored masks.

    Attributes:
        input_ids: uncorrupted. (length,)
        b_start: index of B's first token; the length if there is no B.
        next_sentence_label: 0 = B follows A, 1 = random, `IGNORE_INDEX` = no pair.
        masked_positions: positions to predict, ascending. (predictions,)
        masked_input_ids: what the model sees there. (predictions,)
    """

    input_ids: np.ndarray
    b_start: int
    next_sentence_label: int
    masked_positions: np.ndarray
    masked_input_ids: np.ndarray


_NOTHING = np.zeros(0, np.int64)
# One token and nothing to predict: it adds nothing to a loss, a gradient or a count. A process
# without examples runs it, so that all processes make the same number of passes.
FILLER = Example(np.zeros(1, np.int64), 1, IGNORE_INDEX, _NOTHING, _NOTHING)


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the dtype of token ids: uint16, or int32 for a vocabulary that needs it."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)
