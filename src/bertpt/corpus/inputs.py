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
from typing import IO, Any, NamedTuple

import pyarrow as pa

from bertpt import files
from bertpt.corpus.hub import HubName, is_hub
from bertpt.errors import InputError, OutputError

COMPRESSED_ENDINGS = ("", ".gz", ".bz2", ".xz", ".zst")
# Formats with rows, known by name only, since a text may start like any of them.
ROW_FORMATS = (".jsonl", ".json", ".csv", ".tsv")
# Of .json files in a folder, most hold settings; they must be named.
FOLDER_FORMATS = (".txt", ".jsonl", ".csv", ".tsv")
FOLDER_ENDINGS = (
    *(form + ending for form in FOLDER_FORMATS for ending in COMPRESSED_ENDINGS),
    ".parquet",
)
STANDARD_INPUT = dict.fromkeys(("-", "jsonl:-", "csv:-", "tsv:-"), "standard input")

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
START_BYTES = 1 << 14  # enough to recognise markup and tables
LONGEST_MAGIC = 16
NAME_THEM = "give them by name or a glob"
DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowException)


# ------------------------------------------------------------------------------ arguments to files


class Found(NamedTuple):
    """Files that INPUT arguments name, and those in folders that are not read.

    Attributes:
        files: standard input and `hf:` names stay as they are.
        ignored: the names of ignored files by kind, such as "without a known ending".
    """

    files: list[str]
    ignored: dict[str, list[str]]

    def describe_ignored(self) -> str:
        """Return the number of ignored files by kind, with an example of each."""
        return " and ".join(
            f"{len(names):,} {'file' if len(names) == 1 else 'files'} {kind}, such as {names[0]}"
            for kind, names in sorted(self.ignored.items(), key=lambda item: -len(item[1]))[:3]
        )


def find_files(inputs: Sequence[str]) -> Found:
    """Find the files that INPUT arguments name.

    Raises:
        InputError: an argument matches no file.
    """
    paths: list[str] = []
    ignored: dict[str, list[str]] = {}
    for name in inputs:
        if not name:
            raise InputError("no such file or folder: '' (is a variable unset?)")
        if is_hub(name):
            HubName.parse(name)
            paths.append(name)
        elif name in STANDARD_INPUT or Path(name).is_file():
            paths.append(name)
        elif Path(name).is_dir():
            found = _search_folder(name)
            paths.extend(found.files)
            for kind, names in found.ignored.items():
                ignored.setdefault(kind, []).extend(names)
        elif glob.has_magic(name):
            matches = sorted(m for m in glob.glob(name, recursive=True) if Path(m).is_file())
            if not matches:
                raise InputError(f"no file matches {name}")
            paths.extend(matches)
        elif Path(name).exists():  # a named pipe, /dev/stdin, <(process substitution)
            paths.append(name)
        else:
            raise InputError(f"no such file or folder: {name}")
    return Found(paths, ignored)


def _search_folder(name: str) -> Found:
    found = Found([], {})
    for path in sorted(Path(name).rglob("*")):
        inner = path.relative_to(name)
        if not path.is_file() or any(part.startswith(".") for part in inner.parts):
            continue
        if (path.parent / "tokenizer_config.json").exists():  # its vocab.txt is a vocabulary
            continue
        if path.name.endswith(FOLDER_ENDINGS):
            found.files.append(str(path))
        else:
            found.ignored.setdefault(_kind(path), []).append(str(inner))
    if not found.files:
        held = f"; it has {found.describe_ignored()}: {NAME_THEM}" if found.ignored else ""
        known = f"{', '.join(FOLDER_FORMATS)} (also .gz, .bz2, .xz, .zst) or .parquet"
        raise InputError(f"{name} contains no {known}{held}")
    return found


def _kind(path: Path) -> str:
    name = path.name
    for ending in COMPRESSED_ENDINGS[1:]:
        name = name.removesuffix(ending)
    suffix = Path(name).suffix.lower()
    return f"with the ending {suffix}" if suffix else "without a known ending"


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
    """Open a file and uncompress it; its content, not its name, decides how."""
    if file in STANDARD_INPUT and sys.stdin is None:
        raise InputError("standard input is closed")
    with ExitStack() as closing:
        is_stdin = file in STANDARD_INPUT
        raw = sys.stdin.buffer if is_stdin else closing.enter_context(Path(file).open("rb"))
        stream = Stream(raw)
        if opener := _opener(stream.peek()):
            stream = Stream(closing.enter_context(opener(stream)), unpacked_from=stream)
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


def row_format(file: str) -> str | None:
    """Return the format with rows, one of `ROW_FORMATS`, that a name ends in, or `None`."""
    if file in STANDARD_INPUT:
        return f".{file.removesuffix(':-')}" if ":" in file else None
    return next(
        (form for form in ROW_FORMATS for end in COMPRESSED_ENDINGS if file.endswith(form + end)),
        None,
    )


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
    """Read at least `START_BYTES` at once, even from a slow pipe."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.num_bytes = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.num_bytes

    def readinto(self, buffer: Any) -> int:
        num_bytes = 0
        while num_bytes < min(START_BYTES, len(buffer)):
            piece = self._source.read(len(buffer) - num_bytes)
            if not piece:
                break
            buffer[num_bytes : num_bytes + len(piece)] = piece
            num_bytes += len(piece)
        self.num_bytes += num_bytes
        return num_bytes
