"""Read the text field of JSONL and Parquet rows."""

import json
import reprlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
from pyarrow import parquet

from bertpt.corpus.hub import require_field
from bertpt.errors import InputError

# Accept raw control characters, such as a tab, in strings; many writers leave them in.
DECODER = json.JSONDecoder(strict=False)
ROWS_PER_BATCH = 128


def parse_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object in a line, or `None` if it contains anything else."""
    try:
        value = DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_text(line: str, field: str, *, position: str) -> Any:
    """Return the value of a field in a line of JSONL.

    Raises:
        InputError: the line is not a JSON object, or lacks the field.
    """
    row = parse_object(line)
    if row is None:
        raise InputError(f"{position} is not a JSON object: {reprlib.repr(line)}")
    require_field(position, field, list(row))
    return row[field]


def require_text(value: Any, field: str, *, position: str) -> None:
    """Refuse a value that is neither text nor null."""
    if value is not None and not isinstance(value, str | bytes):
        raise InputError(f"{position}: field {field!r} is not text but {reprlib.repr(value)}")


def parquet_texts(file: IO[bytes], field: str, *, name: str) -> tuple[int, Iterator[bytes | None]]:
    """Return the number of rows in a Parquet file, and an iterator over one column.

    The column is UTF-8 bytes, which the writer may not have validated. No other column is read.

    Raises:
        InputError: the column does not exist or is not text.
    """
    # The defaults would load the column of a whole row group into memory.
    reader = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    require_field(name, field, reader.schema_arrow.names)
    kind = reader.schema_arrow.field(field).type
    if not _is_text(kind):
        raise InputError(f"{name}: column {field!r} is not text but {kind}")
    return reader.metadata.num_rows, _column(reader, field)


def _column(reader: parquet.ParquetFile, field: str) -> Iterator[bytes | None]:
    for batch in reader.iter_batches(ROWS_PER_BATCH, columns=[field], use_threads=False):
        column = batch.column(0)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        yield from column.cast(pa.large_binary()).to_pylist()


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
