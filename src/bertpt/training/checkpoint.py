"""The RUN folder: what a run was asked to do, its metrics, its checkpoints, its newest model."""

import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import bertpt
from bertpt import files
from bertpt.config import BertConfig, PretrainConfig
from bertpt.data.dataset import Checked
from bertpt.data.folders import AnyData, recorded_paths
from bertpt.data.tokenizer import Tokenizer
from bertpt.errors import InputError, MismatchError, OutputError, SettingError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.folder import load_into, write_folder
from bertpt.model.tensors import load_tensors, save_tensors
from bertpt.training.background import Background
from bertpt.training.card import model_card
from bertpt.training.optimizer import load_optimizer_state, optimizer_state
from bertpt.training.seal import STATE, TrainerState, is_sealed, open_sealed, seal

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = "bertpt-run"
CHECKED = "checked_data.json"
OPTIMIZER = "optimizer.safetensors"
CHECKPOINT = re.compile(r"step-(0|[1-9][0-9]*)")
# The rest of what is written into a RUN, for telling what a killed process left of it.
PARTS = ("config.json", CHECKED, "metrics.jsonl", "model", "best")

# What may change when a run is resumed: how long it runs, what it tells and keeps, and what a
# different machine may ask for. The last line changes how sums are rounded.
CHANGEABLE = {
    *("steps", "epochs", "max_minutes", "eval_every", "eval_examples", "save_every"),
    *("keep_last", "log_every", "loader_workers", "skip_bad_batches"),
    *("distributed_timeout_minutes",),
    *("micro_batch_size", "sharding", "device", "precision"),
}


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


@dataclass(frozen=True)
class Snapshot:
    """A model of some step as it goes into a folder, whatever becomes of the live one."""

    weights: Mapping[str, torch.Tensor]
    config: BertConfig
    tokenizer: Tokenizer
    card: str

    def write(self, folder: Path) -> None:
        """Writes a Hugging Face model folder: weights, config, tokenizer, model card."""
        self.tokenizer.save(folder, max_tokens=self.config.max_position_embeddings)
        write_folder(folder, BertForPreTraining.__name__, self.config, self.weights)
        files.write_text(folder / "README.md", self.card)


