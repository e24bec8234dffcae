"""Lists of different lengths, concatenated in one array."""

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate the ranges from each start, of each length.

    Args:
        starts: (lists,)
        lengths: (lists,)

    Returns:
        int64, (sum of lengths,).
    """
    ends = lengths.cumsum()
    total = ends[-1] if len(ends) else 0
    numbers: np.ndarray = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return numbers
