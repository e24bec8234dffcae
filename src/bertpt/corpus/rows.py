"""The text field of rows: a line of JSONL, or a column of a Parquet file."""

import json
import reprlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
from pyarrow import parquet

from bertpt.corpus.hub import require_field
from bertpt.errors import InputError

# Characters such as a raw tab in a string are an error to the letter of the standard only.
DECODER = json.JSONDecoder(strict=False)
ROWS_PER_BATCH = 128


def parse_object(line: str) -> dict[str, Any] | None:
    """The JSON object that a line holds, or None where it holds something else."""
    try:
        value = DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_text(line: str, field: str, *, place: str) -> Any:
    """What a line of JSONL holds in a field.

    Raises:
        InputError: the line is no JSON object, or lacks the field.
    """
    row = parse_object(line)
    if row is None:
        raise InputError(f"{place} is no JSON object: {reprlib.repr(line)}")
    require_field(place, field, list(row))
    return row[field]


def require_text(value: Any, field: str, *, place: str) -> None:
    """Refuses what is neither text nor missing."""
    if value is not None and not isinstance(value, str | bytes):
        raise InputError(f"{place} holds no text in {field!r} but {reprlib.repr(value)}")


def parquet_texts(file: IO[bytes], field: str, *, name: str) -> tuple[int, Iterator[bytes | None]]:
    """The number of rows in a Parquet file, and a column as UTF-8, a few rows at a time.

    Bytes, because nothing makes sure that a writer put valid UTF-8 there. No other column is read.

    Raises:
        InputError: there is no such column, or it does not hold text.
    """
    # Without these two, a column of a whole row group would be held in memory.
    reader = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    require_field(name, field, reader.schema_arrow.names)
    kind = reader.schema_arrow.field(field).type
    if not _holds_text(kind):
        raise InputError(f"{name} holds no text in {field!r} but {kind}")
    return reader.metadata.num_rows, _column(reader, field)


def _column(reader: parquet.ParquetFile, field: str) -> Iterator[bytes | None]:
    for batch in reader.iter_batches(ROWS_PER_BATCH, columns=[field], use_threads=False):
        column = batch.column(0)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        yield from column.cast(pa.large_binary()).to_pylist()


def _holds_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )
