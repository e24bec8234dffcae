"""Worker processes: a function over many tasks, the results in the order of the tasks."""

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

TASKS_ALONE = 6  # done here before processes are started, which takes half a second or so
TASKS_AHEAD = 2  # for each other process, so that none waits
SECONDS_FOR_SIGNAL = 0.5  # one to all processes of a job ends this one, too, in its own way
RESULTS_KEPT = 8  # for each process, until the one before them is there


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Maps functions over tasks in several processes, this one included; a context manager.

    The others are started by `start`, or when there proves to be enough to do, anew rather than by
    a fork, since threads may be running. A function must be one of a module, its task and result
    must be picklable, and it must not depend on the tasks before: then the results are the same for
    any number of workers.

    Args:
        number: of processes.
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
        # They have nothing to put away. After an error a second Ctrl-C, which ends the wait below,
        # would leave them waiting for work, and this process for them, for ever. What kills them in
        # public, `kill_workers`, is new in Python 3.14.
        for process in list((self._pool._processes or {}).values()):  # noqa: SLF001
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def start(self, prepare: Callable[[], object]) -> None:
        """Starts the other processes, if there are to be any, beside what is done here meanwhile.

        Args:
            prepare: what each begins with, such as filling a cache; it must be picklable.
        """
        if self._number > 1 and self._pool is None:
            for _ in range(self._number - 1):  # for each submitted task one is started
                self._submit(int, prepare=prepare)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results of a function, in the order of the tasks, which are read as needed.

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
                waiting.append(self._give(function, task, waiting))
                most = RESULTS_KEPT * self._number
                while waiting and (waiting[0].done() or len(waiting) >= most):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as broken:
            time.sleep(SECONDS_FOR_SIGNAL)
            raise BertptError(
                "a worker process died, perhaps because memory ran out; try fewer `workers`"
            ) from broken

    def _give(
        self, function: Callable[[Task], Result], task: Task, waiting: Iterable[Future[Result]]
    ) -> Future[Result]:
        """Gives a task to another process, or does it here where they all have enough to do."""
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
        # Ctrl-C goes to all processes of a terminal; this one ends the others.
        with block_signals({signal.SIGINT}):
            return self._pool.submit(function, *arguments)


def _begin(prepare: Callable[[], object]) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker is one core's worth
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare()


def _end_with_parent() -> None:
    """Otherwise one whose parent is killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
