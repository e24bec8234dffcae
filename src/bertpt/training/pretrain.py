"""The pretrain stage: data folders in, a RUN folder out."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bertpt.config import PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.progress import Progress
from bertpt.training.checkpoint import newest_checkpoint
from bertpt.training.distributed import ALONE, Ranks
from bertpt.training.loop import train
from bertpt.training.resume import require_same_data
from bertpt.training.run_folder import RunFolder, read_checked
from bertpt.training.trainer import Trainer


def pretrain(
    data_path: Path | Sequence[Path],
    out: Path,
    *,
    config: PretrainConfig,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Train a BERT on MLM and NSP, from scratch or from the weights of another model.

    Args:
        data_path: a DATA folder, or several, which are read as one.
        out: the RUN folder to create, or to continue.
        config: how to train; the recipe fills in what it leaves open.
        resume: continue from the newest checkpoint in `out`.
        overwrite: replace an existing RUN folder at `out`.
        progress: where to report.
        ranks: the processes that train together, from `bertpt.training.distributed.join`; the
            first of them reports and writes for all.

    Returns:
        The last entry of metrics.jsonl: step and losses, on held-out examples if there are any. If
        nothing was logged, step and split alone.

    Raises:
        BertptError: settings, data and output do not fit together, or the loss is not finite.
    """
    progress = (progress or Progress()) if ranks.is_first else Progress()
    run = RunFolder(out) if ranks.is_first else None
    with run or nullcontext():
        if run and resume:
            run.reopen(progress.log)
        elif run:
            run.refuse_existing(overwrite=overwrite)
        if resume:
            ranks.barrier()  # so all see the same checkpoints
        data = Dataset(data_path, checked=read_checked(out))
        if resume:
            require_same_data(out, data)
        checkpoint = newest_checkpoint(out, progress.log) if resume else None
        trainer = Trainer(data, config, progress, run=run, checkpoint=checkpoint, ranks=ranks)
        if resume:
            trainer.resume()
        else:
            trainer.start(overwrite=overwrite)
        return train(trainer)