class RunFolder:
    """A RUN folder at `path`, finished or not.

    Checkpoints, model/ and best/ are written beside training, one save at a time: `wait` waits for
    the one under way, and so does leaving a `with` block.
    """

    _keeper = "cpu"  # the device that copies are kept on

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics = path / "metrics.jsonl"
        self._background = Background()
        self._lock = contextlib.ExitStack()
        self._evaluation: Mapping[str, Any] | None = None  # the newest one
        self.best: Mapping[str, Any] | None = None  # the one with the lowest loss
        self._best_saved: int | None = None  # the step that best/ was written for by this process

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._background.wait()
        except Exception:
            if kind is None:  # else there is an error to tell already
                raise
        finally:
            self._lock.close()

    def _keep_others_out(self) -> None:
        self._lock.close()
        self._lock.enter_context(files.locked(self.path / ".lock"))

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
        if is_run_folder(self.path):
            self._keep_others_out()
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
        self._keep_others_out()

    def reopen(self, tell: Callable[[str], None]) -> None:
        """Makes ready to go on with a run, and keeps other processes from writing here.

        What a process that was killed left unfinished is removed, and `tell` is told. If it was
        killed between putting the old model/ aside and the new one in its place, the old one comes
        back.

        Raises:
            InputError: there is no such run.
            OutputError: another process is writing here; the message names it.
        """
        self._require()
        self._keep_others_out()
        checkpoints = self.path / "checkpoints"
        for path in (
            *files.clean_up(self.path, PARTS.__contains__),
            *files.clean_up(checkpoints, lambda name: bool(CHECKPOINT.fullmatch(name))),
        ):
            tell(f"removed {path}, which a process that was killed left unfinished")

    def _require(self) -> None:
        if not is_run_folder(self.path):
            raise InputError(f"no run to resume in {self.path}; start one without --resume")

    def settings(self) -> PretrainConfig:
        """The settings that the run was started with.

        Raises:
            InputError: there is no such run.
        """
        self._require()
        return PretrainConfig.read(self._record()["settings"], self.path / "config.json")

    def _record(self) -> dict[str, Any]:
        """config.json.

        Raises:
            InputError: it lacks a part.
        """
        path = self.path / "config.json"
        record = files.read_json(path)
        for name in ("settings", "data", "packages"):
            if not isinstance(record.get(name), dict):
                raise InputError(f"{path} is damaged: it has no {name}; start another run")
        return record

    def update_settings(self, config: PretrainConfig) -> None:
        """Records the settings that a resumed run goes on with."""
        record = {**self._record(), "settings": config.to_dict()}
        files.write_json(self.path / "config.json", record)

    def require_same_data(self, data: AnyData) -> None:
        """Checks that the data is what the run was started on.

        Raises:
            MismatchError: it is not; the message names both fingerprints.
        """
        started = self._record()["data"]
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
        """Appends a line to metrics.jsonl; JSON has only finite numbers, so others are null.

        Raises:
            OutputError: it cannot be written, and then it is not there at all; or the last save
                has failed.
        """
        self._background.check()
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in entry.items()
        }
        self._append(finite)
        self._take_note(finite)

    def _append(self, entry: Mapping[str, Any]) -> None:
        try:
            with self._metrics.open("ab") as file:
                before = file.tell()
                try:
                    file.write(f"{json.dumps(entry)}\n".encode())
                    file.flush()
                except OSError:
                    os.truncate(self._metrics, before)
                    raise
        except OSError as error:
            problem = files.problem(error)
            raise OutputError(f"cannot write {self._metrics}: {problem}") from error

    def _take_note(self, entry: Mapping[str, Any]) -> None:
        if entry["split"] != "valid":
            return
        self._evaluation = entry
        loss = entry["loss"]
        if loss is not None and (self.best is None or loss < self.best["loss"]):
            self.best = entry

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of metrics.jsonl; one that a crash cut short is passed over."""
        if self._metrics.is_file():
            for line in self._metrics.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue
                if isinstance(entry, dict) and entry.keys() >= {"step", "split"}:
                    yield entry

    def forget_metrics_after(self, step: int) -> None:
        """Drops the lines of steps that a resumed run will take again."""
        kept = [entry for entry in self.metrics() if entry["step"] <= step]
        self._rewrite(kept)
        for entry in kept:
            self._take_note(entry)

    def _rewrite(self, entries: Iterable[Mapping[str, Any]]) -> None:
        files.write_text(self._metrics, "".join(json.dumps(entry) + "\n" for entry in entries))

    # -------------------------------------------------------------------------------- checkpoints

    def checkpoints(self) -> list[Path]:
        """The folders of checkpoints, the lowest step first; some may be damaged."""
        return [path for _, path in self._numbered() if is_sealed(path)]

    def _numbered(self) -> list[tuple[int, Path]]:
        """What has the name of a checkpoint, by number: 9 before 10."""
        return sorted(
            (int(form[1]), path)
            for path in (self.path / "checkpoints").glob("step-*")
            if (form := CHECKPOINT.fullmatch(path.name)) and path.is_dir()
        )

    def newest(self, tell: Callable[[str], None] = lambda _: None) -> Checkpoint:
        """The newest complete checkpoint, every file of which is as it was written.

        Args:
            tell: is told of each newer one that was passed over, and why.

        Raises:
            InputError: there is none; the message says what is wrong with the newest.
        """
        newest = ""
        for step, path in reversed(self._numbered()):
            try:
                state = open_sealed(path)
                if state.step != step:
                    raise InputError(f"{path} holds step {state.step}, so it was renamed")  # noqa: TRY301
            except InputError as error:
                tell(f"passing over {path}: {error}")
                newest = newest or str(error)
                continue
            return Checkpoint(path, state)
        if newest:
            raise InputError(f"{newest}; no other checkpoint is whole, so start with --overwrite")
        raise InputError(f"{self.path} holds no checkpoint yet; start again with --overwrite")

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

        A copy of the state is taken, and written beside whatever the caller does next. best/ is
        written, too, where this step's evaluation was the best so far.

        Raises:
            OutputError: the save before failed, the disk being full, say; older checkpoints are
                untouched. `wait` tells of this one.
        """
        self.wait()  # before there are two copies
        snapshot = self._snapshot(model, data, step=state.step)
        optimizer = optimizer_state(optimizers, model, device=self._keeper)
        best_card = self._best_card(model, data, step=state.step)

        def write() -> None:
            target = self.path / "checkpoints" / f"step-{state.step}"
            _set_aside_foreign(target)
            with files.new_folder(target) as work:
                snapshot.write(work)
                if best_card:  # first, so that a checkpoint is never without the best before it
                    self._copy_model(work, "best", best_card)
                save_tensors(work / OPTIMIZER, optimizer, checksum=False)
                seal(work, state)
            self._copy_model(target, "model", snapshot.card)
            self._rotate(state.step, keep_last)

        self._beside(write)

    def save_best(self, model: BertForPreTraining, data: AnyData, *, step: int) -> None:
        """Writes best/ beside training, where this step's evaluation was the best so far.

        Raises:
            OutputError: the save before failed.
        """
        card = self._best_card(model, data, step=step)
        if card is not None:
            self.wait()
            snapshot = dataclasses.replace(self._snapshot(model, data, step=step), card=card)
            self._beside(lambda: self._write_model("best", snapshot))

    def save_newest(self, model: BertForPreTraining, data: AnyData, *, step: int) -> None:
        """Writes model/, which has made `step` steps, and waits for it."""
        self.wait()
        self._write_model("model", self._snapshot(model, data, step=step))

    def wait(self) -> None:
        """Waits for the save under way.

        Raises:
            OutputError: it failed.
        """
        self._background.wait()

    def _beside(self, job: Callable[[], object]) -> None:
        self._background.start(job)

    def _snapshot(self, model: BertForPreTraining, data: AnyData, *, step: int) -> Snapshot:
        return Snapshot(
            weights=model.weights(device=self._keeper),
            config=model.config,
            tokenizer=data.tokenizer,
            card=self._card(model, data, step=step, is_best=False),
        )

    def _card(self, model: BertForPreTraining, data: AnyData, *, step: int, is_best: bool) -> str:
        return model_card(
            self.settings(),
            model.config,
            step=step,
            manifest=data.manifest,
            record=self._record(),
            evaluation=self._evaluation,
            is_best=is_best,
        )

    def _best_card(self, model: BertForPreTraining, data: AnyData, *, step: int) -> str | None:
        """The card of best/, if that is to be written."""
        if self.best is None or self.best["step"] != step or self._best_saved == step:
            return None
        self._best_saved = step
        return self._card(model, data, step=step, is_best=True)

    def _write_model(self, name: str, snapshot: Snapshot) -> None:
        with files.new_folder(self.path / name) as work:
            snapshot.write(work)

    def _copy_model(self, source: Path, name: str, card: str) -> None:
        """Makes model/ or best/ of the files of a model folder."""
        with files.new_folder(self.path / name) as work:
            for path in source.iterdir():
                if path.name not in (OPTIMIZER, STATE):
                    shutil.copyfile(path, work / path.name)
            files.write_text(work / "README.md", card)

    def _rotate(self, step: int, keep_last: int) -> None:
        """Removes checkpoints of ours beyond the last `keep_last` up to the newest, `step`.

        Later steps are of damaged checkpoints that a resumed run passed over.
        """
        if keep_last:
            done = [path for number, path in self._numbered() if number <= step and _is_ours(path)]
            for old in done[:-keep_last]:
                files.remove_folder(old)


