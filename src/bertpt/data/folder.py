"""One DATA folder: its manifest, and its files checked against it."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from bertpt import files
from bertpt.config import SPLITS, BuildConfig
from bertpt.errors import InputError, MismatchError
from bertpt.tokenizer.tokenizer import FILES as TOKENIZER_FILES
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    import datasets

FORMAT = "bertpt-data"
FORMAT_VERSION = 1
REQUIRED = ("format_version", "settings", "tokenizer_sha256", "vocab_size", "examples", "shards")
SHARD_NAME = re.compile(rf"({'|'.join(SPLITS)})/[\w-][\w.-]*\.arrow")
# All files that build-data writes, and those in which `datasets` caches what it makes of them.
CONTENTS = re.compile(
    rf"manifest\.json|token_counts\.npy|tokenizer/({'|'.join(TOKENIZER_FILES)})|{SHARD_NAME.pattern}"
    rf"|({'|'.join(SPLITS)})/(state|dataset_info)\.json"
)
# For each DATA folder, the size and mtime (ns) of its shards when their SHA-256 was last verified.
Checked = Mapping[str, Mapping[str, Sequence[int]]]


class Folder:
    """A DATA folder that a `bertpt.data.dataset.Dataset` reads.

    Attributes:
        path: of the folder.
        manifest: its manifest.json.
        settings: with which it was built.
        verified: the size and mtime of the shards that were checked or known.
    """

    def __init__(self, path: Path, checked: Checked) -> None:
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
        self.settings = BuildConfig.read(self.manifest["settings"], path / "manifest.json")
        self._known = checked.get(str(path.resolve()), {})
        self.verified: dict[str, Sequence[int]] = {}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, checked against the manifest."""
        loaded = load_tokenizer(self.path / "tokenizer")
        _require_same(
            self.path / "tokenizer", loaded.fingerprint, self.manifest["tokenizer_sha256"]
        )
        return loaded

    def token_counts(self) -> np.ndarray:
        """Read how often each id occurs in the training documents: (vocab_size,)."""
        path = self.path / "token_counts.npy"
        try:
            return cast("np.ndarray", np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} cannot be read; build the data again") from error

    def open(self, split: str) -> "datasets.Dataset":
        """Check the shards of a split and open them as memory maps."""
        import datasets  # noqa: PLC0415

        self._verify_shards(split)
        try:
            found = datasets.load_from_disk(str(self.path / split))
        except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
            raise InputError(f"{self.path / split} cannot be read: {error}") from error
        expected = self.manifest["examples"][split]
        if len(found) != expected:
            raise InputError(
                f"{self.path / split} has {len(found)} examples, its manifest says {expected}; "
                "build the data again"
            )
        return cast("datasets.Dataset", found)

    def _verify_shards(self, split: str) -> None:
        """Check that the files that `datasets` would read are those of the manifest, unchanged."""
        path = self.path / split / "state.json"
        state = files.read_json(path)
        try:
            sums = {str(shard["file"]): shard["sha256"] for shard in self.manifest["shards"]}
            listed = [f"{split}/{file['filename']}" for file in state["_data_files"]]
        except (TypeError, KeyError) as error:
            problem = "the list of its shards is damaged"
            raise InputError(f"{self.path}: {problem}; build the data again") from error
        for name in sums:
            if not SHARD_NAME.fullmatch(name):
                raise InputError(
                    f"{self.path / 'manifest.json'} names a shard {name!r}, which is not a file of "
                    "train/ or valid/; build the data again"
                )
        named = [name for name in sums if name.startswith(f"{split}/")]
        if listed != named:
            raise InputError(
                f"{path} lists {', '.join(listed) or 'no files'}, the manifest "
                f"{', '.join(named) or 'none'}; build the data again"
            )
        for name in named:
            self._verify(self.path / name, name, sums[name])

    def _verify(self, path: Path, name: str, expected: str) -> None:
        if not path.is_file():
            _require_same(path, "missing", expected)
        stamp = _stamp(path)
        if self._known.get(name) != stamp:
            _require_same(path, files.sha256(path), expected)
        self.verified[name] = stamp


def _stamp(path: Path) -> Sequence[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _require_same(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise MismatchError(
            f"{path} has SHA-256 {found[:12]}, its manifest says {expected[:12]}; it is damaged "
            "or was changed: build the data again"
        )


def is_data_folder(path: Path) -> bool:
    """Return whether a folder was made by build-data."""
    return files.has_format(path / "manifest.json", FORMAT)
