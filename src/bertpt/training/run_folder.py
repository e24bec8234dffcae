"""The RUN folder: config.json, metrics.jsonl, checkpoints/, model/ and best/.

Of several processes only the first has a `RunFolder`, and writes; the others call the functions
here that read.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bertpt
from bertpt import files
from bertpt.config import PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.data.folder import Checked
from bertpt.errors import InputError, OutputError
from bertpt.locks import locked
from bertpt.outputs import refuse_existing
from bertpt.tokenizer.tokenizer import FILES as TOKENIZER_FILES
from bertpt.training import checkpoint
from bertpt.training.background import Background
from bertpt.training.checkpoint import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = "bertpt-run"
CONFIG = "config.json"
METRICS = "metrics.jsonl"
LOCK = ".lock"
CHECKED = "checked_data.json"  # size and mtime of shards that were verified
PARTS = (CONFIG, METRICS, CHECKED, "model", "best")

# All files that pretrain writes.
OF_RUN = (CONFIG, METRICS, CHECKED, LOCK)
OF_MODEL = ("config.json", "model.safetensors", "README.md", *TOKENIZER_FILES)
OF_CHECKPOINT = (*OF_MODEL, checkpoint.STATE, checkpoint.OPTIMIZER)
CONTENTS = re.compile(
    rf"{'|'.join(OF_RUN)}|(model|best)/({'|'.join(OF_MODEL)})"
    rf"|checkpoints/{checkpoint.NAME.pattern}/({'|'.join(OF_CHECKPOINT)})"
)


class RunFolder:
    """A RUN folder that this process writes.

    Saves are written in the background, one at a time: `wait` waits for it, and so does leaving a
    `with` block.

    Attributes:
        path: of the folder.
        newest: the newest evaluation, an entry of metrics.jsonl, if there is one.
        best: the evaluation with the lowest loss, likewise.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.newest: Mapping[str, Any] | None = None
        self.best: Mapping[str, Any] | None = None
        self._background = Background()
        self._lock = contextlib.ExitStack()
        self._replaced = contextlib.ExitStack()  # holds the run that this one replaces
        self._drop_old: Callable[[], object] = bool

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._background.wait()
        except Exception:
            if kind is None:  # otherwise the block's own error is reported
                raise
        finally:
            self._replaced.close()
            self._lock.close()

    # ------------------------------------------------------------------------------ start, resume

    def refuse_existing(self, *, overwrite: bool) -> None:
        """Check that a run may be started here.

        Raises:
            OutputError: something exists that may not be replaced.
        """
        refuse_existing(self.path, overwrite=overwrite, is_ours=is_run_folder, contents=CONTENTS)

    def create(self, config: PretrainConfig, data: Dataset, *, overwrite: bool) -> None:
        """Create the folder for a run with resolved settings on some data.

        A run that it replaces comes back if this one ends without a checkpoint.

        Raises:
            OutputError: something exists that may not be replaced.
        """
        self.refuse_existing(overwrite=overwrite)
        if is_run_folder(self.path):
            self._acquire_lock()
            self._drop_old = self._replaced.enter_context(files.set_aside(self.path.resolve()))
        packages = {name: version(name) for name in ("torch", "tokenizers", "datasets", "numpy")}
        entries = {
            "format": FORMAT,
            "settings": config.to_dict(),
            "data": data.record,
            "packages": {"bertpt": bertpt.__version__, **packages},
        }
        with files.new_folder(self.path) as work:
            files.write_json(work / CONFIG, entries)
        self._acquire_lock()
        files.write_json(self.path / CHECKED, data.checked)

    def reopen(self, log: Callable[[str], object]) -> None:
        """Lock the folder of an existing run, and clean up after a killed process.

        Args:
            log: called with a line for each path that is removed.

        Raises:
            InputError: there is no such run.
            OutputError: another process is writing here; the message names it.
        """
        require_run(self.path)
        self._acquire_lock()
        for path in (
            *files.clean_up(self.path, PARTS.__contains__),
            *checkpoint.remove_unfinished(self.path),
        ):
            log(f"removed {path}, which a killed process left unfinished")

    def resume(self, config: PretrainConfig, data: Dataset, *, step: int) -> None:
        """Record the settings that the run continues with, and drop metrics after `step`."""
        files.write_json(
            self.path / CONFIG, {**read_record(self.path), "settings": config.to_dict()}
        )
        files.write_json(self.path / CHECKED, data.checked)
        kept = [entry for entry in read_metrics(self.path) if entry["step"] <= step]
        lines = "".join(json.dumps(entry) + "\n" for entry in kept)
        files.write_text(self.path / METRICS, lines)
        for entry in kept:
            self._note_evaluation(entry)

    def _acquire_lock(self) -> None:
        self._lock.close()
        self._lock.enter_context(locked(self.path / LOCK))

    # ------------------------------------------------------------------------------------- metrics

    def log(self, entry: Mapping[str, Any]) -> bool:
        """Append a line to metrics.jsonl; numbers that are not finite become null.

        Returns:
            Whether it is the best evaluation so far.

        Raises:
            OutputError: the line cannot be written, and then the file is unchanged; or the last
                save has failed.
        """
        self._background.check()
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in entry.items()
        }
        path = self.path / METRICS
        try:
            with path.open("ab") as file:
                before = file.tell()
                try:
                    file.write(f"{json.dumps(finite)}\n".encode())
                    file.flush()
                except OSError:
                    os.truncate(path, before)
                    raise
        except OSError as error:
            raise OutputError(f"cannot write {path}: {files.problem(error)}") from error
        self._note_evaluation(finite)
        return self.best is finite

    def _note_evaluation(self, entry: Mapping[str, Any]) -> None:
        if entry["split"] != "valid":
            return
        self.newest = entry
        loss = entry["loss"]
        if loss is not None and (self.best is None or loss < self.best["loss"]):
            self.best = entry

    # ---------------------------------------------------------------------------------------- save

    def save(self, snapshot: Snapshot, *, keep_last: int) -> None:
        """Write a snapshot in the background.

        With optimizer state it becomes a checkpoint and model/, and checkpoints beyond the last
        `keep_last` are removed. With a `best_card` it becomes best/.

        Raises:
            OutputError: the previous save failed; older checkpoints are unchanged.
        """
        write = self._write_best if snapshot.optimizer is None else self._write_checkpoint
        self._background.start(lambda: write(snapshot, keep_last))

    def _write_best(self, snapshot: Snapshot, keep_last: int) -> None:  # noqa: ARG002
        assert snapshot.best_card is not None
        with files.new_folder(self.path / "best") as work:
            snapshot.write_model(work, snapshot.best_card)

    def _write_checkpoint(self, snapshot: Snapshot, keep_last: int) -> None:
        path = checkpoint.checkpoint_path(self.path, snapshot.state.step)
        with files.new_folder(path) as work:
            snapshot.write_model(work, snapshot.card)
            if snapshot.best_card:  # first, so no checkpoint is without the best/ before it
                self._copy_model(work, "best", snapshot.best_card)
            snapshot.write_optimizer(work)
            checkpoint.complete(work, snapshot.state)
        self._copy_model(path, "model", snapshot.card)
        self._drop_old()
        checkpoint.remove_old(self.path, snapshot.state.step, keep_last)

    def _copy_model(self, source: Path, name: str, card: str) -> None:
        with files.new_folder(self.path / name) as work:
            checkpoint.copy_model(source, work, card)

    def wait(self) -> None:
        """Wait for the save in progress.

        Raises:
            OutputError: it failed.
        """
        self._background.wait()


