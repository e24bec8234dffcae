"""Checkpoints: the complete state of a run after a step, with a checksum of every file.

A checkpoint is a Hugging Face model folder plus optimizer.safetensors and trainer_state.json. The
last is written last and holds the SHA-256 of all other files, so a checkpoint is complete exactly
if it verifies.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertpt import files
from bertpt.config import BertConfig
from bertpt.errors import InputError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import load_tensors, save_tensors
from bertpt.model.pretrained import load_into, write_folder
from bertpt.tokenizer.tokenizer import Tokenizer
from bertpt.training.optimizer import load_optimizer_state

OPTIMIZER = "optimizer.safetensors"
STATE = "trainer_state.json"
FORMAT = "bertpt-checkpoint"
NAME = re.compile(r"step-(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class TrainerState:
    """What resuming needs besides weights and optimizer state; the rest follows from the seed.

    Attributes:
        step: optimizer steps done.
        elapsed_seconds: time spent on them, without the pauses between runs.
        num_skipped: steps among them that were skipped because their numbers were not finite.
    """

    step: int
    elapsed_seconds: float
    num_skipped: int = 0


@dataclass(frozen=True)
class Snapshot:
    """A copy of a run's state, which can be written while training goes on.

    Attributes:
        state: of the trainer.
        weights: on the CPU, by parameter name.
        optimizer: state of the optimizers; `None` if no checkpoint is due.
        config: of the model.
        tokenizer: of the data.
        card: the model card.
        best_card: the model card of best/; `None` unless this step has the best evaluation so far.
    """

    state: TrainerState
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor] | None
    config: BertConfig
    tokenizer: Tokenizer
    card: str
    best_card: str | None

    def write_model(self, folder: Path, card: str) -> None:
        """Write a Hugging Face model folder: weights, config, tokenizer, model card."""
        self.tokenizer.save(folder, max_tokens=self.config.max_position_embeddings)
        write_folder(folder, BertForPreTraining.__name__, self.config, self.weights)
        files.write_text(folder / "README.md", card)

    def write_optimizer(self, folder: Path) -> None:
        """Write the optimizer state, whose checksum will be in trainer_state.json."""
        assert self.optimizer is not None
        save_tensors(folder / OPTIMIZER, self.optimizer, checksum=False)


def copy_model(checkpoint: Path, folder: Path, card: str) -> None:
    """Copy the model of a checkpoint to a folder, with another model card."""
    for path in checkpoint.iterdir():
        if path.name not in (OPTIMIZER, STATE):
            shutil.copyfile(path, folder / path.name)
    files.write_text(folder / "README.md", card)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint."""

    path: Path
    state: TrainerState

    def load(self, model: BertForPreTraining, optimizers: list[torch.optim.Optimizer]) -> None:
        """Restore weights and optimizer state; `newest_checkpoint` has checked their bytes.

        Raises:
            InputError: they belong to another model or other optimizers.
        """
        load_into(model, self.path, verify=False)
        try:
            load_optimizer_state(
                optimizers, model, load_tensors(self.path / OPTIMIZER, verify=False)
            )
        except KeyError as error:
            raise InputError(f"{self.path / OPTIMIZER} is of another run: {error}") from error


# ------------------------------------------------------------------------- the checkpoints of a run


def checkpoint_paths(run: Path) -> list[Path]:
    """Return the checkpoints of a run in the order of their steps; some may be damaged."""
    return [path for _, path in _numbered(run) if _has_state(path)]


def newest_checkpoint(run: Path, log: Callable[[str], object] = lambda _: None) -> Checkpoint:
    """Find the newest checkpoint of a run that verifies.

    Args:
        run: the RUN folder.
        log: called with a line for each newer checkpoint that does not verify.

    Raises:
        InputError: no checkpoint verifies; the message says what is wrong with the newest.
    """
    skipped: list[str] = []
    newest = ""
    for step, path in reversed(_numbered(run)):
        try:
            state = verify(path)
            if state.step != step:
                raise InputError(f"{path} holds step {state.step}, so it was renamed")  # noqa: TRY301
        except InputError as error:
            skipped.append(f"skipping {path}: {error}")
            newest = newest or str(error)
            continue
        for line in skipped:
            log(line)
        return Checkpoint(path, state)
    if newest:
        raise InputError(f"{newest}; no other checkpoint is intact, so start with `overwrite`")
    raise InputError(f"{run} has no checkpoint yet; start again with `overwrite`")


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the folder for a step's checkpoint; rename a foreign folder of that name."""
    path = run / "checkpoints" / f"step-{step}"
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty and not _is_ours(path):
        number = 1
        while (other := path.with_name(f"{path.name}.foreign-{number}")).exists():
            number += 1
        path.rename(other)
    return path


def remove_old(run: Path, step: int, keep_last: int) -> None:
    """Remove all checkpoints up to `step` but the last `keep_last`; 0 keeps all.

    Later ones are damaged checkpoints that a resumed run skipped; they stay.
    """
    if keep_last:
        done = [path for number, path in _numbered(run) if number <= step and _is_ours(path)]
        for old in done[:-keep_last]:
            files.remove_folder(old)


def remove_unfinished(run: Path) -> list[Path]:
    """Remove what a killed process left unfinished, and return its paths."""
    return files.clean_up(run / "checkpoints", lambda name: bool(NAME.fullmatch(name)))


def _numbered(run: Path) -> list[tuple[int, Path]]:
    """Return (step, folder) of everything named like a checkpoint, by step."""
    return sorted(
        (int(match[1]), path)
        for path in (run / "checkpoints").glob("step-*")
        if (match := NAME.fullmatch(path.name)) and path.is_dir()
    )


def _is_ours(path: Path) -> bool:
    """Return whether a folder was written as a checkpoint, damaged or not."""
    return any((path / name).exists() for name in (STATE, OPTIMIZER))


def _has_state(path: Path) -> bool:
    return files.has_format(path / STATE, FORMAT)


# -------------------------------------------------------------------------------------- checksums


def complete(folder: Path, state: TrainerState) -> None:
    """Write trainer_state.json, which makes a folder of files a complete checkpoint.

    It holds the state, the SHA-256 of every other file, and a checksum of these entries.
    """
    sums = {
        path.relative_to(folder).as_posix(): files.sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    entries = {"format": FORMAT, **asdict(state), "files": sums}
    files.write_json(folder / STATE, {**entries, "sha256": _checksum(entries)})


def verify(folder: Path) -> TrainerState:
    """Check every file of a checkpoint and return its state.

    Raises:
        InputError: it is incomplete, or a file is not what was written; the message names it.
    """
    path = folder / STATE
    entries = files.read_json(path)
    written = entries.pop("sha256", None)
    if written is None or "files" not in entries:
        raise InputError(f"{path} has no checksums, so an earlier bertpt wrote it")
    # Compare bytes, since JSON can say the same in many ways.
    expected = files.json_text({**entries, "sha256": written}).encode("utf-8", "surrogatepass")
    if written != _checksum(entries) or expected != path.read_bytes():
        raise InputError(f"{path} is damaged: its contents do not match its checksum")
    for name, digest in entries.pop("files").items():
        _require_same(folder / name, digest)
    del entries["format"]
    try:
        return TrainerState(**entries)
    except TypeError as error:
        raise InputError(f"{path} was written by another version of bertpt: {error}") from error


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
            f"{path} is damaged: its SHA-256 is {found[:12]}, but {expected[:12]} was written"
        )
