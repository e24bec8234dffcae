"""One job at a time beside training."""

import threading
from collections.abc import Callable

_working: set["Background"] = set()


def is_working() -> bool:
    """Whether a job is under way anywhere in this process; signal handlers may ask."""
    return bool(_working)


class Background:
    """Runs a job in a thread; the next waits for it, and an error waits for the next to ask."""

    def __init__(self) -> None:
        # Not Thread.join, which after a Ctrl-C takes the thread for ended (Python 3.11).
        self._is_done = threading.Event()
        self._is_done.set()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, job: Callable[[], object]) -> None:
        """Waits for the job before, and begins another.

        Raises:
            BaseException: what the job before raised.
        """
        self.wait()
        # A daemon, so that whoever will not wait for a save can leave without it.
        self._is_done.clear()
        _working.add(self)
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left: it is done here, then
            self._thread = None
            self._run(job)

    def wait(self) -> None:
        """Waits for the job under way, if there is one.

        Raises:
            BaseException: what it raised.
        """
        self._is_done.wait()
        if self._thread is not None:
            self._thread.join()  # or the interpreter's end may find it in its last lines, and abort
        self.check()

    def check(self) -> None:
        """Raises what a job raised, without waiting for one that is under way."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001  it is raised where somebody listens
            self._error = error
        finally:
            _working.discard(self)
            self._is_done.set()
