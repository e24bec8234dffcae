"""Several DATA folders, such as those made of the parts of a corpus, read as one."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from bertpt import files
from bertpt.config import SPLITS
from bertpt.data.dataset import Checked, DataFolder, Examples
from bertpt.data.masking import Masking
from bertpt.data.tokenizer import Tokenizer
from bertpt.errors import InputError, MismatchError

# Settings that decide what an example is; seq_len may differ, and the greatest one counts.
MUST_AGREE = ("objective", "masked_lm_prob", "max_predictions_per_seq", "whole_word", "span")
COUNTS = ("documents", "sentences", "tokens", "examples")


def open_data(paths: Path | Sequence[Path], *, checked: Checked | None = None) -> "AnyData":
    """Opens one DATA folder, or several as one.

    Args:
        paths: where they are.
        checked: what an earlier opening found, as `DataFolder` takes it.

    Raises:
        InputError: one is no data folder, there is none, or two hold the same data.
        MismatchError: they differ in tokenizer, objective or masking; the message names both.
    """
    if isinstance(paths, Path):
        return DataFolder(paths, checked=checked)
    if not paths:
        raise InputError("no data folder was given; make one with bertpt build-data")
    if len(paths) == 1:
        return DataFolder(paths[0], checked=checked)
    return DataFolders(paths, checked=checked)


class DataFolders:
    """Several finished DATA folders: one's examples follow another's, in the order given.

    Has all that training and evaluation use of a `DataFolder`.

    Attributes:
        folders: one by one.
        settings: of the first folder, with the greatest seq_len of all and without its shard.
        manifest: the settings, what the tokenizer is, and counts of all folders together.

    Raises:
        InputError: one is no data folder, or two hold the same data.
        MismatchError: they differ in tokenizer, objective or masking; the message names both.
    """

    def __init__(self, paths: Sequence[Path], *, checked: Checked | None = None) -> None:
        self.folders = [DataFolder(path, checked=checked) for path in paths]
        first, *others = self.folders
        for other in others:
            _require_agreement(first, other)
        self._require_no_repeats()
        longest = max(folder.settings.seq_len for folder in self.folders)
        self.settings = dataclasses.replace(first.settings, seq_len=longest, shard=None)
        self.manifest: Mapping[str, Any] = {
            "settings": self.settings.to_dict(),
            "languages": sorted({folder.settings.language for folder in self.folders}),
            "tokenizer_sha256": first.manifest["tokenizer_sha256"],
            "vocab_size": first.manifest["vocab_size"],
            **{name: self._summed(name) for name in COUNTS},
        }
        self._examples: dict[str, Examples] = {}

    def _require_no_repeats(self) -> None:
        seen: dict[str, DataFolder] = {}
        for folder in self.folders:
            same = seen.setdefault(folder.fingerprint, folder)
            if same is not folder:
                raise InputError(
                    f"{same.path} and {folder.path} hold the same data (manifest "
                    f"{folder.fingerprint[:12]}); give it once"
                )

    def _summed(self, name: str) -> dict[str, int]:
        return {split: sum(one.manifest[name][split] for one in self.folders) for split in SPLITS}

    @property
    def checked(self) -> Checked:
        """What this opening found right, for the next one."""
        return {name: files for folder in self.folders for name, files in folder.checked.items()}

    @property
    def name(self) -> str:
        """The folders, or the first of them, for messages."""
        paths = [str(folder.path) for folder in self.folders[:3]]
        return ", ".join(paths) + (", ..." if len(self.folders) > 3 else "")

    @property
    def record(self) -> dict[str, Any]:
        """What a run notes of its data: where it is, and its fingerprint."""
        paths = [files.printable(folder.path) for folder in self.folders]
        return {"paths": paths, "sha256": self.fingerprint}

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids."""
        return self.folders[0].tokenizer

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the folders' fingerprints, in their order."""
        joined = "".join(folder.fingerprint for folder in self.folders)
        return hashlib.sha256(joined.encode()).hexdigest()

    @property
    def masking(self) -> Masking:
        """The masking that the stored masks were drawn with, to draw others."""
        return Masking.of(self.tokenizer, self.settings)

    @cached_property
    def token_counts(self) -> np.ndarray:
        """How often each id occurs in the training documents: int64, (vocab_size,)."""
        counts: np.ndarray = np.sum([folder.token_counts for folder in self.folders], axis=0)
        return counts

    def examples(self, split: str) -> Examples:
        """Opens a split of every folder, through memory maps; their files are checked once.

        Raises:
            InputError: files are damaged or not those that were built.
        """
        if split not in self._examples:
            stored = [folder.examples(split).stored for folder in self.folders]
            self._examples[split] = Examples(datasets.concatenate_datasets(stored))
        return self._examples[split]


AnyData = DataFolder | DataFolders


def recorded_paths(record: Mapping[str, Any]) -> list[str]:
    """The folders that a run's note of its data, `record`, tells of."""
    return list(record["paths"]) if "paths" in record else [record["path"]]


def _require_agreement(one: DataFolder, other: DataFolder) -> None:
    first, second = (folder.manifest["tokenizer_sha256"] for folder in (one, other))
    if first != second:
        raise MismatchError(
            f"{one.path} was built with tokenizer {first[:12]}, {other.path} with {second[:12]}; "
            f"build both with the same --tokenizer, such as {one.path / 'tokenizer'}"
        )
    for name in MUST_AGREE:
        first, second = (getattr(folder.settings, name) for folder in (one, other))
        if first != second:
            raise MismatchError(
                f"{one.path} was built with {name} {first}, {other.path} with {second}; build both "
                "alike, or train on one of them"
            )
