"""Worker processes: map a function over many tasks, in order."""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from bertpt.errors import BertptError
from bertpt.signals import block_signals

if TYPE_CHECKING:
    from typing_extensions import Self

Task = TypeVar("Task")
Result = TypeVar("Result")

TASKS_ALONE = 6  # run here before starting processes, which takes about half a second
TASKS_AHEAD = 2  # queued for each other process, so that none is idle
SECONDS_FOR_SIGNAL = 0.5  # if a signal killed the worker, time for it to reach this process
RESULTS_KEPT = 8  # for each process, while an earlier result is missing


def num_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Maps functions over tasks in several processes, including this one; a context manager.

    `start` starts the others, or `map` does after its first tasks. They are spawned, not forked,
    since threads may be running. Functions must be at module level, and their tasks and results
    picklable. If a result does not depend on earlier tasks, the results are the same for any
    number of workers.

    Args:
        number: number of processes.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is None:
            return
        # Workers have nothing to clean up, so kill them: a second Ctrl-C would end the wait below,
        # and then they would wait for work forever, and this process for them. The public method,
        # `kill_workers`, is new in Python 3.14.
        self._close_result_pipe(self._pool)
        for process in list((self._pool._processes or {}).values()):  # noqa: SLF001
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _close_result_pipe(self, pool: ProcessPoolExecutor) -> None:
        """Close this process's copy of the end of the result pipe that workers write to.

        Otherwise, if a worker is killed while it sends a result, the pool waits for the rest of it
        forever. Workers inherit the pipe, so it must stay open until all have been started.
        """
        pool._result_queue._writer.close()  # type: ignore[attr-defined]  # noqa: SLF001

    def start(self, prepare: Callable[[], object]) -> None:
        """Start the other processes, if any, without waiting for them.

        Args:
            prepare: picklable function that each process calls first, such as filling a cache.
        """
        if self._number > 1 and self._pool is None:
            for _ in range(self._number - 1):  # each submitted task starts one
                self._submit(int, prepare=prepare)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results of a function in the order of its tasks, read as needed.

        Raises:
            BertptError: a worker died, for example because memory ran out.
        """
        tasks = iter(tasks)
        if self._number == 1:
            yield from map(function, tasks)
            return
        if self._pool is None:
            yield from map(function, islice(tasks, TASKS_ALONE))
        waiting: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                waiting.append(self._run(function, task, waiting))
                most = RESULTS_KEPT * self._number
                while waiting and (waiting[0].done() or len(waiting) >= most):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as broken:
            time.sleep(SECONDS_FOR_SIGNAL)
            raise BertptError(
                "a worker process died, perhaps out of memory; try fewer `workers`"
            ) from broken

    def _run(
        self, function: Callable[[Task], Result], task: Task, waiting: Iterable[Future[Result]]
    ) -> Future[Result]:
        """Submit a task to another process, or run it here if all queues are full."""
        num_open = sum(not future.done() for future in waiting)
        if num_open < TASKS_AHEAD * (self._number - 1):
            return self._submit(function, task)
        here: Future[Result] = Future()
        here.set_result(function(task))
        return here

    def _submit(
        self,
        function: Callable[..., Result],
        *arguments: Any,
        prepare: Callable[[], object] = int,
    ) -> Future[Result]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._number - 1, context, _begin, (prepare,))
        # A terminal sends Ctrl-C to all processes; only this one should handle it.
        with block_signals({signal.SIGINT}):
            future = self._pool.submit(function, *arguments)
        if len(self._pool._processes) == self._number - 1:  # noqa: SLF001
            self._close_result_pipe(self._pool)
        return future


def _begin(prepare: Callable[[], object]) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker uses one core
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare()


def _end_with_parent() -> None:
    """Exit if the parent is killed, instead of waiting for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
