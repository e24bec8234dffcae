"""Text from files, folders, standard input and data sets -> documents of sentences."""

import io
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import IO, Any

from bertpt.config import parse_shard
from bertpt.corpus import rows
from bertpt.corpus.hub import hub_rows, is_hub
from bertpt.corpus.inputs import (
    DAMAGED,
    find_files,
    identity,
    is_json_lines,
    is_parquet,
    open_seekable,
    open_stream,
    size_on_disk,
    spoken,
)
from bertpt.corpus.sentences import SentenceSplitter
from bertpt.errors import InputError, SettingError
from bertpt.rng import evenly_spaced
from bertpt.text import without_surrogates

LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
BYTE_ORDER_MARK = "\ufeff"
MAX_SAMPLED = 64  # files
# What a cut may have torn apart: a sentence, or at least a character.
TORN = re.compile(rb"(?<=[.!?] )[^.!?]{1,1000}\Z|[\xc0-\xff]?[\x80-\xbf]*\Z")
Place = tuple[str, str, int]  # input, "line" or "row", its number from 1 on


@dataclass
class Corpus:
    """Documents read from INPUT arguments: iterate for each document's sentences.

    In plain text a blank line and the end of a file end a document. Of JSONL (by its name), of
    Parquet (by its content) and of `hf:NAME[/CONFIG][:SPLIT]`, each row is a document, whatever
    lines its `text_field` holds. A line ends at a line feed (a carriage return before it is
    dropped) and at nothing else, and no sentence crosses lines; a line of which only cleaning
    would leave nothing (a zero-width space) is not blank. Standard input is plain text, unless it
    is Parquet or is given as `jsonl:-`.

    Iterating counts what was met, so the counts are those of the last full pass. A file that is
    given twice is read once, or its text would be held out and trained on as well.

    With `shard`, I/N, only the I-th of N parts is there, and what is counted is of it alone. A part
    has every N-th file; where there are fewer files than N, it has every N-th document.

    With `sample_bytes`, about so many bytes of text are read: the beginnings of up to
    `MAX_SAMPLED` files, evenly spaced, as much of each while it lasts and one whole document at
    least. The document that fills the sample is cut after a sentence, unless it is a row.

    Attributes:
        is_sampled: whether the last pass left something out.
        num_text_bytes: of text, unpacked; of JSONL, of its lines.
        num_replaced_lines: lines and rows with invalid UTF-8, which became U+FFFD.
        num_surrogate_rows: rows with half a surrogate pair (JSON can spell one): U+FFFD.
        num_nul_lines: lines and rows with NUL characters, which were removed.
        num_empty_rows: rows without text, which were left out.
        num_json_like_files: plain texts that begin as JSONL does, and were read as text.

    Raises:
        InputError: an input does not exist, is damaged or is not text; with `strict`, also where
            text is not clean.
        SettingError: the language is not an ISO 639 code, the field has no name, or there is no
            such part.
    """

    inputs: Sequence[str]
    language: str = "en"
    sentence_per_line: bool = False
    text_field: str = field(default="text", kw_only=True)
    strict: bool = field(default=False, kw_only=True)
    shard: str | None = field(default=None, kw_only=True)
    sample_bytes: int | None = field(default=None, kw_only=True)
    files: list[str] = field(init=False)
    num_repeated_files: int = field(init=False)
    is_sampled: bool = field(init=False, default=False)
    num_text_bytes: int = field(init=False, default=0)
    num_replaced_lines: int = field(init=False, default=0)
    num_surrogate_rows: int = field(init=False, default=0)
    num_nul_lines: int = field(init=False, default=0)
    num_empty_rows: int = field(init=False, default=0)
    num_json_like_files: int = field(init=False, default=0)
    _turns: tuple[int, int] = field(init=False, repr=False)
    _num_ended: int = field(init=False, default=0, repr=False)  # documents, those of all parts
    _splitter: SentenceSplitter = field(init=False, repr=False, compare=False)
    # On the disk: in the files before, and how to ask for those in the file that is being read.
    _num_bytes_before: int = field(init=False, repr=False, compare=False, default=0)
    _num_bytes_here: Callable[[], int] = field(init=False, repr=False, compare=False, default=int)

    def __post_init__(self) -> None:
        if not LANGUAGE_CODE.fullmatch(self.language):
            raise SettingError(
                "language", f"{self.language} is not an ISO 639 code such as en, de or zh"
            )
        if not self.text_field:
            raise SettingError("text_field", "'' is no field; give its name")
        part, num_parts = parse_shard(self.shard)
        found = list(find_files(self.inputs))
        times = Counter(map(identity, found))
        first: dict[object, str] = {}
        for file in found:
            first.setdefault(identity(file), file)
        self.files = list(first.values())
        self._turns = (part - 1, num_parts)  # whose the documents are
        if len(self.files) >= num_parts:
            self.files = self.files[part - 1 :: num_parts]
            self._turns = (0, 1)
        self.num_repeated_files = sum(times[identity(file)] - 1 for file in self.files)
        self._splitter = self._new_splitter()

    @property
    def num_cut_sentences(self) -> int:
        """Cuts in sentences that were longer than any example can be."""
        return self._splitter.num_cuts

    @property
    def name(self) -> str:
        """The files, or the first of them, for messages."""
        names = [spoken(file) for file in self.files[:3]]
        return ", ".join(names) + (", ..." if len(self.files) > 3 else "")

    @cached_property
    def total_bytes(self) -> int | None:
        """The size on the disk, where all are files; what `num_bytes` comes to in the end."""
        sizes = [size_on_disk(file) for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def num_bytes(self) -> int:
        """Bytes taken so far from the files on the disk; of the Hub's rows, those of their text."""
        return self._num_bytes_before + self._num_bytes_here()

    def __iter__(self) -> Iterator[list[str]]:
        self._num_bytes_before = self.num_replaced_lines = self.num_surrogate_rows = 0
        self.num_nul_lines = self.num_empty_rows = self.num_json_like_files = 0
        self._num_ended = 0
        self._splitter = self._new_splitter()
        self.num_text_bytes, self.is_sampled = 0, False
        if self.sample_bytes is not None:
            yield from self._sample(self.sample_bytes)
            return
        for file in self.files:
            yield from self._documents(file)

    def _new_splitter(self) -> SentenceSplitter:
        return SentenceSplitter(None if self.sentence_per_line else self.language)

    def watched(self, bar: Any) -> Iterator[list[str]]:
        """The same documents, a progress bar being told the bytes read."""
        for document in self:
            yield document
            bar.update(max(0, self.num_bytes - bar.n))  # of a compressed file it is an estimate
        bar.update(max(0, self.num_bytes - bar.n))  # what follows the last document
        bar.close()

    def _sample(self, num_bytes: int) -> Iterator[list[str]]:
        chosen = [self.files[i] for i in evenly_spaced(len(self.files), MAX_SAMPLED)]
        # Every eighth first, so that the sample is spread even where few documents fill it.
        files = [file for first in range(8) for file in chosen[first::8]]
        for number, file in enumerate(files):
            share = (num_bytes - self.num_text_bytes) / (len(files) - number)
            end = self.num_text_bytes + share
            with closing(self._documents(file)) as documents:
                for document in documents:
                    yield document
                    if self.num_text_bytes >= end:
                        self.is_sampled = True
                        break
            if self.num_text_bytes >= num_bytes:
                break
        self.is_sampled |= len(files) < len(self.files) or number + 1 < len(files)

    # ------------------------------------------------------------------------- parts of a corpus

    @property
    def _is_in_part(self) -> bool:
        """Whether the document that is being read, or comes next, belongs to this part."""
        turn, num_parts = self._turns
        return self._num_ended % num_parts == turn

    def _sentences(self, line: str) -> Iterator[str]:
        """The sentences of a line; of a document of another part, only whether there are some."""
        if self._is_in_part:
            yield from self._splitter.split(line)
        elif line.strip():
            yield line

    def _ended(self, document: list[str]) -> Iterator[list[str]]:
        """The document that was read to its end, if it belongs to this part."""
        if self._is_in_part:
            yield document
        self._num_ended += 1

    # ----------------------------------------------------------------------------- kinds of input

    def _documents(self, file: str) -> Generator[list[str], None, None]:
        name = spoken(file)
        if is_hub(file):
            before = self.num_text_bytes
            with self._counting(lambda: self.num_text_bytes - before):
                yield from self._of_rows(hub_rows(file, self.text_field), name)
            return
        try:
            with open_stream(file) as stream, self._counting(lambda: stream.num_bytes_on_disk):
                if is_parquet(stream):
                    with open_seekable(file, stream) as whole:
                        yield from self._of_parquet(whole, size_on_disk(file), name)
                elif file.endswith(".parquet"):
                    raise InputError(f"{name} is no Parquet file, which would begin with PAR1")
                elif is_json_lines(file):
                    yield from self._of_json_lines(stream, name)
                else:
                    yield from self._of_lines(stream, name)
        except DAMAGED as error:
            problem = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise InputError(f"{name} cannot be read: {problem}") from error

    @contextmanager
    def _counting(self, num_bytes: Callable[[], int]) -> Iterator[None]:
        """Tells `num_bytes` how to ask for what was read of an input."""
        self._num_bytes_here = num_bytes
        try:
            yield
        finally:
            self._num_bytes_before = self.num_bytes
            self._num_bytes_here = int

    def _of_parquet(self, file: IO[bytes], size: int | None, name: str) -> Iterator[list[str]]:
        num_rows, texts = rows.parquet_texts(file, self.text_field, name=name)
        num_read = 0

        def counted() -> Iterator[bytes | None]:
            nonlocal num_read
            for num_read, text in enumerate(texts, start=1):  # noqa: B007
                yield text

        if size is not None:  # by rows, since the file is not read from its beginning to its end
            self._num_bytes_here = lambda: size * num_read // num_rows if num_rows else size
        yield from self._of_rows(counted(), name)

    def _of_lines(self, stream: io.BufferedReader, name: str) -> Iterator[list[str]]:
        document: list[str] = []
        for place, line in self._lines(stream, name, self.sample_bytes):
            if place[-1] == 1:
                row = rows.parse_object(line) if line.startswith("{") else None
                is_json_like = isinstance((row or {}).get(self.text_field), str)
                self.num_json_like_files += is_json_like and self._is_in_part
            if line.strip():
                document.extend(self._sentences(self._without_nul(line, place)))
                if self.sample_bytes is not None and self.num_text_bytes >= self.sample_bytes:
                    self.is_sampled = True
                    break
            elif document:
                yield from self._ended(document)
                document = []
        if document:
            yield from self._ended(document)

    def _of_json_lines(self, stream: io.BufferedReader, name: str) -> Iterator[list[str]]:
        for place, line in self._lines(stream, name):
            if line.strip():
                text = rows.json_text(line, self.text_field, place=_spoken(place))
                rows.require_text(text, self.text_field, place=_spoken(place))
                yield from self._of_row(text, place)

    def _of_rows(self, texts: Iterable[Any], name: str) -> Iterator[list[str]]:
        for number, text in enumerate(texts, start=1):
            place = (name, "row", number)
            rows.require_text(text, self.text_field, place=_spoken(place))
            self.num_text_bytes += len(text or "")
            if isinstance(text, bytes):
                text = self._decoded(text, place)  # noqa: PLW2901
            yield from self._of_row(text, place)

    def _of_row(self, text: Any, place: Place) -> Iterator[list[str]]:
        """The document of a row, if there is anything in it."""
        document: list[str] = []
        for line in self._without_nul(self._without_halves(text or "", place), place).split("\n"):
            document.extend(self._sentences(line))
        if document:
            yield from self._ended(document)
        else:
            self.num_empty_rows += self._is_in_part

    # ----------------------------------------------------------------------------- lines of text

    def _lines(
        self, stream: io.BufferedReader, name: str, longest: int | None = None
    ) -> Iterator[tuple[Place, str]]:
        """The lines of a stream, cut where they have more than `longest` bytes."""
        raws = stream if longest is None else iter(partial(stream.readline, longest), b"")
        for number, raw in enumerate(raws, start=1):
            self.num_text_bytes += len(raw)
            place = (name, "line", number)
            if len(raw) == longest and not raw.endswith(b"\n"):
                raw = TORN.sub(b"", raw)  # noqa: PLW2901
            line = self._decoded(raw, place)
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            yield place, line.removesuffix("\n").removesuffix("\r")

    def _decoded(self, raw: bytes, place: Place) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self._refuse_if_strict("is not valid UTF-8", place)
            self.num_replaced_lines += self._is_in_part
            return raw.decode("utf-8", "replace")

    def _without_halves(self, text: str, place: Place) -> str:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self._refuse_if_strict("holds a lone surrogate, half a character", place)
            self.num_surrogate_rows += self._is_in_part
            return without_surrogates(text)
        return text

    def _without_nul(self, text: str, place: Place) -> str:
        if "\0" not in text:
            return text
        self._refuse_if_strict("holds NUL characters", place)
        self.num_nul_lines += self._is_in_part
        return text.replace("\0", "")

    def _refuse_if_strict(self, problem: str, place: Place) -> None:
        if self.strict and self._is_in_part:
            raise InputError(f"{_spoken(place)} {problem}; mend it, or leave `strict` out")


def _spoken(place: Place) -> str:
    name, unit, number = place
    return f"{name}: {unit} {number}"
