"""Read the documents of one input, line by line or row by row."""

import io
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bertpt.corpus import lines, rows, sniff
from bertpt.corpus.hub import hub_rows, is_hub
from bertpt.corpus.inputs import (
    DAMAGED,
    display_name,
    is_parquet,
    open_seekable,
    open_stream,
    row_format,
    size_on_disk,
)
from bertpt.corpus.lines import read_lines
from bertpt.errors import InputError
from bertpt.text import shorten, without_surrogates

BYTE_ORDER_MARK = "\ufeff"
PIECE_BYTES = 1 << 20
# WikiExtractor puts an article between such lines.
WIKI_MARK = re.compile(r"<doc id=\"[^\"]*\"[^<>]*>|</doc>")
# The licence comes after the END line.
GUTENBERG = re.compile(r"\*\*\* ?(START|END) OF TH(E|IS) PROJECT GUTENBERG", re.IGNORECASE)


class Position(NamedTuple):
    """A line or row of an input, counted from 1."""

    name: str
    unit: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}: {self.unit} {self.number}"


@dataclass
class Document:
    """A document as read, or a piece of a long one: clean lines, not yet split into sentences.

    Attributes:
        continues: whether the next piece belongs to the same document.
        counts: what was found in it; the keys are those of `bertpt.corpus.findings.COUNTS`.
        problems: where each kind of repair was needed first, by the keys of `counts`.
        first_problem: where text was repaired first, and why.
        num_text_bytes: uncompressed bytes since the document before it.
        num_bytes_read: bytes of the input read up to its end; compressed bytes are estimated.
    """

    lines: list[str] = field(default_factory=list)
    continues: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
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
            self.note_invalid(position)
            return raw.decode("utf-8", "replace")

    def note_invalid(self, position: Position) -> None:
        """Count a line or row with invalid UTF-8."""
        self._count("replaced_lines", position, "is not valid UTF-8")

    def note_cut(self, position: Position) -> None:
        """Count a cut in a long line."""
        self._count("cut_lines", position, f"is longer than {lines.MAX_LINE_BYTES >> 20} MB")

    def without_nul(self, text: str, position: Position) -> str:
        """Remove NUL characters."""
        if "\0" not in text:
            return text
        self._count("nul_lines", position, "contains NUL characters")
        return text.replace("\0", "")

    def add_row(self, paragraphs: list[str], position: Position) -> None:
        """Add a row's lines; half a surrogate pair, which JSON can spell, becomes U+FFFD."""
        for paragraph in paragraphs:
            text = paragraph
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                self._count("surrogate_rows", position, "contains half a surrogate pair")
                text = without_surrogates(text)
            self.lines += self.without_nul(text, position).split("\n")
        self.counts["empty_rows"] += not self.has_text

    def _count(self, key: str, position: Position, problem: str) -> None:
        self.counts[key] += 1
        self.problems.setdefault(key, str(position))
        self.first_problem = self.first_problem or f"{position} {problem}"


