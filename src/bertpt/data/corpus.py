"""Where text comes from: files, folders, globs and standard input -> documents of sentences."""

import bz2
import glob
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import sentencex

from bertpt.errors import InputError, SettingError

TEXT_ENDINGS = (".txt", ".txt.gz", ".txt.bz2", ".txt.xz")
OPENERS: dict[re.Pattern[bytes], Callable[[IO[bytes]], Any]] = {
    re.compile(rb"\x1f\x8b"): gzip.open,
    re.compile(rb"BZh[1-9]1AY&SY"): bz2.open,
    re.compile(rb"\xfd7zXZ\x00"): lzma.open,
}
# What looks like text by its name, or is given by hand, and is not.
FOREIGN = {
    re.compile(rb"\x28\xb5\x2f\xfd"): "zstd-compressed; give its text through a pipe (zstd -dc)",
    re.compile(rb"PAR1\x15"): "Parquet; write its text column to a .txt file first",
    re.compile(rb"PK\x03\x04"): "a zip archive; unpack it first",
    re.compile(rb"%PDF-"): "a PDF; extract its text first",
    re.compile(rb"\xff\xfe|\xfe\xff"): "UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)",
}
DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error)
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")


@dataclass
class Corpus:
    """Documents read from INPUT arguments: iterate for each document's sentences.

    A blank line and the end of a file end a document. A line ends at a line feed (a carriage
    return before it is dropped) and at nothing else, and no sentence crosses lines. Iterating
    counts what was met, so the counts are those of the last full pass. A file that is given twice
    is read once, or its text would be held out and trained on as well.

    Raises:
        InputError: an input does not exist or is not text.
        SettingError: the language is not an ISO 639 code.
    """

    inputs: Sequence[str]
    language: str = "en"
    sentence_per_line: bool = False
    files: list[str] = field(init=False)
    num_repeated_files: int = field(init=False)
    num_bytes: int = field(init=False, default=0)
    num_replaced_lines: int = field(init=False, default=0)
    num_nul_lines: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not LANGUAGE_CODE.fullmatch(self.language):
            raise SettingError(
                "language", f"{self.language} is not an ISO 639 code such as en, de or zh"
            )
        found = list(find_files(self.inputs))
        first: dict[str, str] = {}
        for file in found:
            first.setdefault(file if file == "-" else str(Path(file).resolve()), file)
        self.files = list(first.values())
        self.num_repeated_files = len(found) - len(self.files)

    @property
    def name(self) -> str:
        """The files, or the first of them, for messages."""
        names = ["standard input" if file == "-" else file for file in self.files[:3]]
        return ", ".join(names) + (", ..." if len(self.files) > 3 else "")

    def __iter__(self) -> Iterator[list[str]]:
        self.num_bytes = self.num_replaced_lines = self.num_nul_lines = 0
        for file in self.files:
            document: list[str] = []
            for line in self._lines(file):
                if line.strip():
                    document.extend(self._sentences(line))
                elif document:
                    yield document
                    document = []
            if document:
                yield document

    def watched(self, bar: Any) -> Iterator[list[str]]:
        """The same documents, a progress bar being told the bytes read."""
        for document in self:
            yield document
            bar.update(self.num_bytes - bar.n)
        bar.close()

    def _lines(self, file: str) -> Iterator[str]:
        try:
            with _open(file) as handle:
                for number, raw in enumerate(handle):
                    self.num_bytes += len(raw)
                    try:
                        line = raw.decode("utf-8")
                    except UnicodeDecodeError:
                        line = raw.decode("utf-8", "replace")
                        self.num_replaced_lines += 1
                    self.num_nul_lines += "\0" in line
                    if number == 0:
                        line = line.removeprefix("\ufeff")
                    yield line.removesuffix("\n").removesuffix("\r")
        except DAMAGED as error:
            problem = getattr(error, "strerror", None) or error
            raise InputError(f"{file} cannot be read: {problem}") from error

    def _sentences(self, line: str) -> Iterable[str]:
        if self.sentence_per_line:
            return (line.strip(),)
        return (s for part in sentencex.segment(self.language, line) if (s := part.strip()))


def find_files(inputs: Sequence[str]) -> Iterator[str]:
    """The files that INPUT arguments stand for, `-` being standard input.

    Raises:
        InputError: one of them stands for nothing.
    """
    for name in inputs:
        if not name:
            raise InputError("no such file or folder: '' (is a variable unset?)")
        if name == "-" or Path(name).is_file():
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
        if path.name.endswith(TEXT_ENDINGS)
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(name).parts)
        and not (path.parent / "tokenizer_config.json").exists()  # its vocab.txt is no text
    ]
    if not found:
        raise InputError(f"{name} holds no {', '.join(TEXT_ENDINGS)} file")
    yield from found


@contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    """Opens a text file for reading, whatever it is compressed with, by its content."""
    if file.endswith((".jsonl", ".jsonl.gz", ".parquet")):
        raise InputError(f"{file} is not plain text; write its text field to a .txt file first")
    if file == "-" and sys.stdin is None:
        raise InputError("standard input is closed")
    with ExitStack() as closing:
        raw = sys.stdin.buffer if file == "-" else closing.enter_context(Path(file).open("rb"))
        # Only the buffer over a file can peek; what stands in for standard input may be another.
        buffered = (
            raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast("Any", raw))
        )
        start = buffered.peek(10)
        for magic, what in FOREIGN.items():
            if magic.match(start):
                raise InputError(f"{file} is {what}")
        for magic, opener in OPENERS.items():
            if magic.match(start):
                yield closing.enter_context(opener(buffered))
                return
        yield buffered
