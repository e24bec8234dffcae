"""INPUT arguments -> files, and files -> streams of uncompressed bytes."""

import bz2
import glob
import gzip
import io
import lzma
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pyarrow as pa

from bertpt.data.hub import HubName, is_hub
from bertpt.errors import InputError

COMPRESSED_ENDINGS = ("", ".gz", ".bz2", ".xz", ".zst")
ROW_ENDINGS = tuple(f".jsonl{ending}" for ending in COMPRESSED_ENDINGS)
FOLDER_ENDINGS = (*(f".txt{ending}" for ending in COMPRESSED_ENDINGS), *ROW_ENDINGS, ".parquet")
# Standard input has no name that could say what is in it.
STANDARD_INPUT = {"-": "standard input", "jsonl:-": "standard input"}

OPENERS: dict[re.Pattern[bytes], Callable[[Any], Any]] = {
    re.compile(rb"\x1f\x8b"): gzip.open,
    re.compile(rb"BZh[1-9](1AY&SY|\x17\x72\x45\x38\x50\x90)"): bz2.open,  # the second: empty
    re.compile(rb"\xfd7zXZ\x00"): lzma.open,
    # A file may begin with a frame to be skipped, as those of pzstd do.
    re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"): (
        lambda stream: pa.CompressedInputStream(stream, "zstd")
    ),
}
# The magic number, and the first field of the page header or of the footer that follows it.
PARQUET = re.compile(rb"PAR1\x15")
# What looks like text by its name, or is given by hand, and is not.
FOREIGN = {
    re.compile(rb"PK\x03\x04"): "a zip archive; unpack it first",
    re.compile(rb"%PDF-"): "a PDF; extract its text first",
    re.compile(rb"\xff\xfe|\xfe\xff"): "UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)",
}
LONGEST_MAGIC = 16
DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowException)


# ------------------------------------------------------------------------------ arguments to files


def find_files(inputs: Sequence[str]) -> Iterator[str]:
    """The files that INPUT arguments stand for, standard input and `hf:` names as they are.

    Raises:
        InputError: one of them stands for nothing.
    """
    for name in inputs:
        if not name:
            raise InputError("no such file or folder: '' (is a variable unset?)")
        if is_hub(name):
            HubName.parse(name)
            yield name
        elif name in STANDARD_INPUT or Path(name).is_file():
            yield name
        elif Path(name).is_dir():
            yield from _in_folder(name)
        elif glob.has_magic(name):
            matches = sorted(m for m in glob.glob(name, recursive=True) if Path(m).is_file())
            if not matches:
                raise InputError(f"no file matches {name}")
            yield from matches
        elif Path(name).exists():  # a named pipe, /dev/stdin, <(process substitution)
            yield name
        else:
            raise InputError(f"no such file or folder: {name}")


def _in_folder(name: str) -> Iterator[str]:
    found = [
        str(path)
        for path in sorted(Path(name).rglob("*"))
        if path.name.endswith(FOLDER_ENDINGS)
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(name).parts)
        and not (path.parent / "tokenizer_config.json").exists()  # its vocab.txt is no text
    ]
    if not found:
        raise InputError(f"{name} holds no .txt, .jsonl (also .gz, .bz2, .xz, .zst) or .parquet")
    yield from found


def identity(file: str) -> object:
    """The same for two files that would give the same text."""
    if is_hub(file):
        return HubName.parse(file)
    return STANDARD_INPUT.get(file) or str(Path(file).resolve())


def spoken(file: str) -> str:
    """A file, for messages."""
    return STANDARD_INPUT.get(file, file)


# -------------------------------------------------------------------------------- files to streams


@contextmanager
def open_stream(file: str) -> Iterator[io.BufferedReader]:
    """Opens a file for reading, whatever it is compressed with, by its content.

    Raises:
        InputError: it is known to be no text.
    """
    if file in STANDARD_INPUT and sys.stdin is None:
        raise InputError("standard input is closed")
    with ExitStack() as closing:
        is_stdin = file in STANDARD_INPUT
        raw = sys.stdin.buffer if is_stdin else closing.enter_context(Path(file).open("rb"))
        stream = _buffered(raw)
        if opener := _opener(stream.peek()):
            stream = _buffered(closing.enter_context(opener(stream)))
        start = stream.peek()
        for magic, what in FOREIGN.items():
            if magic.match(start):
                raise InputError(f"{spoken(file)} is {what}")
        yield stream


def is_parquet(stream: io.BufferedReader) -> bool:
    """Whether a stream that nothing was read from yet begins as Parquet does."""
    return PARQUET.match(stream.peek()) is not None


@contextmanager
def open_seekable(file: str, stream: io.BufferedReader) -> Iterator[IO[bytes]]:
    """The Parquet that `open_stream` gave, which is read from its end: a copy if it must be."""
    if file not in STANDARD_INPUT and Path(file).is_file():
        with Path(file).open("rb") as handle:
            if PARQUET.match(handle.read(LONGEST_MAGIC)):  # and is not compressed
                yield handle
                return
    with TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
        yield copy


def is_json_lines(file: str) -> bool:
    """Whether a file's name says that it is JSONL, for any text could begin with a brace."""
    return file == "jsonl:-" or file.endswith(ROW_ENDINGS)


def is_plain(file: str) -> bool:
    """Whether what is read from a file is what lies on the disk."""
    if is_hub(file) or file in STANDARD_INPUT or not Path(file).is_file():
        return False  # a pipe must not be touched
    try:
        with Path(file).open("rb") as handle:
            start = handle.read(LONGEST_MAGIC)
    except OSError:  # reading will tell
        return False
    return not (_opener(start) or PARQUET.match(start))


def _opener(start: bytes) -> Callable[[Any], Any] | None:
    return next((opener for magic, opener in OPENERS.items() if magic.match(start)), None)


def _buffered(source: Any) -> io.BufferedReader:
    return io.BufferedReader(_Steady(source), buffer_size=1 << 16)


class _Steady(io.RawIOBase):
    """Hands a stream on in pieces that hold a magic number, though a pipe deliver it in drops.

    It does not close what it reads from, which may be standard input.
    """

    def __init__(self, source: Any) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        num_bytes = 0
        while num_bytes < LONGEST_MAGIC:
            piece = self._source.read(len(buffer) - num_bytes)
            if not piece:
                break
            buffer[num_bytes : num_bytes + len(piece)] = piece
            num_bytes += len(piece)
        return num_bytes
