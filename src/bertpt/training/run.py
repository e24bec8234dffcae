"""The RUN folder: what a run was asked to do, its metrics, its checkpoints, its newest model."""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bertpt import files
from bertpt.config import BertConfig, PretrainConfig
from bertpt.data.dataset import Checked, Dataset
from bertpt.errors import InputError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import save_tensors
from bertpt.model.pretrained import write_folder
from bertpt.model.sharded import full_state
from bertpt.tokenizer.tokenizer import Tokenizer
from bertpt.training.background import Background
from bertpt.training.checkpoint import OPTIMIZER, Checkpoints
from bertpt.training.metrics import Metrics, ReadOnlyMetrics
from bertpt.training.model_card import model_card
from bertpt.training.optimizer import optimizer_state
from bertpt.training.record import CONFIG, Record, is_run_folder
from bertpt.training.seal import STATE, TrainerState, seal

if TYPE_CHECKING:
    from typing_extensions import Self

CHECKED = "checked_data.json"
METRICS = "metrics.jsonl"
# What is written into a RUN beside checkpoints, for telling what a killed process left of it.
PARTS = (CONFIG, CHECKED, METRICS, "model", "best")


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

    Attributes:
        record: settings, data and packages.
        metrics: of logged steps and evaluations.
        checkpoints: those that there are.
    """

    _keeper = "cpu"  # the device that copies are kept on

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = Record(path)
        self.metrics = Metrics(path / METRICS)
        self.checkpoints = Checkpoints(path)
        self._background = Background()
        self._lock = contextlib.ExitStack()
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

    # ---------------------------------------------------------------------------- begin and go on

    def refuse_existing(self, *, overwrite: bool) -> None:
        """Checks that a run may be started here.

        Raises:
            OutputError: there is something that may not be replaced.
        """
        files.refuse_existing(self.path, overwrite=overwrite, is_ours=is_run_folder)

    def create(self, config: PretrainConfig, data: Dataset, *, overwrite: bool) -> None:
        """Makes the folder for a run with resolved settings on this data.

        Raises:
            OutputError: there is something that may not be replaced.
        """
        self.refuse_existing(overwrite=overwrite)
        if is_run_folder(self.path):
            self._keep_others_out()
        with files.new_folder(self.path) as work:
            Record(work).write(config, data)
        self._keep_others_out()
        self._note_checked(data)

    def reopen(self, tell: Callable[[str], None]) -> None:
        """Makes ready to go on with a run, and keeps other processes from writing here.

        What a process that was killed left unfinished is removed, and `tell` is told. If it was
        killed between putting the old model/ aside and the new one in its place, the old one comes
        back.

        Raises:
            InputError: there is no such run.
            OutputError: another process is writing here; the message names it.
        """
        self.record.require()
        self._keep_others_out()
        for path in (
            *files.clean_up(self.path, PARTS.__contains__),
            *self.checkpoints.clean_up(),
        ):
            tell(f"removed {path}, which a process that was killed left unfinished")

    def go_on(self, config: PretrainConfig, data: Dataset, *, step: int) -> None:
        """Notes what a run that is resumed after `step` goes on with, and drops later metrics."""
        self.record.update_settings(config)
        self._note_checked(data)
        self.metrics.forget_after(step)

    def checked_data(self) -> Checked:
        """Which of the data's shards were found right when they were last used here."""
        try:
            noted = files.read_json(self.path / CHECKED)
        except InputError:
            return {}
        return {folder: found for folder, found in noted.items() if isinstance(found, dict)}

    def _note_checked(self, data: Dataset) -> None:
        """So that resuming need not read them all again."""
        files.write_json(self.path / CHECKED, data.checked)

    # ------------------------------------------------------------------------------- log and save

    def log(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to the metrics.

        Raises:
            OutputError: it cannot be written, and then it is not there at all; or the last save
                has failed.
        """
        self._background.check()
        self.metrics.append(entry)

    def save(
        self,
        state: TrainerState,
        model: BertForPreTraining,
        optimizers: list[torch.optim.Optimizer],
        data: Dataset,
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
            target = self.checkpoints.make_place(state.step)
            with files.new_folder(target) as work:
                snapshot.write(work)
                if best_card:  # first, so that a checkpoint is never without the best before it
                    self._copy_model(work, "best", best_card)
                save_tensors(work / OPTIMIZER, optimizer, checksum=False)
                seal(work, state)
            self._copy_model(target, "model", snapshot.card)
            self.checkpoints.rotate(state.step, keep_last)

        self._beside(write)

    def save_best(self, model: BertForPreTraining, data: Dataset, *, step: int) -> None:
        """Writes best/ beside training, where this step's evaluation was the best so far.

        Raises:
            OutputError: the save before failed.
        """
        card = self._best_card(model, data, step=step)
        if card is not None:
            self.wait()
            snapshot = dataclasses.replace(self._snapshot(model, data, step=step), card=card)
            self._beside(lambda: self._write_model("best", snapshot))

    def save_newest(self, model: BertForPreTraining, data: Dataset, *, step: int) -> None:
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

    def _snapshot(self, model: BertForPreTraining, data: Dataset, *, step: int) -> Snapshot:
        return Snapshot(
            weights=full_state(model, device=self._keeper),
            config=model.config,
            tokenizer=data.tokenizer,
            card=self._card(model, data, step=step, is_best=False),
        )

    def _card(self, model: BertForPreTraining, data: Dataset, *, step: int, is_best: bool) -> str:
        return model_card(
            self.record.settings(),
            model.config,
            step=step,
            manifest=data.manifest,
            record=self.record.read(),
            evaluation=self.metrics.newest,
            is_best=is_best,
        )

    def _best_card(self, model: BertForPreTraining, data: Dataset, *, step: int) -> str | None:
        """The card of best/, if that is to be written."""
        best = self.metrics.best
        if best is None or best["step"] != step or self._best_saved == step:
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


class ReadOnlyRun(RunFolder):
    """A RUN folder as every rank but the first has it: it decides the same, and writes nothing.

    So it takes part where rank 0 puts a sharded model together.
    """

    _keeper = "meta"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.metrics = ReadOnlyMetrics(path / METRICS)

    def refuse_existing(self, *, overwrite: bool) -> None:
        """Leaves that to rank 0, which may have made the folder by now; so do all below."""

    def create(self, config: PretrainConfig, data: Dataset, *, overwrite: bool) -> None: ...

    def reopen(self, tell: Callable[[str], None]) -> None: ...

    def go_on(self, config: PretrainConfig, data: Dataset, *, step: int) -> None:  # noqa: ARG002
        self.metrics.forget_after(step)

    def _beside(self, job: Callable[[], object]) -> None: ...

    def _write_model(self, name: str, snapshot: Snapshot) -> None: ...

    def _card(self, *_: Any, **__: Any) -> str:
        return ""
