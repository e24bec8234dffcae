"""Whether a run that is saved and loaded goes on as one that never stopped, on this machine."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bertpt.config import PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.errors import SettingError
from bertpt.model.sharded import full_state
from bertpt.progress import Progress
from bertpt.training.record import resumed_config
from bertpt.training.run import RunFolder
from bertpt.training.trainer import Trainer

LOSSES = ("loss", "mlm_loss", "nsp_loss", "grad_norm")


def verify_resume(
    data_path: Path | Sequence[Path],
    *,
    config: PretrainConfig,
    num_steps: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Takes the first steps of a run twice, the second time through a checkpoint halfway.

    Both runs are kept in a temporary folder. On the CPU nothing may differ; some kernels of a GPU
    add in an order of their own, so that two runs differ in the last bits anyway.

    Args:
        data_path: a DATA folder, or several.
        config: of the run, whose schedule is followed.
        num_steps: to take, 2 or more and no more than the run has.
        progress: where to tell how far it is.

    Returns:
        steps, saved_after (steps), identical (losses, gradient norms and weights, bit for bit),
        max_loss_difference, max_weight_difference (nats, and absolute), first_difference (step, or
        `None`).

    Raises:
        BertptError: the run cannot be begun, or has no such number of steps.
    """
    if num_steps < 2:
        raise SettingError("verify_resume", f"{num_steps} must be at least 2")
    if config.max_minutes:
        raise SettingError(
            "verify_resume", "and `max_minutes` exclude each other: no two runs have the same clock"
        )
    halfway = num_steps // 2
    config = dataclasses.replace(config, log_every=1, eval_every=0, save_every=0)
    progress = progress or Progress()
    data = Dataset(data_path)
    with (
        TemporaryDirectory(prefix="bertpt-") as folder,
        RunFolder(Path(folder, "whole")) as unbroken,
        RunFolder(Path(folder, "halfway")) as run,
    ):
        whole = Trainer(data, unbroken, config, progress)
        if num_steps > whole.budget.num_steps:
            raise SettingError(
                "verify_resume",
                f"{num_steps} exceeds the {whole.budget.num_steps} steps of the run",
            )
        whole.start(overwrite=False)
        whole.train(until=num_steps)
        expected = full_state(whole.model)
        del whole  # a GPU may have no room for two
        first = Trainer(data, run, config, progress)
        first.start(overwrite=False)
        first.train(until=halfway)
        del first
        second = Trainer(data, run, resumed_config(run.path, {}), progress, resume=True)
        second.resume()
        second.train(until=num_steps)
        logged = [
            [entry for entry in one.metrics if entry["split"] == "train"] for one in (unbroken, run)
        ]
    off = {
        one["step"]: max(abs((one[name] or 0.0) - (other[name] or 0.0)) for name in LOSSES)
        for one, other in zip(*logged, strict=True)
    }
    weights = _greatest_difference(expected, full_state(second.model))
    return {
        "steps": num_steps,
        "saved_after": halfway,
        "identical": not any(off.values()) and weights == 0,
        "max_loss_difference": max(off.values()),
        "max_weight_difference": weights,
        "first_difference": next((step for step, difference in off.items() if difference), None),
    }


def _greatest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)
