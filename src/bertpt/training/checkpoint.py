"""The RUN folder: what a run was asked to do, its metrics, its checkpoints, its newest model."""

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import bertpt
from bertpt import files
from bertpt.config import PretrainConfig
from bertpt.data.dataset import Checked
from bertpt.data.folders import AnyData, recorded_paths
from bertpt.errors import InputError, MismatchError, SettingError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.folder import load_into
from bertpt.model.tensors import load_tensors, save_tensors
from bertpt.training.card import model_card
from bertpt.training.optimizer import load_optimizer_state, optimizer_state

FORMAT = "bertpt-run"
STATE = "trainer_state.json"
CHECKED = "checked_data.json"
OPTIMIZER = "optimizer.safetensors"

# What may change when a run is resumed: how long it runs, what it tells and keeps, and what a
# different machine may ask for. The last three change how sums are rounded.
CHANGEABLE = {
    *("steps", "epochs", "max_minutes", "eval_every", "eval_examples", "save_every"),
    *("keep_last", "log_every", "micro_batch_size", "device", "precision", "loader_workers"),
    *("skip_bad_batches",),
}


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


class RunFolder:
    """A RUN folder at `path`, finished or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics = path / "metrics.jsonl"

    # ------------------------------------------------------------------------- what was asked for

    def refuse_existing(self, *, overwrite: bool) -> None:
        """Checks that a run may be started here.

        Raises:
            OutputError: there is something that may not be replaced.
        """
        files.refuse_existing(self.path, overwrite=overwrite, is_ours=is_run_folder)

    def create(self, config: PretrainConfig, data: AnyData, *, overwrite: bool) -> None:
        """Makes the folder, with the resolved settings in its config.json.

        Raises:
            OutputError: there is something that may not be replaced.
        """
        self.refuse_existing(overwrite=overwrite)
        with files.new_folder(self.path) as work:
            packages = {
                name: version(name) for name in ("torch", "tokenizers", "datasets", "numpy")
            }
            files.write_json(
                work / "config.json",
                {
                    "format": FORMAT,
                    "settings": config.to_dict(),
                    "data": data.record,
                    "packages": {"bertpt": bertpt.__version__, **packages},
                },
            )

    def settings(self) -> PretrainConfig:
        """The settings that the run was started with.

        Raises:
            InputError: there is no such run.
        """
        if not is_run_folder(self.path):
            raise InputError(f"no run to resume in {self.path}; start one without --resume")
        path = self.path / "config.json"
        return PretrainConfig.read(files.read_json(path)["settings"], path)

    def update_settings(self, config: PretrainConfig) -> None:
        """Records the settings that a resumed run goes on with."""
        stored = files.read_json(self.path / "config.json")
        files.write_json(self.path / "config.json", {**stored, "settings": config.to_dict()})

    def require_same_data(self, data: AnyData) -> None:
        """Checks that the data is what the run was started on.

        Raises:
            MismatchError: it is not; the message names both fingerprints.
        """
        started = files.read_json(self.path / "config.json")["data"]
        if started["sha256"] != data.fingerprint:
            paths = recorded_paths(started)
            same = "the same data" if len(paths) == 1 else "the same folders in their order"
            raise MismatchError(
                f"{self.path} was trained on {', '.join(paths)} ({started['sha256'][:12]}), and "
                f"{data.name} is {data.fingerprint[:12]}; resume with {same}, or start another run"
            )

    def checked_data(self) -> Checked:
        """Which of the data's shards were found right when they were last used here."""
        try:
            noted = files.read_json(self.path / CHECKED)
        except InputError:
            return {}
        return {folder: found for folder, found in noted.items() if isinstance(found, dict)}

    def note_checked_data(self, data: AnyData) -> None:
        """Notes it, so that resuming need not read them all again."""
        files.write_json(self.path / CHECKED, data.checked)

    # ------------------------------------------------------------------------------------ metrics

    def log(self, entry: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl; JSON has only finite numbers, so others are null."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in entry.items()
        }
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite) + "\n")

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of metrics.jsonl; one that a crash cut short is passed over."""
        if self._metrics.is_file():
            for line in self._metrics.read_text(encoding="utf-8").splitlines():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    continue

    def forget_metrics_after(self, step: int) -> None:
        """Drops the lines of steps that a resumed run will take again."""
        kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["step"] <= step]
        files.write_text(self._metrics, "".join(kept))

    # -------------------------------------------------------------------------------- checkpoints

    def checkpoints(self) -> list[Path]:
        """The complete checkpoints, the oldest step first."""
        found = [
            (int(path.name.removeprefix("step-")), path)
            for path in (self.path / "checkpoints").glob("step-*")
            if path.name.removeprefix("step-").isdecimal() and (path / STATE).is_file()
        ]
        return [path for _, path in sorted(found)]

    def save(
        self,
        state: TrainerState,
        model: BertForPreTraining,
        optimizers: list[torch.optim.Optimizer],
        data: AnyData,
        *,
        keep_last: int,
    ) -> None:
        """Writes a checkpoint and model/, then removes checkpoints beyond the last `keep_last`.

        Raises:
            OutputError: the disk is full, say; older checkpoints are untouched.
        """
        with files.new_folder(self.path / "checkpoints" / f"step-{state.step}") as work:
            self._save_model(work, model, data, step=state.step)
            save_tensors(work / OPTIMIZER, optimizer_state(optimizers, model))
            files.write_json(work / STATE, asdict(state))
        self.save_newest(model, data, step=state.step)
        if keep_last:
            for old in self.checkpoints()[:-keep_last]:
                shutil.rmtree(old)

    def save_newest(self, model: BertForPreTraining, data: AnyData, *, step: int) -> None:
        """Writes model/, which has made `step` steps."""
        with files.new_folder(self.path / "model") as work:
            self._save_model(work, model, data, step=step)

    def _save_model(
        self, folder: Path, model: BertForPreTraining, data: AnyData, *, step: int
    ) -> None:
        """Writes a Hugging Face model folder: weights, config, tokenizer, model card."""
        data.tokenizer.save(folder, max_tokens=model.config.max_position_embeddings)
        model.save_folder(folder)
        evaluations = [entry for entry in self.metrics() if entry["split"] == "valid"]
        card = model_card(
            self.settings(),
            model.config,
            step=step,
            manifest=data.manifest,
            record=files.read_json(self.path / "config.json"),
            evaluation=evaluations[-1] if evaluations else None,
        )
        files.write_text(folder / "README.md", card)

    def newest(self) -> Path:
        """The newest complete checkpoint.

        Raises:
            InputError: there is none.
        """
        found = self.checkpoints()
        if not found:
            raise InputError(f"{self.path} holds no checkpoint yet; start again with --overwrite")
        return found[-1]

    def load(
        self, model: BertForPreTraining, optimizers: list[torch.optim.Optimizer]
    ) -> TrainerState:
        """Puts the newest checkpoint's weights and optimizer state back.

        Raises:
            InputError: there is none, or it is damaged.
        """
        newest = self.newest()
        load_into(model, newest)
        try:
            load_optimizer_state(optimizers, model, load_tensors(newest / OPTIMIZER))
            return TrainerState(**files.read_json(newest / STATE))
        except (InputError, KeyError, TypeError) as error:
            raise InputError(
                f"{error}; remove {newest} to resume from the checkpoint before it"
            ) from error


def is_run_folder(path: Path) -> bool:
    """Whether a folder was made by pretrain."""
    try:
        return bool(json.loads((path / "config.json").read_bytes())["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def resumed_config(out: Path, given: dict[str, Any]) -> PretrainConfig:
    """The settings of a run in `out`, with those that were given again and may change.

    The schedule follows the new length as if it had been given at the start: the share done is
    step / steps (or seconds of max_minutes), so that the learning rate may jump.

    Raises:
        SettingError: one was given that may not change; the message names both values.
    """
    stored = RunFolder(out).settings()
    for name, value in given.items():
        if name not in CHANGEABLE and value != getattr(stored, name):
            started = getattr(stored, name)
            raise SettingError(
                name,
                f"{value} is not what {out} was started with, "
                + ("which was without it" if started is None else str(started)),
            )
    if given.keys() & {"steps", "epochs", "max_minutes"}:
        stored = dataclasses.replace(stored, steps=None, epochs=None, max_minutes=None)
    return dataclasses.replace(stored, **given)
