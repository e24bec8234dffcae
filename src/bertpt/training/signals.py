"""Signals that ask a run to stop or to save, looked at between its steps."""

import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from bertpt.training.distributed import ALONE, Ranks

if TYPE_CHECKING:
    from typing_extensions import Self

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAVE = signal.SIGUSR1


class Signals:
    """Notes signals to stop (`STOPS`) or to save instead of obeying them; a context manager.

    A second SIGINT goes to the handler that was there before, or else is a KeyboardInterrupt.
    A SIGHUP that is ignored, as under nohup, stays so. Outside the main thread, where Python
    handles no signals, nothing is noted.

    Args:
        ranks: the processes that train together. A signal to one is one to all, so all must ask
            `stop` and `take_save` alike.
    """

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self._ranks = ranks
        self._noted: signal.Signals | None = None
        self._agreed: signal.Signals | None = None
        self._wants_save = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Self":
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if number != signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._note_stop)
            self._before[SAVE] = signal.signal(SAVE, self._note_save)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        """The signal that asked to stop, if one did."""
        if self._agreed is None:
            noted = self._ranks.sum([int(self._noted == number) for number in STOPS])
            self._agreed = next((s for s, n in zip(STOPS, noted, strict=True) if n), None)
        return self._agreed

    def take_save(self) -> bool:
        """Whether a save was asked for since the last time."""
        wants, self._wants_save = self._wants_save, False
        return self._ranks.any(wants)

    def obey(self) -> None:
        """Lets the signal that asked to stop do what it would have done without this."""
        assert self.stop is not None
        self.__exit__(None, None, None)
        signal.raise_signal(self.stop)
        raise SystemExit(128 + self.stop)  # it was another process's signal, and is ignored here
