"""Read the text field of rows: JSON Lines, JSON arrays, CSV, TSV and Parquet."""

import codecs
import csv
import io
import json
import re
import reprlib
from collections.abc import Collection, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from bertpt.errors import InputError

# Accept raw control characters, such as a tab, in strings; many writers leave them in.
DECODER = json.JSONDecoder(strict=False)
ROWS_PER_BATCH = 128
MAX_ROW_BYTES = 1 << 26
CSV_BLOCK_BYTES = 1 << 24  # a row of CSV must fit into one
JSON_SPACE = re.compile(r"[ \t\r\n]*")
ESCAPED_BYTES = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of invalid UTF-8


# ------------------------------------------------------------------------------------------ fields


def require_field(position: str, field: str, names: Collection[str]) -> str:
    """Return the column that holds a field: the field itself, or `a` for `a.b`.

    Raises:
        InputError: there is no such column; the message lists those that exist.
    """
    parts = field.split(".")
    for number in range(len(parts), 0, -1):
        if (column := ".".join(parts[:number])) in names:
            return column
    raise _missing(position, field, names)


def _missing(position: str, field: str, names: Collection[str]) -> InputError:
    listed = ", ".join(map(repr, list(names)[:20])) + (", ..." if len(names) > 20 else "")
    available = f"only {listed}; choose one with `text_field`" if names else "or any other"
    return InputError(f"{position} has no field {field!r}, {available}")


def lookup(row: dict[str, Any], field: str, *, position: str) -> Any:
    """Return the value of a field in a row; `a.b` is the field `b` of the struct `a`.

    Raises:
        InputError: the row lacks the field.
    """
    column = require_field(position, field, row)
    value, inner = row[column], field[len(column) + 1 :]
    if not inner or value is None:
        return value
    if not isinstance(value, dict):
        raise InputError(f"{position}: field {column!r} is not a struct, so it has no {inner!r}")
    return lookup(value, inner, position=position)


def paragraphs(value: Any, field: str, *, position: str) -> list[str | bytes]:
    """Return the paragraphs of a field: text, a list of texts, or nothing for null.

    Raises:
        InputError: the value is something else.
    """
    found = [part for part in (value if isinstance(value, list) else [value]) if part is not None]
    if not all(isinstance(part, str | bytes) for part in found):
        raise InputError(f"{position}: field {field!r} is not text but {reprlib.repr(value)}")
    return found


# -------------------------------------------------------------------------------------------- JSON


