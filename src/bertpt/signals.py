"""How processes handle signals."""

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def block_signals(signals: Collection[signal.Signals]) -> Iterator[None]:
    """Child processes started in the block never receive these signals; this one does after it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        # Starting it unblocks SIGINT and SIGTERM, so it must run before the first child does.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