# ------------------------------------------------------------------------------------------- read


def is_run_folder(path: Path) -> bool:
    """Return whether a folder was made by pretrain."""
    return files.has_format(path / CONFIG, FORMAT)


def require_run(path: Path) -> None:
    """Check that a folder holds a run.

    Raises:
        InputError: it does not, or its config.json is damaged.
    """
    if not is_run_folder(path):
        if (path / "checkpoints").is_dir():
            read_record(path)
        raise InputError(f"no run to resume in {path}; start one without `resume`")


def read_record(path: Path) -> dict[str, Any]:
    """Read a run's config.json: its `settings`, `data` and `packages`.

    Raises:
        InputError: one of them is missing.
    """
    entries = files.read_json(path / CONFIG)
    for name in ("settings", "data", "packages"):
        if not isinstance(entries.get(name), dict):
            raise InputError(f"{path / CONFIG} is damaged: it has no {name}; start another run")
    return entries


def read_settings(path: Path) -> PretrainConfig:
    """Read the settings that a run was started, or last resumed, with.

    Raises:
        InputError: there is no such run.
    """
    require_run(path)
    return PretrainConfig.read(read_record(path)["settings"], path / CONFIG)


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a run's metrics.jsonl, except one that a crash cut short."""
    metrics = path / METRICS
    if metrics.is_file():
        for line in metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and entry.keys() >= {"step", "split"}:
                yield entry


def read_checked(path: Path) -> Checked:
    """Read which shards of the data were verified when the run last used them."""
    try:
        checked = files.read_json(path / CHECKED)
    except InputError:
        return {}
    return {folder: found for folder, found in checked.items() if isinstance(found, dict)}