def parse_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object in a line, or `None` if it contains anything else."""
    try:
        value = DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def require_object(value: Any, text: str, *, position: str) -> dict[str, Any]:
    """Refuse a row that is not a JSON object; `text` is its JSON, for the message."""
    if not isinstance(value, dict):
        raise InputError(f"{position} is not a JSON object: {reprlib.repr(text)}")
    return value


class JsonArray:
    """Parses a JSON array item by item; only one item at a time is in memory.

    Args:
        stream: the file.
        name: the file, for messages.
    """

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._stream, self._name = stream, name
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
        self._text, self._at = "", 0
        self._number = 0

    def items(self) -> Iterator[tuple[Any, str, bool]]:
        """Yield each item, its JSON, and whether invalid UTF-8 in it became U+FFFD.

        Raises:
            InputError: this is not a JSON array, or an item is longer than `MAX_ROW_BYTES`.
        """
        self._require("[")
        if self._next_character() == "]":
            return
        while True:
            self._number += 1
            self._next_character()
            value, end = self._parse()
            item, self._at = self._text[self._at : end], end
            has_invalid = bool(ESCAPED_BYTES.search(item))
            if has_invalid:
                item = ESCAPED_BYTES.sub("\ufffd", item)
                value = DECODER.decode(item)
            yield value, item, has_invalid
            if self._require(",]") == "]":
                return

    def _read_more(self) -> bool:
        piece = self._stream.read(max(1 << 20, len(self._text) - self._at))
        self._text = self._text[self._at :] + self._decode(piece, final=not piece)
        self._at = 0
        return bool(piece) and len(self._text) <= MAX_ROW_BYTES

    def _next_character(self) -> str:
        """Skip white space; return the next character, or "" at the end of the file."""
        while True:
            space = JSON_SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def _require(self, wanted: str) -> str:
        found = self._next_character()
        if not found or found not in wanted:
            after = f" after item {self._number}" if self._number else ""
            expected = " or ".join(wanted)
            raise InputError(f"{self._name} is not a JSON array: expected {expected}{after}")
        self._at += 1
        return found

    def _parse(self) -> tuple[Any, int]:
        while True:
            try:
                return DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                if not self._read_more():
                    limit = f"{MAX_ROW_BYTES >> 20} MB"
                    raise InputError(
                        f"{self._name}: item {self._number} is not valid JSON, or is longer than "
                        f"{limit}"
                    ) from None


# ---------------------------------------------------------------------------------- CSV and Parquet


def csv_texts(stream: Any, field: str, *, name: str, start: bytes, delimiter: str) -> Iterator[Any]:
    """Iterate over one column of CSV, as UTF-8 bytes.

    Args:
        stream: the file.
        field: the name of a column.
        name: the file, for messages.
        start: the first bytes of the file, which contain the header.
        delimiter: what separates columns; an empty string detects `,` or `;`.

    Raises:
        InputError: the column does not exist, or the file is damaged.
    """
    header = start.decode("utf-8-sig", "replace")
    if not header.strip():
        return
    first = header.lstrip().split("\n", 1)[0]
    delimiter = delimiter or (";" if first.count(";") > first.count(",") else ",")
    names = next(csv.reader(io.StringIO(header.lstrip()), delimiter=delimiter))
    if field not in names:
        raise _missing(name, field, names)
    reader = arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK_BYTES),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # As bytes, because strings would have to be valid UTF-8.
        convert_options=arrow_csv.ConvertOptions(
            include_columns=[field], column_types={field: pa.large_binary()}
        ),
    )
    for batch in reader:
        yield from batch.column(0).to_pylist()


def parquet_texts(file: IO[bytes], field: str, *, name: str) -> tuple[int, Iterator[Any]]:
    """Return the number of rows in a Parquet file, and an iterator over one field.

    Texts are UTF-8 bytes, which the writer may not have validated. No other column is read.

    Raises:
        InputError: the field does not exist, or is neither text nor a list of texts.
    """
    # The defaults would load the column of a whole row group into memory.
    reader = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    path, kind = _arrow_path(reader.schema_arrow, field, name=name)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not _is_text(kind.value_type if is_list else kind):
        raise InputError(f"{name}: column {field!r} is not text but {kind}")
    return reader.metadata.num_rows, _column(reader, path, is_list=is_list)


def _arrow_path(fields: Any, field: str, *, name: str) -> tuple[list[str], Any]:
    """Return the names on the way to a field, and its type."""
    names = [inner.name for inner in fields]
    column = require_field(name, field, names)
    kind, inner = fields.field(names.index(column)).type, field[len(column) + 1 :]
    if not inner:
        return [column], kind
    if not pa.types.is_struct(kind):
        raise InputError(f"{name}: column {column!r} is not a struct but {kind}")
    path, kind = _arrow_path(kind, inner, name=f"{name}: column {column!r}")
    return [column, *path], kind


def _column(reader: parquet.ParquetFile, path: list[str], *, is_list: bool) -> Iterator[Any]:
    for batch in reader.iter_batches(ROWS_PER_BATCH, columns=[".".join(path)], use_threads=False):
        column = batch.column(0)
        for name in path[1:]:
            column = pc.struct_field(column, name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = pa.large_list(pa.large_binary()) if is_list else pa.large_binary()
        yield from column.cast(kind).to_pylist()


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )
