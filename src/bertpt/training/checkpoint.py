"""The checkpoints of a RUN: which there are, which is the newest whole one, which may go."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from bertpt import files
from bertpt.errors import InputError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import load_tensors
from bertpt.model.pretrained import load_into
from bertpt.training.optimizer import load_optimizer_state
from bertpt.training.seal import STATE, TrainerState, is_sealed, open_sealed

OPTIMIZER = "optimizer.safetensors"
NAME = re.compile(r"step-(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint whose files are as they were written."""

    path: Path
    state: TrainerState

    def load(
        self, model: BertForPreTraining, optimizers: list[torch.optim.Optimizer]
    ) -> TrainerState:
        """Puts weights and optimizer state back.

        Raises:
            InputError: they are not those of such a model and such optimizers.
        """
        load_into(model, self.path)
        try:
            load_optimizer_state(optimizers, model, load_tensors(self.path / OPTIMIZER))
        except KeyError as error:
            raise InputError(f"{self.path / OPTIMIZER} is of another run: {error}") from error
        return self.state


class Checkpoints:
    """The folder of a RUN that has them."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self.path = run / "checkpoints"

    def paths(self) -> list[Path]:
        """The folders of checkpoints, the lowest step first; some may be damaged."""
        return [path for _, path in self._numbered() if is_sealed(path)]

    def newest(self, tell: Callable[[str], None] = lambda _: None) -> Checkpoint:
        """The newest complete checkpoint, every file of which is as it was written.

        Args:
            tell: is told of each newer one that was passed over, and why.

        Raises:
            InputError: there is none; the message says what is wrong with the newest.
        """
        passed_over: list[str] = []
        newest = ""
        for step, path in reversed(self._numbered()):
            try:
                state = open_sealed(path)
                if state.step != step:
                    raise InputError(f"{path} holds step {state.step}, so it was renamed")  # noqa: TRY301
            except InputError as error:
                passed_over.append(f"passing over {path}: {error}")
                newest = newest or str(error)
                continue
            for line in passed_over:
                tell(line)
            return Checkpoint(path, state)
        if newest:
            raise InputError(f"{newest}; no other checkpoint is whole, so start with `overwrite`")
        raise InputError(f"{self._run} holds no checkpoint yet; start again with `overwrite`")

    def make_place(self, step: int) -> Path:
        """The folder for the checkpoint of a step; what stands there and is not ours is renamed."""
        path = self.path / f"step-{step}"
        is_empty = path.is_dir() and not any(path.iterdir())
        if path.exists() and not is_empty and not _is_ours(path):
            number = 1
            while (other := path.with_name(f"{path.name}.foreign-{number}")).exists():
                number += 1
            path.rename(other)
        return path

    def rotate(self, step: int, keep_last: int) -> None:
        """Removes checkpoints of ours beyond the last `keep_last` up to the newest, `step`.

        Later steps are of damaged checkpoints that a resumed run passed over.
        """
        if keep_last:
            done = [path for number, path in self._numbered() if number <= step and _is_ours(path)]
            for old in done[:-keep_last]:
                files.remove_folder(old)

    def clean_up(self) -> list[Path]:
        """Removes what a process that was killed left unfinished, and gives its paths."""
        return files.clean_up(self.path, lambda name: bool(NAME.fullmatch(name)))

    def _numbered(self) -> list[tuple[int, Path]]:
        """What has the name of a checkpoint, by number: 9 before 10."""
        return sorted(
            (int(form[1]), path)
            for path in self.path.glob("step-*")
            if (form := NAME.fullmatch(path.name)) and path.is_dir()
        )


def _is_ours(path: Path) -> bool:
    """Whether a folder was saved here as a checkpoint, damaged or not."""
    return any((path / name).exists() for name in (STATE, OPTIMIZER))
