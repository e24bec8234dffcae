"""Check on this machine that a resumed run continues as if it had never stopped."""

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
from bertpt.training.checkpoint import newest_checkpoint
from bertpt.training.loop import train
from bertpt.training.resume import resumed_config
from bertpt.training.run_folder import RunFolder, read_metrics
from bertpt.training.trainer import Trainer

LOSSES = ("loss", "mlm_loss", "nsp_loss", "grad_norm")


def verify_resume(
    data_path: Path | Sequence[Path],
    *,
    config: PretrainConfig,
    num_steps: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run the first steps twice, the second time through a checkpoint halfway.

    Both runs are in a temporary folder. On the CPU nothing may differ; some GPU kernels add in
    varying order, so two runs differ in the last bits anyway.

    Args:
        data_path: a DATA folder, or several.
        config: of the run, whose schedule is followed.
        num_steps: steps to take: at least 2, at most those of the run.
        progress: where to report.

    Returns:
        steps, saved_after (steps), identical (losses, gradient norms and weights, bit for bit),
        max_loss_difference, max_weight_difference (nats, and absolute), first_difference (step, or
        `None`).

    Raises:
        BertptError: the run cannot start, or has fewer steps.
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
        RunFolder(Path(folder, "uninterrupted")) as uninterrupted,
        RunFolder(Path(folder, "interrupted")) as interrupted,
    ):
        trainer = Trainer(data, config, progress, run=uninterrupted)
        if num_steps > trainer.budget.num_steps:
            raise SettingError(
                "verify_resume",
                f"{num_steps} exceeds the {trainer.budget.num_steps} steps of the run",
            )
        trainer.start()
        train(trainer, until=num_steps)
        expected = full_state(trainer.model)
        del trainer  # a GPU may not have room for two
        trainer = Trainer(data, config, progress, run=interrupted)
        trainer.start()
        train(trainer, until=halfway)
        del trainer
        config = resumed_config(interrupted.path, {})
        checkpoint = newest_checkpoint(interrupted.path)
        trainer = Trainer(data, config, progress, run=interrupted, checkpoint=checkpoint)
        trainer.resume()
        train(trainer, until=num_steps)
        logged = [
            [entry for entry in read_metrics(run.path) if entry["split"] == "train"]
            for run in (uninterrupted, interrupted)
        ]
    off = {
        one["step"]: max(abs((one[name] or 0.0) - (other[name] or 0.0)) for name in LOSSES)
        for one, other in zip(*logged, strict=True)
    }
    weights = _greatest_difference(expected, full_state(trainer.model))
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
