"""Find the files that INPUT arguments name, and open them as uncompressed streams."""

import bz2
import glob
import gzip
import io
import lzma
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from bertpt import files
from bertpt.corpus.hub import HubName, is_hub
from bertpt.errors import InputError, OutputError

COMPRESSED_ENDINGS = ("", ".gz", ".bz2", ".xz", ".zst")
ROW_ENDINGS = tuple(f".jsonl{ending}" for ending in COMPRESSED_ENDINGS)
FOLDER_ENDINGS = (*(f".txt{ending}" for ending in COMPRESSED_ENDINGS), *ROW_ENDINGS, ".parquet")
STANDARD_INPUT = {"-": "standard input", "jsonl:-": "standard input"}

OPENERS: dict[re.Pattern[bytes], Callable[[Any], Any]] = {
    re.compile(rb"\x1f\x8b"): gzip.open,
    re.compile(
        rb"BZh[1-9](1AY&SY|\x17\x72\x45\x38\x50\x90)"
    ): bz2.open,  # the latter is an empty file
    re.compile(rb"\xfd7zXZ\x00"): lzma.open,
    # The file may start with a skippable frame, as pzstd writes.
    re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"): (
        lambda stream: pa.CompressedInputStream(stream, "zstd")
    ),
}
# The magic number and the first field of the header after it; "PAR1" may be a word.
PARQUET = re.compile(rb"PAR1\x15")
# Files that are not text.
FOREIGN = {
    re.compile(rb"PK\x03\x04"): "a zip archive; unpack it first",
    re.compile(rb"%PDF-"): "a PDF; extract its text first",
    re.compile(rb"\xff\xfe|\xfe\xff"): "UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)",
}
LONGEST_MAGIC = 16
DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowException)


# ------------------------------------------------------------------------------ arguments to files


def find_files(inputs: Sequence[str]) -> Iterator[str]:
    """Yield the files that INPUT arguments name; standard input and `hf:` names stay as they are.

    Raises:
        InputError: an argument matches no file.
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
        and not (path.parent / "tokenizer_config.json").exists()  # its vocab.txt is a vocabulary
    ]
    if not found:
        raise InputError(f"{name} contains no .txt, .jsonl (also .gz, .bz2, .xz, .zst) or .parquet")
    yield from found


def identity(file: str) -> object:
    """Return a key that is equal for two names of the same file."""
    if is_hub(file):
        return HubName.parse(file)
    return STANDARD_INPUT.get(file) or str(Path(file).resolve())


def display_name(file: str) -> str:
    """Return the name of a file for messages."""
    return STANDARD_INPUT.get(file, file)


# -------------------------------------------------------------------------------- files to streams


@contextmanager
def open_stream(file: str) -> Iterator["Stream"]:
    """Open a file and uncompress it; its content, not its name, decides how.

    Raises:
        InputError: the content is not text.
    """
    if file in STANDARD_INPUT and sys.stdin is None:
        raise InputError("standard input is closed")
    with ExitStack() as closing:
        is_stdin = file in STANDARD_INPUT
        raw = sys.stdin.buffer if is_stdin else closing.enter_context(Path(file).open("rb"))
        stream = Stream(raw)
        if opener := _opener(stream.peek()):
            stream = Stream(closing.enter_context(opener(stream)), unpacked_from=stream)
        start = stream.peek()
        for magic, what in FOREIGN.items():
            if magic.match(start):
                raise InputError(f"{display_name(file)} is {what}")
        yield stream


def is_parquet(stream: "Stream") -> bool:
    """Whether an unread stream starts like Parquet."""
    return PARQUET.match(stream.peek()) is not None


@contextmanager
def open_seekable(file: str, stream: "Stream") -> Iterator[IO[bytes]]:
    """Open an unread Parquet stream for random access, making a temporary copy if needed.

    Raises:
        OutputError: the copy cannot be written.
    """
    if file not in STANDARD_INPUT and Path(file).is_file():
        with Path(file).open("rb") as handle:
            if PARQUET.match(handle.read(LONGEST_MAGIC)):  # not compressed
                yield handle
                return
    copy = tempfile.TemporaryFile()  # noqa: SIM115  closed below
    try:
        while piece := stream.read(1 << 20):
            try:
                copy.write(piece)
                copy.flush()
            except OSError as error:
                place, problem = tempfile.gettempdir(), files.problem(error)
                raise OutputError(
                    f"cannot copy {display_name(file)} to {place}: {problem}; "
                    "set TMPDIR to another folder"
                ) from error
        yield copy
    finally:
        with suppress(OSError):  # closing flushes what could not be written
            copy.close()


def is_json_lines(file: str) -> bool:
    """Whether a file's name says that it is JSONL; any text may start with a brace."""
    return file == "jsonl:-" or file.endswith(ROW_ENDINGS)


def size_on_disk(file: str) -> int | None:
    """Return the size of a regular file in bytes, or `None` for anything else."""
    if is_hub(file) or file in STANDARD_INPUT or not Path(file).is_file():
        return None
    return Path(file).stat().st_size


def is_packed(file: str) -> bool:
    """Whether a file is compressed or Parquet, so its text is larger than the file."""
    try:
        with Path(file).open("rb") as handle:
            start = handle.read(LONGEST_MAGIC)
    except OSError:  # reported when it is read
        return False
    return bool(_opener(start) or PARQUET.match(start))


def _opener(start: bytes) -> Callable[[Any], Any] | None:
    return next((opener for magic, opener in OPENERS.items() if magic.match(start)), None)


class Stream(io.BufferedReader):
    """The uncompressed bytes of a file.

    Args:
        source: the stream to read; it is left open, as it may be standard input.
        unpacked_from: the compressed stream that `source` reads, if any.
    """

    def __init__(self, source: Any, unpacked_from: "Stream | None" = None) -> None:
        self._source = _SteadyReader(source)
        self._packed = unpacked_from
        super().__init__(self._source, buffer_size=1 << 16)

    @property
    def num_bytes_on_disk(self) -> int:
        """Bytes of the file read so far; an estimate for compressed files."""
        if self._packed is None:
            return self.tell()
        # The decompressor reads ahead.
        return self._packed.tell() * self.tell() // max(1, self._source.num_bytes)


class _SteadyReader(io.RawIOBase):
    """Read at least `LONGEST_MAGIC` bytes at once, even from a slow pipe."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.num_bytes = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.num_bytes

    def readinto(self, buffer: Any) -> int:
        num_bytes = 0
        while num_bytes < LONGEST_MAGIC:
            piece = self._source.read(len(buffer) - num_bytes)
            if not piece:
                break
            buffer[num_bytes : num_bytes + len(piece)] = piece
            num_bytes += len(piece)
        self.num_bytes += num_bytes
        return num_bytes
