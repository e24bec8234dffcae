"""One background job at a time."""

import threading
from collections.abc import Callable

_working: set["Background"] = set()


def is_working() -> bool:
    """Return whether any job of this process is running; safe to call in signal handlers."""
    return bool(_working)


class Background:
    """Run jobs in a thread, one after another. Errors are raised by the next call."""

    def __init__(self) -> None:
        # Thread.join believes after a Ctrl-C that the thread has ended (Python 3.11).
        self._is_done = threading.Event()
        self._is_done.set()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, job: Callable[[], object]) -> None:
        """Wait for the previous job, then start another.

        Raises:
            BaseException: whatever the previous job raised.
        """
        self.wait()
        # A daemon, so the process can quit without waiting for a save.
        self._is_done.clear()
        _working.add(self)
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be started, so run it here
            self._thread = None
            self._run(job)

    def wait(self) -> None:
        """Wait for the job in progress, if there is one.

        Raises:
            BaseException: whatever it raised.
        """
        self._is_done.wait()
        if self._thread is not None:
            self._thread.join()  # or the interpreter may shut down during its last lines, and abort
        self.check()

    def check(self) -> None:
        """Raise whatever a job raised, without waiting for the one in progress."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001  raised by the next call
            self._error = error
        finally:
            _working.discard(self)
            self._is_done.set()
