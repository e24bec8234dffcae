"""Read DATA folders: their manifest, tokenizer, and Arrow shards."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bertpt import files
from bertpt.config import SPLITS
from bertpt.data.example import Example
from bertpt.data.folder import Checked, Folder
from bertpt.data.masking import Masking
from bertpt.errors import InputError, MismatchError
from bertpt.text import printable
from bertpt.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import datasets

# Settings that define an example. seq_len may differ: the largest counts.
MUST_AGREE = ("objective", "masked_lm_prob", "max_predictions_per_seq", "whole_word", "span")
COUNTS = ("documents", "sentences", "tokens", "examples")


class Examples:
    """The examples of a split, memory-mapped; `examples[row]` is an `Example`.

    Attributes:
        stored: the same rows as a `datasets.Dataset`.
    """

    def __init__(self, stored: "datasets.Dataset") -> None:
        self.stored = stored
        self._tables = stored.with_format("arrow")

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, row: int) -> Example:
        return self.take([row])[0]

    def take(self, rows: Iterable[int]) -> list[Example]:
        """Return the examples of some rows, in the order given."""
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


class Dataset:
    """One or more DATA folders, concatenated.

    Args:
        paths: the folder or folders.
        checked: the `checked` of an earlier instance. Shards whose size and mtime have not changed
            since are not hashed again, which would take minutes for billions of examples.

    Attributes:
        settings: how the examples were built. For several folders, those of the first, with the
            largest seq_len and no shard.
        manifest: settings, counts and shards as build-data wrote them. For several folders, the
            settings, the tokenizer's figures, and summed counts.

    Raises:
        InputError: a path is not a data folder, or two folders hold the same data.
        MismatchError: the folders differ in tokenizer, objective or masking; the message names
            both values.
    """

    def __init__(self, paths: Path | Sequence[Path], *, checked: Checked | None = None) -> None:
        paths = [paths] if isinstance(paths, Path) else paths
        if not paths:
            raise InputError("no data folder was given; make one with bertpt build-data")
        self._folders = [Folder(path, checked or {}) for path in paths]
        _require_compatible(self._folders)
        first = self._folders[0]
        self.settings, self.manifest = first.settings, first.manifest
        if len(self._folders) > 1:
            seq_len = max(folder.settings.seq_len for folder in self._folders)
            self.settings = dataclasses.replace(first.settings, seq_len=seq_len, shard=None)
            self.manifest = self._merged_manifest()
        self._examples: dict[str, Examples] = {}

    def _merged_manifest(self) -> Mapping[str, Any]:
        manifests = [folder.manifest for folder in self._folders]
        return {
            "settings": self.settings.to_dict(),
            "languages": sorted({folder.settings.language for folder in self._folders}),
            "tokenizer_sha256": manifests[0]["tokenizer_sha256"],
            "vocab_size": manifests[0]["vocab_size"],
            **{
                name: {split: sum(one[name][split] for one in manifests) for split in SPLITS}
                for name in COUNTS
            },
        }

    @property
    def paths(self) -> list[Path]:
        """The folders, in the order given."""
        return [folder.path for folder in self._folders]

    @property
    def name(self) -> str:
        """The first folders, for messages."""
        return ", ".join(map(str, self.paths[:3])) + (", ..." if len(self.paths) > 3 else "")

    @property
    def record(self) -> dict[str, Any]:
        """What a run records about its data: paths and fingerprint."""
        return {"paths": [printable(path) for path in self.paths], "sha256": self.fingerprint}

    @property
    def checked(self) -> Checked:
        """The shards verified so far, for the argument `checked` of a later instance."""
        return {str(folder.path.resolve()): folder.verified for folder in self._folders}

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that produced the ids."""
        return self._folders[0].tokenizer

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest, which covers shards and tokenizer, or of several manifests."""
        prints = [files.sha256(path / "manifest.json") for path in self.paths]
        if len(prints) == 1:
            return prints[0]
        return hashlib.sha256("".join(prints).encode()).hexdigest()

    @property
    def masking(self) -> Masking:
        """The masking that drew the stored masks."""
        return Masking.from_config(self.tokenizer, self.settings)

    @cached_property
    def token_counts(self) -> np.ndarray:
        """How often each id occurs in the training documents: int64, (vocab_size,)."""
        counts: np.ndarray = np.sum([folder.token_counts() for folder in self._folders], axis=0)
        return counts

    def examples(self, split: str) -> Examples:
        """Open a split, "train" or "valid".

        The first call checks the split's files against the manifest.

        Raises:
            InputError: a file is damaged, missing, or not the one that was built.
        """
        if split not in self._examples:
            import datasets  # noqa: PLC0415  takes a second, which build-data saves

            parts = [folder.open(split) for folder in self._folders]
            self._examples[split] = Examples(
                parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)
            )
        return self._examples[split]


def _require_compatible(folders: Sequence[Folder]) -> None:
    """Check that the folders can be concatenated."""
    first, *others = folders
    for other in others:
        mine, theirs = (folder.manifest["tokenizer_sha256"] for folder in (first, other))
        if mine != theirs:
            raise MismatchError(
                f"{first.path} was built with tokenizer {mine[:12]}, {other.path} with "
                f"{theirs[:12]}; build both with the same `tokenizer`, such as "
                f"{first.path / 'tokenizer'}"
            )
        for name in MUST_AGREE:
            mine, theirs = (getattr(folder.settings, name) for folder in (first, other))
            if mine != theirs:
                raise MismatchError(
                    f"{first.path} was built with {name} {mine}, {other.path} with {theirs}; build "
                    "both with the same settings, or train on one of them"
                )
    seen: dict[str, Folder] = {}
    for folder in folders if others else ():
        fingerprint = files.sha256(folder.path / "manifest.json")
        same = seen.setdefault(fingerprint, folder)
        if same is not folder:
            raise InputError(
                f"{same.path} and {folder.path} contain the same data (manifest "
                f"{fingerprint[:12]}); give it once"
            )
