"""config.json of a RUN: what it was asked to do, on which data, with which packages."""

import dataclasses
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bertpt
from bertpt import files
from bertpt.config import PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.errors import InputError, MismatchError, SettingError

FORMAT = "bertpt-run"
CONFIG = "config.json"

# What may change when a run is resumed: how long it runs, what it tells and keeps, and what a
# different machine may ask for. The last line changes how sums are rounded.
CHANGEABLE = {
    *("steps", "epochs", "max_minutes", "eval_every", "eval_examples", "save_every"),
    *("keep_last", "log_every", "loader_workers", "skip_bad_batches"),
    *("distributed_timeout_minutes",),
    *("micro_batch_size", "sharding", "device", "precision"),
}


class Record:
    """What a RUN folder says of itself, finished or not."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._path = run / CONFIG

    def write(self, config: PretrainConfig, data: Dataset) -> None:
        """Notes resolved settings, paths and fingerprint of the data, and versions of packages."""
        packages = {name: version(name) for name in ("torch", "tokenizers", "datasets", "numpy")}
        entries = {
            "format": FORMAT,
            "settings": config.to_dict(),
            "data": data.record,
            "packages": {"bertpt": bertpt.__version__, **packages},
        }
        files.write_json(self._path, entries)

    def require(self) -> None:
        """Checks that there is a run.

        Raises:
            InputError: there is none, or there is but its config.json is damaged.
        """
        if not is_run_folder(self._run):
            if (self._run / "checkpoints").is_dir():
                self.read()
            raise InputError(f"no run to resume in {self._run}; start one without `resume`")

    def read(self) -> dict[str, Any]:
        """All of it.

        Raises:
            InputError: it lacks a part.
        """
        entries = files.read_json(self._path)
        for name in ("settings", "data", "packages"):
            if not isinstance(entries.get(name), dict):
                raise InputError(f"{self._path} is damaged: it has no {name}; start another run")
        return entries

    def settings(self) -> PretrainConfig:
        """The settings that the run was started with, or last resumed with.

        Raises:
            InputError: there is no such run.
        """
        self.require()
        return PretrainConfig.read(self.read()["settings"], self._path)

    def update_settings(self, config: PretrainConfig) -> None:
        """Notes the settings that a resumed run goes on with."""
        files.write_json(self._path, {**self.read(), "settings": config.to_dict()})

    def require_same_data(self, data: Dataset) -> None:
        """Checks that the data is what the run was started on.

        Raises:
            MismatchError: it is not; the message names both fingerprints.
        """
        started = self.read()["data"]
        if started["sha256"] != data.fingerprint:
            paths = started["paths"]
            same = "the same data" if len(paths) == 1 else "the same folders in their order"
            raise MismatchError(
                f"{self._run} was trained on {', '.join(paths)} ({started['sha256'][:12]}), and "
                f"{data.name} is {data.fingerprint[:12]}; resume with {same}, or start another run"
            )


def is_run_folder(path: Path) -> bool:
    """Whether a folder was made by pretrain."""
    try:
        return bool(json.loads((path / CONFIG).read_bytes())["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def resumed_config(out: Path, given: dict[str, Any]) -> PretrainConfig:
    """The settings of a run in `out`, with those that were given again and may change.

    The schedule follows the new length as if it had been given at the start: the share done is
    step / steps (or seconds of max_minutes), so that the learning rate may jump.

    Raises:
        SettingError: one was given that may not change; the message names both values.
    """
    stored = Record(out).settings()
    for name, value in given.items():
        if name not in CHANGEABLE and value != getattr(stored, name):
            started = getattr(stored, name)
            raise SettingError(
                name,
                f"{value} is not what {out} was started with, "
                + ("which was without it" if started is None else str(started))
                + "; leave it out, or start another run",
            )
    if given.keys() & {"steps", "epochs", "max_minutes"}:
        stored = dataclasses.replace(stored, steps=None, epochs=None, max_minutes=None)
    return dataclasses.replace(stored, **given)
