"""How the commands end: when a signal comes, and in one of several processes."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def prepare() -> None:
    """Lets signals end a command as Ctrl-C does, so that nothing unfinished is left behind."""
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
        signal.signal(signal.SIGHUP, _end)
    # It asks for a save, and may come before there is anything to save.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    sys.exit(128 + number)


@contextmanager
def while_importing() -> Iterator[None]:
    """Signals end the process here, and raise nothing: an import may swallow it, or abort."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        os._exit(128 + number)

    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as SIGHUP is under nohup
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def while_training() -> Iterator[None]:
    """Where training does not note it, Ctrl-C ends the process in the midst of a save.

    Otherwise it is a KeyboardInterrupt, as ever. One would have to wait for the thread that saves,
    which the interpreter cannot end; and what is cut off is passed over when the run goes on.
    """
    from bertpt.training.background import is_working

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not is_working():
            signal.default_int_handler(number, frame)
        for process in multiprocessing.active_children():
            process.kill()
        os.write(2, b"\nleft without the save under way; go on with --resume\n")
        os._exit(128 + number)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ending_without_farewell(*, if_so: bool) -> Iterator[None]:
    """Ends the process with the block, for one of several that train together.

    At the interpreter's own end a thread of torch.distributed may still be there, which it now and
    then ends by an abort (Python 3.11, torch 2.13), and torchrun takes a run that is done for one
    that failed. Whatever is to be written has been written by now.
    """
    status = 0
    try:
        yield
    except SystemExit as left:
        if not if_so or not isinstance(left.code, int):
            raise
        status = left.code
    if if_so:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
