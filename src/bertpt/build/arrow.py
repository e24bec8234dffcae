"""Arrays from numpy to Arrow and back.

pyarrow's own functions import pandas, which takes each process a third of a second.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def to_arrow(values: np.ndarray) -> pa.Array:
    """Return the same integers, not copied."""
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def to_numpy(values: pa.Array) -> np.ndarray:
    """Return the same integers, without nulls, as a read-only view."""
    dtype = np.dtype(str(values.type))
    start = values.offset * dtype.itemsize
    return np.frombuffer(values.buffers()[1], dtype, count=len(values), offset=start)


def to_lists(values: np.ndarray, lengths: np.ndarray) -> pa.ListArray:
    """Return the lists concatenated in `values`, at most 2^31 - 1 integers."""
    return pa.ListArray.from_arrays(to_arrow(_ends(lengths)), to_arrow(values))


def to_strings(texts: Sequence[str]) -> pa.StringArray:
    """Return the same texts, at most 2^31 - 1 bytes."""
    encoded = [text.encode() for text in texts]
    ends = _ends(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    )


def _ends(lengths: np.ndarray) -> np.ndarray:
    """Return 0, then the end of each list."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    return ends
