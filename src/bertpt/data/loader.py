"""Load the examples of each step, optionally ahead of time in other processes."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from torch.utils.data import DataLoader

from bertpt.data.batches import TrainingExamples
from bertpt.data.example import Example
from bertpt.errors import BertptError
from bertpt.signals import SAVE, STOP, block_signals

# A terminal and Slurm send these to all processes of a run; only the trainer handles them.
TRAINER_SIGNALS = {*STOP, SAVE}


@contextmanager
def load_steps(
    training: TrainingExamples, step: int, *, workers: int
) -> Iterator[Iterator[list[Example]]]:
    """Yield an endless iterator over the examples of each step from `step` on.

    Args:
        training: a function of the step, so any process may compute it.
        step: counted from 0.
        workers: number of processes; 0 to load in this one.

    Raises:
        BertptError: a worker died; raised inside the `with` block.
    """
    if workers == 0:
        yield map(training.__getitem__, count(step))
        return
    loader: DataLoader[Any] = DataLoader(
        training,  # type: ignore[arg-type]  # only needs __getitem__
        sampler=count(step),
        batch_size=None,
        num_workers=workers,
        collate_fn=_identity,
        multiprocessing_context="spawn",  # threads may be running, which `fork` does not survive
    )
    with block_signals(TRAINER_SIGNALS):
        steps: Any = iter(loader)
    try:
        yield steps
    except RuntimeError as error:  # torch has no exception class for it
        if "DataLoader worker" not in str(error):
            raise
        raise BertptError(
            "a process that loads examples died, perhaps out of memory; resume from the last "
            "checkpoint, or set `loader_workers` to 0"
        ) from error
    finally:
        try:
            # torch calls this in `__del__`, where a second Ctrl-C would print a traceback.
            with suppress(RuntimeError):  # a worker died
                steps._shutdown_workers()  # noqa: SLF001
        finally:
            for worker in steps._workers:  # noqa: SLF001
                worker.kill()  # torch sends SIGTERM, which is blocked


def _identity(examples: list[Example]) -> list[Example]:
    """Keep examples as arrays, which take fewer objects than tensors to send to a process."""
    return examples
