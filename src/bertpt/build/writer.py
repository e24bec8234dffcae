"""Arrow shards of one split, in the format of `datasets`.

This does not import `datasets`, which takes a second: long compared to a small build.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertpt import files
from bertpt.build.arrow import to_arrow, to_lists
from bertpt.build.columns import Columns
from bertpt.data.example import token_dtype
from bertpt.progress import Progress

EXAMPLES_PER_BATCH = 1 << 15  # large, since opening takes the same time for each batch
EXAMPLES_PER_SHARD = 1 << 20


def features(ids: np.dtype) -> dict[str, Any]:
    """Return the columns of an example in the form of `datasets.Features.to_dict`.

    Args:
        ids: dtype of token ids.
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
    """Return the columns in the form of `datasets.Features.arrow_schema`."""
    columns = features(ids)

    def kind(column: dict[str, Any]) -> pa.DataType:
        if column["_type"] == "List":
            return pa.list_(kind(column["feature"]))
        return pa.type_for_alias(column["dtype"])

    fields = [pa.field(name, kind(column)) for name, column in columns.items()]
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": columns}})})


class SplitWriter:
    """Writes examples to the Arrow shards of one split, with one batch in memory at a time."""

    def __init__(self, folder: Path, *, vocab_size: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._ids = token_dtype(vocab_size)
        self._schema = schema(self._ids)
        self._waiting = [Columns.from_examples([], self._ids)]
        self._shards: list[int] = []  # examples in each
        self._writer: Any = None

    def extend(self, examples: Columns) -> None:
        """Add examples; the files do not depend on how many are added at a time."""
        self._waiting.append(examples)
        if sum(map(len, self._waiting)) < EXAMPLES_PER_BATCH:
            return
        examples = Columns.concatenate(self._waiting)
        full = len(examples) - len(examples) % EXAMPLES_PER_BATCH
        for start in range(0, full, EXAMPLES_PER_BATCH):
            self._write_batch(examples.slice(start, start + EXAMPLES_PER_BATCH))
        self._waiting = [examples.slice(full, len(examples))]

    def _path(self, shard: int) -> Path:
        return self._folder / f"data-{shard:05d}.arrow"

    def _write_batch(self, examples: Columns) -> None:
        if self._writer is None:
            path = self._path(len(self._shards))
            self._writer = pa.ipc.new_stream(str(path), self._schema)
            self._shards.append(0)
        arrays = [
            to_lists(examples.input_ids, examples.num_tokens),
            to_arrow(examples.b_starts),
            to_arrow(examples.next_sentence_labels),
            to_lists(examples.masked_positions, examples.num_masked),
            to_lists(examples.masked_input_ids, examples.num_masked),
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._shards[-1] += len(examples)
        if self._shards[-1] >= EXAMPLES_PER_SHARD:
            self.close()

    def close(self) -> None:
        """Close the current shard, if there is one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def finish(self, progress: Progress) -> list[dict[str, Any]]:
        """Write the rest and the metadata for `datasets.load_from_disk`; return the shards."""
        rest = Columns.concatenate(self._waiting)
        if len(rest) or not self._shards:  # an empty split has a shard, too
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
