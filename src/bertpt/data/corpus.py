"""Text from files, folders, standard input and data sets -> documents of sentences."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bertpt.config import parse_shard
from bertpt.data import rows
from bertpt.data.hub import hub_rows, is_hub
from bertpt.data.inputs import (
    DAMAGED,
    find_files,
    identity,
    is_json_lines,
    is_parquet,
    is_plain,
    open_seekable,
    open_stream,
    spoken,
)
from bertpt.data.sentences import SentenceSplitter
from bertpt.data.tokenizer import without_surrogates
from bertpt.errors import InputError, SettingError

LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
BYTE_ORDER_MARK = "\ufeff"
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

    Attributes:
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
    files: list[str] = field(init=False)
    num_repeated_files: int = field(init=False)
    num_bytes: int = field(init=False, default=0)
    num_replaced_lines: int = field(init=False, default=0)
    num_surrogate_rows: int = field(init=False, default=0)
    num_nul_lines: int = field(init=False, default=0)
    num_empty_rows: int = field(init=False, default=0)
    num_json_like_files: int = field(init=False, default=0)
    _turns: tuple[int, int] = field(init=False, repr=False)
    _num_ended: int = field(init=False, default=0, repr=False)  # documents, those of all parts
    _splitter: SentenceSplitter = field(init=False, repr=False, compare=False)

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
        """What `num_bytes` will come to, where that can be told before reading."""
        if not all(is_plain(file) for file in self.files):
            return None
        return sum(Path(file).stat().st_size for file in self.files)

    def __iter__(self) -> Iterator[list[str]]:
        self.num_bytes = self.num_replaced_lines = self.num_surrogate_rows = 0
        self.num_nul_lines = self.num_empty_rows = self.num_json_like_files = 0
        self._num_ended = 0
        self._splitter = self._new_splitter()
        for file in self.files:
            yield from self._documents(file)

    def _new_splitter(self) -> SentenceSplitter:
        return SentenceSplitter(None if self.sentence_per_line else self.language)

    def watched(self, bar: Any) -> Iterator[list[str]]:
        """The same documents, a progress bar being told the bytes read."""
        for document in self:
            yield document
            bar.update(self.num_bytes - bar.n)
        bar.update(self.num_bytes - bar.n)  # what follows the last document
        bar.close()

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

    def _documents(self, file: str) -> Iterator[list[str]]:
        name = spoken(file)
        if is_hub(file):
            yield from self._of_rows(hub_rows(file, self.text_field), name)
            return
        try:
            with open_stream(file) as stream:
                if is_parquet(stream):
                    with open_seekable(file, stream) as whole:
                        texts = rows.parquet_texts(whole, self.text_field, name=name)
                        yield from self._of_rows(texts, name)
                elif file.endswith(".parquet"):
                    raise InputError(f"{name} is no Parquet file, which would begin with PAR1")
                elif is_json_lines(file):
                    yield from self._of_json_lines(stream, name)
                else:
                    yield from self._of_lines(stream, name)
        except DAMAGED as error:
            problem = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise InputError(f"{name} cannot be read: {problem}") from error

    def _of_lines(self, stream: io.BufferedReader, name: str) -> Iterator[list[str]]:
        document: list[str] = []
        for place, line in self._lines(stream, name):
            if place[-1] == 1:
                row = rows.parse_object(line) if line.startswith("{") else None
                is_json_like = isinstance((row or {}).get(self.text_field), str)
                self.num_json_like_files += is_json_like and self._is_in_part
            if line.strip():
                document.extend(self._sentences(self._without_nul(line, place)))
            elif document:
                yield from self._ended(document)
                document = []
        if document:
            yield from self._ended(document)

    def _of_json_lines(self, stream: io.BufferedReader, name: str) -> Iterator[list[str]]:
        for place, line in self._lines(stream, name):
            if line.strip():
                text = rows.json_text(line, self.text_field, place=_spoken(place))
                yield from self._of_row(text, place)

    def _of_rows(self, texts: Iterable[Any], name: str) -> Iterator[list[str]]:
        for number, text in enumerate(texts, start=1):
            place = (name, "row", number)
            if isinstance(text, bytes):
                text = self._decoded(text, place)  # noqa: PLW2901
            yield from self._of_row(text, place)
            self.num_bytes += len(text or "")

    def _of_row(self, text: Any, place: Place) -> Iterator[list[str]]:
        """The document of a row, if there is anything in it."""
        rows.require_text(text, self.text_field, place=_spoken(place))
        document: list[str] = []
        for line in self._without_nul(self._without_halves(text or "", place), place).split("\n"):
            document.extend(self._sentences(line))
        if document:
            yield from self._ended(document)
        else:
            self.num_empty_rows += self._is_in_part

    # ----------------------------------------------------------------------------- lines of text

    def _lines(self, stream: io.BufferedReader, name: str) -> Iterator[tuple[Place, str]]:
        for number, raw in enumerate(stream, start=1):
            self.num_bytes += len(raw)
            place = (name, "line", number)
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
            raise InputError(f"{_spoken(place)} {problem}; mend it, or leave --strict out")


def _spoken(place: Place) -> str:
    name, unit, number = place
    return f"{name}: {unit} {number}"
