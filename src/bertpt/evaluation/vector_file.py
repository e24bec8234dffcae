"""Write vectors to .npy or .safetensors files, one at a time.

Neither numpy nor safetensors writes a file of unknown length. So the header is written first with
room to grow, and overwritten at the end, when the number of rows is known.
"""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bertpt import files
from bertpt.errors import OutputError, SettingError
from bertpt.outputs import refuse_existing

SUFFIXES = (".npy", ".safetensors")
SAFETENSORS_HEADER = 248  # bytes, padded with spaces; follows the 8 bytes of its length


class VectorWriter:
    """Writes the vectors of one text at a time; get one from `vector_file`."""

    def __init__(self, file: BinaryIO, suffix: str, *, width: int, by_token: bool) -> None:
        self._file, self._suffix, self._width = file, suffix, width
        self._lengths: list[int] | None = [] if by_token else None
        self._num_rows = 0
        self._size = file.write(self._header())

    def append(self, vectors: np.ndarray) -> None:
        """Write a text's vector, (width,), or its tokens' vectors, (L, width)."""
        rows = vectors.reshape(-1, self._width)
        self._file.write(rows.astype("<f4").tobytes())
        self._num_rows += len(rows)
        if self._lengths is not None:
            self._lengths.append(len(rows))

    def finish(self) -> None:
        """Write the lengths and the final header."""
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
            # numpy reserves room for the first dimension to grow.
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
    """Open a file of float32 vectors; it appears only if the block ends without an error.

    An .npy file is an array (texts, width). A .safetensors file has it as "embeddings"; with
    `by_token`, "embeddings" is (tokens, width), all texts concatenated, and "lengths" (int32) has
    the number of tokens of each text.

    Args:
        path: the file; its suffix determines the format.
        width: length of a vector.
        by_token: whether a text has a vector for each token.
        overwrite: replace an existing file of vectors.

    Raises:
        BertptError: see `require_writable`.
    """
    check = partial(require_writable, path, by_token=by_token, overwrite=overwrite)
    check()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}: {error.filename}") from error
    with files.new_file(path, recheck=check) as temporary, temporary.open("wb") as file:
        writer = VectorWriter(file, path.suffix, width=width, by_token=by_token)
        yield writer
        writer.finish()


def require_writable(path: Path, *, by_token: bool, overwrite: bool) -> None:
    """Check, before any work, that a file of vectors may be written.

    Raises:
        SettingError: the suffix is unknown, or the format cannot store vectors by token.
        OutputError: `path` exists and may not be replaced.
    """
    if path.suffix not in SUFFIXES:
        raise SettingError("out", f"{path} must end in {' or '.join(SUFFIXES)}")
    if by_token and path.suffix == ".npy":
        raise SettingError(
            "out", f"{path} cannot store vectors by token; use .safetensors instead of .npy"
        )
    if path.is_dir():
        raise OutputError(f"{path} is a folder; give a file")
    refuse_existing(path, overwrite=overwrite, is_ours=_is_vector_file)


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
