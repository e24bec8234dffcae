"""Read the documents of one input, line by line or row by row."""

import io
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from bertpt.corpus import rows
from bertpt.corpus.hub import hub_rows, is_hub
from bertpt.corpus.inputs import (
    DAMAGED,
    display_name,
    is_json_lines,
    is_parquet,
    open_seekable,
    open_stream,
    size_on_disk,
)
from bertpt.errors import InputError
from bertpt.text import without_surrogates

BYTE_ORDER_MARK = "\ufeff"
# What a cut at a byte may leave behind: the start of a sentence, or at least of a character.
CUT_TAIL = re.compile(rb"(?<=[.!?] )[^.!?]{1,1000}\Z|[\xc0-\xff]?[\x80-\xbf]*\Z")


class Position(NamedTuple):
    """A line or row of an input, counted from 1."""

    name: str
    unit: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}: {self.unit} {self.number}"


@dataclass
class Document:
    """A document as read: clean lines, not yet split into sentences.

    Attributes:
        counts: what was found in it; the keys are those of `bertpt.corpus.corpus.COUNTS`.
        first_problem: where text was repaired first, and why.
        num_text_bytes: uncompressed bytes since the document before it.
        num_bytes_read: bytes of the input read up to its end; compressed bytes are estimated.
    """

    lines: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    first_problem: str | None = None
    num_text_bytes: int = 0
    num_bytes_read: int = 0

    @property
    def has_text(self) -> bool:
        """Whether any line is not blank."""
        return any(map(str.strip, self.lines))

    def decode(self, raw: bytes, position: Position) -> str:
        """Decode UTF-8; invalid bytes become U+FFFD."""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self._count("replaced_lines", position, "is not valid UTF-8")
            return raw.decode("utf-8", "replace")

    def without_nul(self, text: str, position: Position) -> str:
        """Remove NUL characters."""
        if "\0" not in text:
            return text
        self._count("nul_lines", position, "contains NUL characters")
        return text.replace("\0", "")

    def add_row(self, text: str, position: Position) -> None:
        """Add the lines of a row; half a surrogate pair, which JSON can spell, becomes U+FFFD."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self._count("surrogate_rows", position, "contains half a surrogate pair")
            text = without_surrogates(text)
        self.lines = self.without_nul(text, position).split("\n")
        self.counts["empty_rows"] += not self.has_text

    def _count(self, key: str, position: Position, problem: str) -> None:
        self.counts[key] += 1
        self.first_problem = self.first_problem or f"{position} {problem}"


def read_documents(
    file: str, *, text_field: str, max_text_bytes: int | None = None
) -> Generator[Document, None, None]:
    """Read an input's documents in order.

    In plain text, blank lines and the end of the file end a document. In JSONL (recognised by
    name), Parquet (by content) and `hf:` data sets, each row is a document. Only a line feed ends
    a line; a carriage return before it is dropped.

    Args:
        file: a file, standard input or an `hf:` name (see `bertpt.corpus.inputs.find_files`).
        text_field: the field of a row that contains the text.
        max_text_bytes: stop plain text after about so many bytes.

    Raises:
        InputError: the input is damaged or is not text, or a row lacks the field.
    """
    name = display_name(file)
    if is_hub(file):
        num_bytes = 0
        for document in _row_documents(hub_rows(file, text_field), name, text_field):
            num_bytes += document.num_text_bytes
            document.num_bytes_read = num_bytes
            yield document
        return
    try:
        with open_stream(file) as stream:
            if is_parquet(stream):
                yield from _parquet_documents(file, stream, text_field)
                return
            if file.endswith(".parquet"):
                raise InputError(f"{name} is not a Parquet file: it does not start with PAR1")
            documents = (
                _json_documents(stream, name, text_field)
                if is_json_lines(file)
                else _text_documents(stream, name, text_field, max_text_bytes)
            )
            for document in documents:
                document.num_bytes_read = stream.num_bytes_on_disk
                yield document
    except DAMAGED as error:
        problem = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{name} cannot be read: {problem}") from error


def _text_documents(
    stream: io.BufferedReader, name: str, text_field: str, max_bytes: int | None
) -> Iterator[Document]:
    document = Document()
    num_bytes = 0
    lines = stream if max_bytes is None else iter(partial(stream.readline, max_bytes), b"")
    for number, line in enumerate(lines, start=1):
        position = Position(name, "line", number)
        num_bytes += len(line)
        document.num_text_bytes += len(line)
        is_cut = len(line) == max_bytes and not line.endswith(b"\n")
        text = _decode_line(CUT_TAIL.sub(b"", line) if is_cut else line, document, position)
        if number == 1:
            row = rows.parse_object(text) if text.startswith("{") else None
            document.counts["json_like_files"] += isinstance((row or {}).get(text_field), str)
        # A line that becomes empty only by cleaning (NUL, a zero-width space) ends no document.
        if text.strip():
            document.lines.append(document.without_nul(text, position))
            if max_bytes is not None and num_bytes >= max_bytes:
                break
        elif document.lines:
            yield document
            document = Document()
    if document.lines:
        yield document


def _json_documents(stream: io.BufferedReader, name: str, text_field: str) -> Iterator[Document]:
    for number, raw in enumerate(stream, start=1):
        position = Position(name, "line", number)
        document = Document(num_text_bytes=len(raw))
        line = _decode_line(raw, document, position)
        if line.strip():
            text = rows.json_text(line, text_field, position=str(position))
            rows.require_text(text, text_field, position=str(position))
            document.add_row(text or "", position)
            yield document


def _decode_line(raw: bytes, document: Document, position: Position) -> str:
    line = document.decode(raw, position)
    if position.number == 1:
        line = line.removeprefix(BYTE_ORDER_MARK)
    return line.removesuffix("\n").removesuffix("\r")


def _parquet_documents(file: str, stream: Any, text_field: str) -> Iterator[Document]:
    name, size = display_name(file), size_on_disk(file)
    with open_seekable(file, stream) as seekable:
        num_rows, texts = rows.parquet_texts(seekable, text_field, name=name)
        for number, document in enumerate(_row_documents(texts, name, text_field), start=1):
            # A share of the rows, because Parquet is not read from the start to the end.
            document.num_bytes_read = (
                stream.num_bytes_on_disk if size is None else size * number // num_rows
            )
            yield document


def _row_documents(texts: Iterable[Any], name: str, text_field: str) -> Iterator[Document]:
    """Make a document of each row, empty ones included."""
    for number, text in enumerate(texts, start=1):
        position = Position(name, "row", number)
        rows.require_text(text, text_field, position=str(position))
        document = Document(num_text_bytes=len(text or ""))
        decoded = document.decode(text, position) if isinstance(text, bytes) else text
        document.add_row(decoded or "", position)
        yield document
