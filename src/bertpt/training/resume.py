"""Continue a run: which settings may change, and what must be the same."""

import dataclasses
from pathlib import Path
from typing import Any

from bertpt.config import PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.errors import InputError, MismatchError, SettingError
from bertpt.training.checkpoint import Checkpoint, TrainerState
from bertpt.training.distributed import Ranks
from bertpt.training.run_folder import read_record, read_settings
from bertpt.training.schedule import make_budget, make_schedule

# Settings that may change when a run is resumed. Those in the last line change how sums are
# rounded, and so the last digits.
CHANGEABLE = {
    *("steps", "epochs", "max_minutes", "eval_every", "eval_examples", "save_every"),
    *("keep_last", "log_every", "loader_workers", "skip_bad_batches"),
    *("distributed_timeout_minutes",),
    *("micro_batch_size", "sharding", "device", "precision"),
}


def resumed_config(out: Path, given: dict[str, Any]) -> PretrainConfig:
    """Return the settings of the run in `out`, updated with those given that may change.

    A new length counts as if it had been given at the start: the share done is step / steps (or
    seconds of `max_minutes`), so the learning rate may jump.

    Raises:
        SettingError: a setting may not change; the message names both values.
    """
    stored = read_settings(out)
    for name, value in given.items():
        started = getattr(stored, name)
        if name not in CHANGEABLE and value != started:
            raise SettingError(
                name,
                f"{value} is not what {out} was started with, "
                + ("which was without it" if started is None else str(started))
                + "; leave it out, or start another run",
            )
    if given.keys() & {"steps", "epochs", "max_minutes"}:
        stored = dataclasses.replace(stored, steps=None, epochs=None, max_minutes=None)
    return dataclasses.replace(stored, **given)


def require_same_data(path: Path, data: Dataset) -> None:
    """Check that a run was started on this data.

    Raises:
        MismatchError: it was not; the message names both fingerprints.
    """
    started = read_record(path)["data"]
    if started["sha256"] != data.fingerprint:
        paths = started["paths"]
        same = "the same data" if len(paths) == 1 else "the same folders in the same order"
        raise MismatchError(
            f"{path} was trained on {', '.join(paths)} ({started['sha256'][:12]}), and "
            f"{data.name} is {data.fingerprint[:12]}; resume with {same}, or start another run"
        )


def require_same_checkpoint(checkpoint: Checkpoint, ranks: Ranks) -> None:
    """Check that all ranks found the same checkpoint.

    Raises:
        InputError: they did not.
    """
    first = int(ranks.broadcast(checkpoint.state.step))
    if ranks.any(checkpoint.state.step != first):
        raise InputError(
            f"not every process found the checkpoint of step {first} intact in "
            f"{checkpoint.path.parents[1]}; all must see one folder, and a network file system "
            "may be a minute behind"
        )


def describe_new_length(
    old: PretrainConfig, new: PretrainConfig, state: TrainerState, *, steps_per_epoch: int
) -> str:
    """Describe how another length changes the next step's learning rate, which may jump."""

    def next_learning_rate(config: PretrainConfig) -> float:
        budget = make_budget(config, steps_per_epoch)
        budget.start(step=state.step, elapsed_seconds=state.elapsed_seconds)
        schedule = make_schedule(config, budget.num_steps)
        return (new.learning_rate or 0.0) * schedule(*budget.next_step())

    return (
        f"{new.length} instead of {old.length}: the next step's learning rate is "
        f"{next_learning_rate(new):.3g}, not {next_learning_rate(old):.3g}"
    )
