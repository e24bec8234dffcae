"""The Arrow shards of one split, written so that `datasets` opens them.

`datasets` itself takes a second to import, which is long beside a small build.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertpt import files
from bertpt.build.arrow import to_arrow, to_lists
from bertpt.data.example import Rows, token_dtype
from bertpt.progress import Progress

EXAMPLES_PER_BATCH = 1 << 15  # large, since opening takes as long for each
EXAMPLES_PER_SHARD = 1 << 20


def features(ids: np.dtype) -> dict[str, Any]:
    """The columns of an example as `datasets.Features.to_dict` has them.

    Args:
        ids: the type of token ids.
    """

    def value(dtype: str) -> dict[str, Any]:
        return {"dtype": dtype, "_type": "Value"}

    def several(dtype: str) -> dict[str, Any]:
        return {"feature": value(dtype), "_type": "List"}

    return {
        "input_ids": several(ids.name),
        "b_start": value("int32"),
        "next_sentence_label": value("int8"),
        "masked_positions": several("uint16"),
        "masked_input_ids": several(ids.name),
    }


def schema(ids: np.dtype) -> pa.Schema:
    """The same for Arrow, as `datasets.Features.arrow_schema` has it."""
    columns = features(ids)

    def kind(column: dict[str, Any]) -> pa.DataType:
        if column["_type"] == "List":
            return pa.list_(kind(column["feature"]))
        return pa.type_for_alias(column["dtype"])

    fields = [pa.field(name, kind(column)) for name, column in columns.items()]
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": columns}})})


class SplitWriter:
    """Writes examples into the Arrow shards of one split, a batch of them in memory at a time."""

    def __init__(self, folder: Path, *, vocab_size: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._ids = token_dtype(vocab_size)
        self._schema = schema(self._ids)
        self._waiting = [Rows.of([], self._ids)]
        self._shards: list[int] = []  # examples in each
        self._writer: Any = None

    def extend(self, rows: Rows) -> None:
        """Adds examples; how many come at a time does not show in the files."""
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) < EXAMPLES_PER_BATCH:
            return
        rows = Rows.joined(self._waiting)
        full = len(rows) - len(rows) % EXAMPLES_PER_BATCH
        for start in range(0, full, EXAMPLES_PER_BATCH):
            self._write_batch(rows.part(start, start + EXAMPLES_PER_BATCH))
        self._waiting = [rows.part(full, len(rows))]

    def _path(self, shard: int) -> Path:
        return self._folder / f"data-{shard:05d}.arrow"

    def _write_batch(self, rows: Rows) -> None:
        if self._writer is None:
            path = self._path(len(self._shards))
            self._writer = pa.ipc.new_stream(str(path), self._schema)
            self._shards.append(0)
        arrays = [
            to_lists(rows.input_ids, rows.num_tokens),
            to_arrow(rows.b_starts),
            to_arrow(rows.next_sentence_labels),
            to_lists(rows.masked_positions, rows.num_masked),
            to_lists(rows.masked_input_ids, rows.num_masked),
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._shards[-1] += len(rows)
        if self._shards[-1] >= EXAMPLES_PER_SHARD:
            self.close()

    def close(self) -> None:
        """Closes the shard being written; harmless when there is none."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def finish(self, progress: Progress) -> list[dict[str, Any]]:
        """Writes what is left and what `datasets.load_from_disk` needs; tells the shards."""
        rest = Rows.joined(self._waiting)
        if len(rest) or not self._shards:  # an empty split has a shard all the same
            self._write_batch(rest)
        self.close()
        paths = [self._path(shard) for shard in range(len(self._shards))]
        size = sum(path.stat().st_size for path in paths)
        name = f"checksums of {self._folder.name}"
        with progress.bar(name, unit="B", unit_scale=True, total=size, leave=False) as bar:
            digests = [files.sha256(path, on_bytes=bar.update) for path in paths]
        files.write_json(self._folder / "dataset_info.json", {"features": features(self._ids)})
        files.write_json(
            self._folder / "state.json",
            {
                "_data_files": [{"filename": path.name} for path in paths],
                "_fingerprint": digests[0][:16],
                "_format_columns": None,
                "_format_kwargs": {},
                "_format_type": None,
                "_output_all_columns": False,
                "_split": None,
            },
        )
        return [
            {"file": f"{self._folder.name}/{path.name}", "examples": count, "sha256": digest}
            for path, count, digest in zip(paths, self._shards, digests, strict=True)
        ]