def _is_ours(path: Path) -> bool:
    """Whether a folder was saved here as a checkpoint, damaged or not."""
    return any((path / name).exists() for name in (STATE, OPTIMIZER))


def _set_aside_foreign(path: Path) -> None:
    """Renames what stands in a checkpoint's place and is none of ours."""
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty and not _is_ours(path):
        number = 1
        while (other := path.with_name(f"{path.name}.foreign-{number}")).exists():
            number += 1
        path.rename(other)


class ReadOnlyRun(RunFolder):
    """A RUN folder as every rank but the first has it: it decides the same, and writes nothing.

    So it takes part where rank 0 puts a sharded model together.
    """

    _keeper = "meta"

    def refuse_existing(self, *, overwrite: bool) -> None:
        """Leaves that to rank 0, which may have made the folder by now; so do all below."""

    def create(self, config: PretrainConfig, data: AnyData, *, overwrite: bool) -> None: ...

    def reopen(self, tell: Callable[[str], None]) -> None: ...

    def update_settings(self, config: PretrainConfig) -> None: ...

    def note_checked_data(self, data: AnyData) -> None: ...

    def _append(self, entry: Mapping[str, Any]) -> None: ...

    def _rewrite(self, entries: Iterable[Mapping[str, Any]]) -> None: ...

    def _beside(self, job: Callable[[], object]) -> None: ...

    def _write_model(self, name: str, snapshot: Snapshot) -> None: ...

    def _card(self, *_: Any, **__: Any) -> str:
        return ""


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