def read_documents(
    file: str, *, text_field: str, max_text_bytes: int | None = None
) -> Generator[Document, None, None]:
    """Read an input's documents in order.

    In plain text, blank lines, WikiExtractor's <doc> lines and the end of the file end a document.
    In JSONL, JSON arrays, CSV and TSV (recognised by name), Parquet (by content) and `hf:` data
    sets, each row is a document. Only a line feed ends a line; a carriage return before it is
    dropped.

    Args:
        file: a file, standard input or an `hf:` name (see `bertpt.corpus.inputs.find_files`).
        text_field: the field of a row that contains the text.
        max_text_bytes: stop plain text after about so many bytes.

    Yields:
        Documents; those of plain text in pieces of about `PIECE_BYTES`.

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
            if kind := sniff.foreign_kind(stream.peek()):
                raise InputError(f"{name} is {kind}")
            for document in _stream_documents(file, stream, text_field, max_text_bytes):
                document.num_bytes_read = stream.num_bytes_on_disk
                yield document
    except DAMAGED as error:
        problem = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{name} cannot be read: {shorten(problem)}") from error


def _stream_documents(
    file: str, stream: io.BufferedReader, text_field: str, max_bytes: int | None
) -> Iterator[Document]:
    name, form, start = display_name(file), row_format(file), stream.peek()
    if form in (".csv", ".tsv"):
        delimiter = "\t" if form == ".tsv" else ""
        texts = rows.csv_texts(stream, text_field, name=name, start=start, delimiter=delimiter)
        return _row_documents(texts, name, text_field)
    if form is None:
        return _text_documents(stream, name, text_field, max_bytes)
    if sniff.is_array(start):
        return _array_documents(stream, name, text_field)
    return _json_documents(stream, name, text_field)


def _text_documents(
    stream: io.BufferedReader, name: str, text_field: str, max_bytes: int | None
) -> Iterator[Document]:
    document = Document()
    document.counts["row_like_files"] += _looks_like_rows(stream.peek(), text_field)
    is_open = is_article = after_cut = is_gutenberg = False
    num_bytes = piece_bytes = 0
    limit = min(lines.MAX_LINE_BYTES, max_bytes or lines.MAX_LINE_BYTES)
    for number, raw, is_cut in read_lines(stream, max_bytes=limit):
        position = Position(name, "line", number)
        num_bytes += len(raw)
        document.num_text_bytes += len(raw)
        text = _decode_line(raw, document, position)
        mark = WIKI_MARK.fullmatch(text.strip()) if text.startswith("<") else None
        # A line that becomes empty only by cleaning (NUL, a zero-width space) ends no document.
        if mark or not (text.strip() or is_article or after_cut):
            if document.lines or is_open:
                yield document
                document = Document()
            is_open, piece_bytes = False, 0
            is_article = bool(mark) and not text.startswith("</")
        elif text.strip():
            document.lines.append(document.without_nul(text, position))
            if is_cut and limit == lines.MAX_LINE_BYTES:
                document.note_cut(position)
            if not is_gutenberg and text.startswith("***") and GUTENBERG.match(text):
                document.counts["gutenberg_files"] += 1
                is_gutenberg = True
            piece_bytes += len(raw)
            if max_bytes is not None and (num_bytes >= max_bytes or is_cut):
                break
            if piece_bytes >= PIECE_BYTES:
                document.continues = is_open = True
                yield document
                document, piece_bytes = Document(), 0
        after_cut = is_cut
    if document.lines or is_open:
        yield document


def _looks_like_rows(start: bytes, text_field: str) -> bool:
    line = start.removeprefix(sniff.BOM).split(b"\n", 1)[0].decode("utf-8", "replace")
    row = rows.parse_object(line) if line.startswith("{") else None
    is_json = isinstance((row or {}).get(text_field), str)
    return is_json or sniff.looks_like_table(start)


def _json_documents(stream: io.BufferedReader, name: str, text_field: str) -> Iterator[Document]:
    for number, raw, is_cut in read_lines(stream, max_bytes=rows.MAX_ROW_BYTES):
        position = Position(name, "line", number)
        if is_cut:
            raise InputError(f"{position} is longer than {rows.MAX_ROW_BYTES >> 20} MB")
        document = Document(num_text_bytes=len(raw))
        line = _decode_line(raw, document, position)
        if line.strip():
            row = rows.require_object(rows.parse_object(line), line, position=str(position))
            _add_fields(document, row, text_field, position)
            yield document


def _array_documents(stream: io.BufferedReader, name: str, text_field: str) -> Iterator[Document]:
    items = rows.JsonArray(stream, name).items()
    for number, (value, text, has_invalid) in enumerate(items, start=1):
        position = Position(name, "item", number)
        row = rows.require_object(value, text, position=str(position))
        document = Document(num_text_bytes=len(text))
        if has_invalid:
            document.note_invalid(position)
        _add_fields(document, row, text_field, position)
        yield document


def _add_fields(
    document: Document, row: dict[str, Any], text_field: str, position: Position
) -> None:
    value = rows.lookup(row, text_field, position=str(position))
    texts = rows.paragraphs(value, text_field, position=str(position))
    document.add_row([str(text) for text in texts], position)


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


def _row_documents(values: Iterable[Any], name: str, text_field: str) -> Iterator[Document]:
    """Make a document of each row, empty ones included."""
    for number, value in enumerate(values, start=1):
        position = Position(name, "row", number)
        texts = rows.paragraphs(value, text_field, position=str(position))
        document = Document(num_text_bytes=sum(map(len, texts)))
        decoded = [document.decode(t, position) if isinstance(t, bytes) else t for t in texts]
        document.add_row(decoded, position)
        yield document
