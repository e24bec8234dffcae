"""trainer_state.json: written last into a checkpoint, with the checksum of every other file."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertpt import files
from bertpt.errors import InputError

STATE = "trainer_state.json"
FORMAT = "bertpt-checkpoint"


@dataclass(frozen=True)
class TrainerState:
    """All that resuming needs beside weights and optimizer state: the rest follows from the seed.

    Attributes:
        step: optimizer steps done.
        elapsed_seconds: time spent training them, pauses between runs left out.
        num_skipped: of the steps, those not taken since their numbers were not finite.
    """

    step: int
    elapsed_seconds: float
    num_skipped: int = 0


def seal(folder: Path, state: TrainerState) -> None:
    """Writes trainer_state.json, which makes a folder of files a complete checkpoint.

    It holds the state, the SHA-256 of every other file, and one of these entries themselves.
    """
    sums = {
        path.relative_to(folder).as_posix(): files.sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    entries = {"format": FORMAT, **asdict(state), "files": sums}
    files.write_json(folder / STATE, {**entries, "sha256": _checksum(entries)})


def is_sealed(folder: Path) -> bool:
    """Whether a folder is a checkpoint of ours, damaged or not."""
    try:
        return files.read_json(folder / STATE).get("format") == FORMAT
    except InputError:
        return False


def open_sealed(folder: Path) -> TrainerState:
    """Checks every file of a checkpoint.

    Returns:
        Its state.

    Raises:
        InputError: it is not complete, or a file is not what was written; the message names it.
    """
    path = folder / STATE
    entries = files.read_json(path)
    written = entries.pop("sha256", None)
    if written is None or "files" not in entries:
        raise InputError(f"{path} has no checksums, so an earlier bertpt wrote it")
    # Byte for byte, for JSON can say the same in many ways.
    whole = files.json_text({**entries, "sha256": written}).encode("utf-8", "surrogatepass")
    if written != _checksum(entries) or whole != path.read_bytes():
        raise InputError(f"{path} is damaged: it is not what its own checksum says")
    for name, expected in entries.pop("files").items():
        _require_same(folder / name, expected)
    del entries["format"]
    try:
        return TrainerState(**entries)
    except TypeError as error:
        raise InputError(f"{path} is of another version of bertpt: {error}") from error


def _checksum(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(files.json_text(entries).encode("utf-8", "surrogatepass")).hexdigest()


def _require_same(path: Path, expected: str) -> None:
    try:
        found = files.sha256(path)
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if found != expected:
        raise InputError(
            f"{path} is damaged: its SHA-256 is {found[:12]}, and {expected[:12]} was written"
        )
