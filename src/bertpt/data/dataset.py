"""The DATA folder: Arrow shards that `datasets` opens, a manifest, the tokenizer."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from bertpt import files
from bertpt.config import BuildConfig
from bertpt.data import tokenizer
from bertpt.data.example import Example
from bertpt.data.masking import Masking
from bertpt.errors import InputError, MismatchError

if TYPE_CHECKING:
    import datasets

FORMAT = "bertpt-data"
FORMAT_VERSION = 1
REQUIRED = ("format_version", "settings", "tokenizer_sha256", "vocab_size", "examples", "shards")


class Examples:
    """The examples of one split, read through a memory map; `examples[row]` is an `Example`.

    Attributes:
        stored: the rows as `datasets` opens them.
    """

    def __init__(self, stored: "datasets.Dataset") -> None:
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


# For each DATA folder, the size and time (ns) of its shards when their SHA-256 was found right.
Checked = Mapping[str, Mapping[str, Sequence[int]]]


class DataFolder:
    """A finished DATA folder.

    Args:
        path: where it is.
        checked: what was found earlier; a shard that has the same size and time is not read again
            only to be checked, which takes minutes where there are billions of examples.

    Attributes:
        path: where it is.
        checked: the same after this opening, for the next one.
        manifest: settings, counts and shards, as `build` wrote them.
        settings: what the examples were built with.

    Raises:
        InputError: there is none, or it is of another format.
    """

    def __init__(self, path: Path, *, checked: Checked | None = None) -> None:
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
        self._known = (checked or {}).get(str(path.resolve()), {})
        self._now: dict[str, Sequence[int]] = {}
        self.checked: Checked = {str(path.resolve()): self._now}
        self.settings = BuildConfig.read(self.manifest["settings"], path / "manifest.json")

    @property
    def name(self) -> str:
        """The folder, for messages."""
        return str(self.path)

    @property
    def record(self) -> dict[str, Any]:
        """What a run notes of its data: where it is, and its fingerprint."""
        return {"path": files.printable(self.path), "sha256": self.fingerprint}

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

    def _check(self, path: Path, name: str, expected: str) -> None:
        if not path.is_file():
            _require_same(path, "missing", expected)
        stamp = _stamp(path)
        if self._known.get(name) != stamp:
            _require_same(path, files.sha256(path), expected)
        self._now[name] = stamp

    def _open(self, split: str) -> Examples:
        import datasets  # noqa: PLC0415  takes a second, and who writes a folder needs none of it

        for shard in self.manifest["shards"]:
            path = self.path / shard["file"]
            if path.parent.name == split:
                self._check(path, shard["file"], shard["sha256"])
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


def _stamp(path: Path) -> Sequence[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


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
