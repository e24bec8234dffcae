"""The DATA folder: Arrow shards that `datasets` opens, a manifest, the tokenizer."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import pyarrow as pa

from bertpt import files
from bertpt.config import BuildConfig
from bertpt.data import tokenizer
from bertpt.data.example import Example, Rows, token_dtype
from bertpt.data.masking import Masking
from bertpt.errors import InputError, MismatchError

FORMAT = "bertpt-data"
FORMAT_VERSION = 1
REQUIRED = ("format_version", "settings", "tokenizer_sha256", "vocab_size", "examples", "shards")
EXAMPLES_PER_BATCH = 4096
EXAMPLES_PER_SHARD = 1 << 20


# --------------------------------------------------------------------------------------- writing


class SplitWriter:
    """Writes examples into the Arrow shards of one split, a batch of them in memory at a time."""

    def __init__(self, folder: Path, *, vocab_size: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._ids = token_dtype(vocab_size)
        ids = datasets.List(datasets.Value(self._ids.name))
        self._features = datasets.Features(
            {
                "input_ids": ids,
                "b_start": datasets.Value("int32"),
                "next_sentence_label": datasets.Value("int8"),
                "masked_positions": datasets.List(datasets.Value("uint16")),
                "masked_input_ids": ids,
            }
        )
        self._waiting = Rows.of([], self._ids)
        self._shards: list[int] = []  # examples in each
        self._writer: Any = None

    def extend(self, rows: Rows) -> None:
        """Adds examples; how many come at a time does not show in the files."""
        rows = Rows.joined([self._waiting, rows])
        full = len(rows) - len(rows) % EXAMPLES_PER_BATCH
        for start in range(0, full, EXAMPLES_PER_BATCH):
            self._write_batch(rows.part(start, start + EXAMPLES_PER_BATCH))
        self._waiting = rows.part(full, len(rows))

    def _path(self, shard: int) -> Path:
        return self._folder / f"data-{shard:05d}.arrow"

    def _write_batch(self, rows: Rows) -> None:
        if self._writer is None:
            path = self._path(len(self._shards))
            self._writer = pa.ipc.new_stream(str(path), self._features.arrow_schema)
            self._shards.append(0)
        arrays = [
            _lists(rows.input_ids, rows.num_tokens),
            pa.array(rows.b_starts),
            pa.array(rows.next_sentence_labels),
            _lists(rows.masked_positions, rows.num_masked),
            _lists(rows.masked_input_ids, rows.num_masked),
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._features.arrow_schema))
        self._shards[-1] += len(rows)
        if self._shards[-1] >= EXAMPLES_PER_SHARD:
            self.close()

    def close(self) -> None:
        """Closes the shard being written; harmless when there is none."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def finish(self) -> list[dict[str, Any]]:
        """Writes what is left and what `datasets.load_from_disk` needs; tells the shards."""
        if len(self._waiting) or not self._shards:  # an empty split has a shard all the same
            self._write_batch(self._waiting)
        self.close()
        paths = [self._path(shard) for shard in range(len(self._shards))]
        digests = [files.sha256(path) for path in paths]
        files.write_json(self._folder / "dataset_info.json", {"features": self._features.to_dict()})
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


def _lists(values: np.ndarray, lengths: np.ndarray) -> pa.ListArray:
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


# --------------------------------------------------------------------------------------- reading


class Examples:
    """The examples of one split, read through a memory map; `examples[row]` is an `Example`.

    Attributes:
        stored: the rows as `datasets` opens them.
    """

    def __init__(self, stored: datasets.Dataset) -> None:
        self.stored = stored
        self._tables = stored.with_format("arrow")

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, row: int) -> Example:
        return self.take([row])[0]

    def take(self, rows: Iterable[int]) -> list[Example]:
        """The examples of some rows, in that order."""
        table = self._tables[[int(row) for row in rows]]
        ids, positions, seen = (
            _unpack(table[name]) for name in ("input_ids", "masked_positions", "masked_input_ids")
        )
        starts, labels = table["b_start"].to_pylist(), table["next_sentence_label"].to_pylist()
        return [Example(*row) for row in zip(ids, starts, labels, positions, seen, strict=True)]


def _unpack(column: pa.ChunkedArray) -> list[np.ndarray]:
    lists = column.combine_chunks()
    offsets = lists.offsets.to_numpy()
    values = lists.values.to_numpy().astype(np.int64)
    return [values[i:j] for i, j in pairwise(offsets)]


class DataFolder:
    """A finished DATA folder.

    Attributes:
        path: where it is.
        manifest: settings, counts and shards, as `build` wrote them.
        settings: what the examples were built with.

    Raises:
        InputError: there is none, or it is of another format.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise InputError(f"no such data folder: {path}")
        if not is_data_folder(path):
            raise InputError(f"{path} is not a data folder; make one with bertpt build-data")
        self.path = path
        self.manifest: Mapping[str, Any] = files.read_json(path / "manifest.json")
        if missing := [key for key in REQUIRED if key not in self.manifest]:
            raise InputError(f"{path / 'manifest.json'} lacks {', '.join(missing)}; build it again")
        version = self.manifest["format_version"]
        if version != FORMAT_VERSION:
            raise InputError(
                f"{path} has format version {version}, this bertpt reads {FORMAT_VERSION}; "
                "build it again"
            )
        self._examples: dict[str, Examples] = {}
        self.settings = BuildConfig.read(self.manifest["settings"], path / "manifest.json")

    @cached_property
    def tokenizer(self) -> tokenizer.Tokenizer:
        """The tokenizer that made the ids."""
        loaded = tokenizer.load(self.path / "tokenizer")
        _require_same(
            self.path / "tokenizer", loaded.fingerprint, self.manifest["tokenizer_sha256"]
        )
        return loaded

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest, which holds those of the shards and the tokenizer."""
        return files.sha256(self.path / "manifest.json")

    @property
    def masking(self) -> Masking:
        """The masking that the stored masks were drawn with, to draw others."""
        return Masking.of(self.tokenizer, self.settings)

    @cached_property
    def token_counts(self) -> np.ndarray:
        """How often each id occurs in the training documents: int64, (vocab_size,)."""
        path = self.path / "token_counts.npy"
        try:
            return cast("np.ndarray", np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} cannot be read; build the data again") from error

    def examples(self, split: str) -> Examples:
        """Opens a split; the first time, its files are checked against the manifest.

        Raises:
            InputError: its files are damaged or not those that were built.
        """
        if split not in self._examples:
            self._examples[split] = self._open(split)
        return self._examples[split]

    def _open(self, split: str) -> Examples:
        for shard in self.manifest["shards"]:
            path = self.path / shard["file"]
            if path.parent.name == split:
                found = files.sha256(path) if path.is_file() else "missing"
                _require_same(path, found, shard["sha256"])
        try:
            found = datasets.load_from_disk(str(self.path / split))
        except (OSError, ValueError, pa.ArrowException, json.JSONDecodeError) as error:
            raise InputError(f"{self.path / split} cannot be read: {error}") from error
        expected = self.manifest["examples"][split]
        if len(found) != expected:
            raise InputError(
                f"{self.path / split} holds {len(found)} examples, its manifest says {expected}; "
                "build it again"
            )
        return Examples(found)


def _require_same(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise MismatchError(
            f"{path} has SHA-256 {found[:12]}, its manifest says {expected[:12]}; it was damaged "
            "or changed, so build the data again"
        )


def is_data_folder(path: Path) -> bool:
    """Whether a folder was made by build-data."""
    manifest = path / "manifest.json"
    try:
        return bool(json.loads(manifest.read_bytes())["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False
