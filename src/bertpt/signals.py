"""How bertpt handles signals, all of it.

- In a command, SIGTERM and SIGHUP raise SystemExit as Ctrl-C raises KeyboardInterrupt. So
  unfinished files are removed, and the exit status is 128 + the signal (`exit_on_signals`).
- While a command imports torch they end the process at once, since an import may swallow an
  exception or abort (`while_importing`).
- Worker processes never receive the signals that a terminal or Slurm sends to a whole job; the
  main process decides what happens to them (`block_signals`).
- Training finishes its step, saves, and only then lets the signal act (`StopRequest`). SIGUSR1
  saves without stopping. A second Ctrl-C quits without the save (`while_training`).
- SIGHUP stays ignored if it was, as under nohup.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAVE = signal.SIGUSR1


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit, and ignore requests to save."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        sys.exit(128 + number)

    for number in STOP:
        if number != signal.SIGINT and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)
    signal.signal(SAVE, signal.SIG_IGN)  # it may come before there is anything to save


@contextmanager
def while_importing() -> Iterator[None]:
    """End the process at once on a signal to stop."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        os._exit(128 + number)

    before = {number: signal.getsignal(number) for number in STOP}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def while_training(is_saving: Callable[[], bool]) -> Iterator[None]:
    """Let Ctrl-C end the process during a save; otherwise it is a KeyboardInterrupt.

    The interpreter cannot end the thread that saves, and would wait for it. A checkpoint that is
    cut off is skipped when the run is resumed.

    Args:
        is_saving: whether a save is in progress.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not is_saving():
            signal.default_int_handler(number, frame)
        for process in multiprocessing.active_children():
            process.kill()
        os.write(2, b"\nquit without finishing the save; continue with --resume\n")
        os._exit(128 + number)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def block_signals(signals: Collection[signal.Signals]) -> Iterator[None]:
    """Start child processes that never receive these signals; this one does after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        # Starting it unblocks SIGINT and SIGTERM, so it must run before the first child does.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequest:
    """Note signals to stop or save instead of acting on them; a context manager.

    A second SIGINT goes to the previous handler, or raises KeyboardInterrupt. Outside the main
    thread, where Python handles no signals, nothing is noted.

    Args:
        add_up: sums numbers over the ranks that train together. A signal to one counts for all, so
            all must ask `stop` and `take_save` alike.
    """

    def __init__(self, add_up: Callable[[Sequence[int]], list[int]] = list) -> None:
        self._add_up = add_up
        self._noted: signal.Signals | None = None
        self._agreed: signal.Signals | None = None
        self._wants_save = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Self":
        if threading.current_thread() is threading.main_thread():
            for number in STOP:
                if number != signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._note_stop)
            self._before[SAVE] = signal.signal(SAVE, self._note_save)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note_stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._noted = self._noted or signal.Signals(number)
        before = self._before[signal.SIGINT]
        signal.signal(signal.SIGINT, before if callable(before) else signal.default_int_handler)

    def _note_save(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._wants_save = True

    @property
    def stop(self) -> signal.Signals | None:
        """The signal that asked to stop, if there was one."""
        if self._agreed is None:
            noted = self._add_up([int(self._noted == number) for number in STOP])
            self._agreed = next((s for s, n in zip(STOP, noted, strict=True) if n), None)
        return self._agreed

    def take_save(self) -> bool:
        """Return whether a save was asked for since the last call."""
        wants, self._wants_save = self._wants_save, False
        return self._add_up([int(wants)])[0] > 0

    def obey(self) -> None:
        """Let the signal that asked to stop act as it would have without this."""
        assert self.stop is not None
        self.__exit__()
        signal.raise_signal(self.stop)
        raise SystemExit(128 + self.stop)  # another rank received it; this process ignores it


@contextmanager
def exit_without_teardown(*, enabled: bool) -> Iterator[None]:
    """End the process right after the block, as one of several ranks should.

    When the interpreter shuts down, a thread of torch.distributed may still run and abort it
    (Python 3.11, torch 2.13), and torchrun would take a finished run for a failed one. Everything
    has been written by then.
    """
    status = 0
    try:
        yield
    except SystemExit as error:
        if not enabled or not isinstance(error.code, int):
            raise
        status = error.code
    if enabled:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
