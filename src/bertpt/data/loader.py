"""The examples of one step after another, prepared ahead in other processes if so wished."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from torch.utils.data import DataLoader

from bertpt.data.batches import TrainingExamples
from bertpt.data.example import Example
from bertpt.errors import BertptError
from bertpt.signals import SAVE, STOP, block_signals

# What a terminal or Slurm sends to all processes of a run; the one that trains decides what to do.
TO_THE_TRAINER = {*STOP, SAVE}


@contextmanager
def load(
    training: TrainingExamples, step: int, *, workers: int
) -> Iterator[Iterator[list[Example]]]:
    """Gives what each step from `step` on trains on, without end, for as long as the block runs.

    Args:
        training: a pure function of the step, so it does not matter which process asks it.
        step: counted from 0.
        workers: processes, started anew since threads may be running; 0 for none.

    Raises:
        BertptError: one of the processes died; it is raised wherever the block is.
    """
    if workers == 0:
        yield map(training.__getitem__, count(step))
        return
    loader: DataLoader[Any] = DataLoader(
        training,  # type: ignore[arg-type]  # all it must have is __getitem__
        sampler=count(step),
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        multiprocessing_context="spawn",
    )
    with block_signals(TO_THE_TRAINER):
        steps: Any = iter(loader)
    try:
        yield steps
    except RuntimeError as error:  # torch has no class of its own for it
        if "DataLoader worker" not in str(error):
            raise
        raise BertptError(
            "a process that prepares examples died, perhaps because memory ran out; the last "
            "checkpoint is good, and `loader_workers` 0 does without"
        ) from error
    finally:
        try:
            # torch does this in `__del__`, from which a second Ctrl-C could only print a traceback.
            with suppress(RuntimeError):  # of a process that died meanwhile
                steps._shutdown_workers()  # noqa: SLF001
        finally:
            for worker in steps._workers:  # noqa: SLF001
                worker.kill()  # as torch would with SIGTERM, which does not reach it


def _as_it_is(examples: list[Example]) -> list[Example]:
    """Examples stay arrays, since fewer of them cross from one process to another than tensors."""
    return examples
