"""Lists of different lengths that lie one after another in one array."""

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers from each start on, as many as its length says, one range after another.

    Args:
        starts: (lists,)
        lengths: (lists,)

    Returns:
        int64, (the sum of the lengths,).
    """
    ends = lengths.cumsum()
    total = ends[-1] if len(ends) else 0
    numbers: np.ndarray = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return numbers
