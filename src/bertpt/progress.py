"""Progress and log lines: a bar on a terminal, a plain line now and then elsewhere, or nothing."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

from tqdm import tqdm

from bertpt.text import without_controls

SECONDS_BETWEEN_LINES = 5.0


class _StandardError:
    """Standard error, for whoever still reads it: a closed pipe must not end a run."""

    @property
    def encoding(self) -> str:
        return sys.stderr.encoding

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()

    def fileno(self) -> int:
        return sys.stderr.fileno()


# One object for all, since tqdm moves a bar out of a line's way only where both go to the same.
_STDERR = _StandardError()


class _PlainLines(tqdm):  # type: ignore[misc]
    """A tqdm for logs: whole lines, no carriage return."""

    disable: bool
    told_at: ClassVar[float]  # when a line was last written, whichever bar's

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:  # noqa: ARG002
        print(msg or str(self), file=self.fp, flush=True)
        _PlainLines.told_at = time.monotonic()
        return True

    def close(self) -> None:
        # What need not be left may say nothing at all.
        if not self.disable and self.n != self.last_print_n and (self.leave or self.last_print_n):
            self.display()
        self.disable = True

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:  # noqa: ARG004
        return lambda _: None


class Progress:
    """Progress bars and log lines of a stage, on standard error.

    Args:
        quiet: print nothing. The default, so library calls are silent.
        rewrite: applied to each message before it is printed; the command line turns parameter
            names into options with it.
    """

    def __init__(self, *, quiet: bool = True, rewrite: Callable[[str], str] = str) -> None:
        self.quiet = quiet
        self._rewrite = rewrite
        _PlainLines.told_at = time.monotonic()

    def log(self, message: str) -> None:
        """Print a line, above the current bar."""
        if self.quiet:
            return
        message = without_controls(self._rewrite(message))
        if sys.stderr.isatty():
            tqdm.write(message, file=_STDERR)
        else:
            print(message, file=_STDERR, flush=True)
            _PlainLines.told_at = time.monotonic()

    def bar(
        self, description: str, *, unit: str, total: float | None = None, **options: Any
    ) -> Any:
        """A tqdm bar (or its plain counterpart), to be used as a context manager.

        With `leave=False` it goes when it is done, and work of seconds gets no line in a log file.
        """
        terminal = sys.stderr.isatty()
        silent = time.monotonic() - _PlainLines.told_at
        return (tqdm if terminal else _PlainLines)(
            desc=description,
            unit=unit,
            total=total,
            file=_STDERR,
            disable=self.quiet,
            dynamic_ncols=terminal,
            mininterval=0.1 if terminal else SECONDS_BETWEEN_LINES,
            # Short work is not worth a line, but what comes after long silence is.
            delay=0 if terminal else max(0.0, SECONDS_BETWEEN_LINES - silent),
            **options,
        )
