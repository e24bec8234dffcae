"""Files of vectors, .npy or .safetensors, written as the vectors come.

Neither numpy nor safetensors writes a file of unknown length, so the header is written twice: for
no rows at first, with room to grow, and over it at the end for as many as there were.
"""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bertpt import files
from bertpt.errors import OutputError, SettingError

SUFFIXES = (".npy", ".safetensors")
SAFETENSORS_HEADER = 248  # bytes after the 8 of its length, filled up with spaces


class VectorWriter:
    """Writes vectors one text after another; `vector_file` makes one."""

    def __init__(self, file: BinaryIO, suffix: str, *, width: int, by_token: bool) -> None:
        self._file, self._suffix, self._width = file, suffix, width
        self._lengths: list[int] | None = [] if by_token else None
        self._num_rows = 0
        self._size = file.write(self._header())

    def append(self, vectors: np.ndarray) -> None:
        """Adds a text's vector (width,), or its tokens' (L, width)."""
        rows = vectors.reshape(-1, self._width)
        self._file.write(rows.astype("<f4").tobytes())
        self._num_rows += len(rows)
        if self._lengths is not None:
            self._lengths.append(len(rows))

    def finish(self) -> None:
        """Writes what can only be known at the end."""
        if self._lengths is not None:
            self._file.write(np.array(self._lengths, dtype="<i4").tobytes())
        self._file.seek(0)
        size = self._file.write(self._header())
        assert size == self._size

    def _header(self) -> bytes:
        shape = (self._num_rows, self._width)
        if self._suffix == ".npy":
            header = io.BytesIO()
            described = {"descr": "<f4", "fortran_order": False, "shape": shape}
            # numpy leaves room for the first dimension to grow
            np.lib.format.write_array_header_1_0(header, described)
            return header.getvalue()
        end = 4 * self._num_rows * self._width
        tensors = {"embeddings": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}
        if self._lengths is not None:
            offsets = [end, end + 4 * len(self._lengths)]
            shape_of_lengths = [len(self._lengths)]
            tensors["lengths"] = {
                "dtype": "I32",
                "shape": shape_of_lengths,
                "data_offsets": offsets,
            }
        text = json.dumps(tensors, separators=(",", ":")).encode().ljust(SAFETENSORS_HEADER)
        return SAFETENSORS_HEADER.to_bytes(8, "little") + text


@contextmanager
def vector_file(
    path: Path, *, width: int, by_token: bool, overwrite: bool
) -> Iterator[VectorWriter]:
    """Opens a file of float32 vectors, which is complete when the block ends well, or not there.

    An .npy file holds an array (texts, width). A .safetensors file holds it as "embeddings"; with
    `by_token` that is (tokens, width), all texts one after another, and "lengths" (int32) says how
    many tokens each has.

    Args:
        path: its ending decides the format.
        width: of a vector.
        by_token: whether a text has one vector for each token.
        overwrite: replace a file of vectors that stands there.

    Raises:
        BertptError: see `require_place`.
    """
    require_place(path, by_token=by_token, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}: {error.filename}") from error
    with files.new_file(path) as temporary, temporary.open("wb") as file:
        writer = VectorWriter(file, path.suffix, width=width, by_token=by_token)
        yield writer
        writer.finish()


def require_place(path: Path, *, by_token: bool, overwrite: bool) -> None:
    """Checks, before any work is done, that a file of vectors may be written.

    Raises:
        SettingError: the ending is another, or the format cannot hold what it is to hold.
        OutputError: there is something that may not be replaced.
    """
    if path.suffix not in SUFFIXES:
        raise SettingError("out", f"{path} must end in {' or '.join(SUFFIXES)}")
    if by_token and path.suffix == ".npy":
        raise SettingError(
            "out", f"{path} can hold one vector a text only; for those of tokens use .safetensors"
        )
    if path.is_dir():
        raise OutputError(f"{path} is a folder; give a file")
    files.refuse_existing(path, overwrite=overwrite, is_ours=_is_vector_file)


def _is_vector_file(path: Path) -> bool:
    if path.suffix == ".npy":
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return False
        return array.dtype == "<f4" and array.ndim == 2
    with path.open("rb") as file:
        start = file.read(8 + SAFETENSORS_HEADER)
    return start.startswith(SAFETENSORS_HEADER.to_bytes(8, "little") + b'{"embeddings":')
