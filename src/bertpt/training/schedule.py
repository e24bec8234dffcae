"""How far a run is, and the learning rate as a pure function of that."""

import time


def linear(before: float, after: float, *, warmup: float) -> float:
    """Linear warm-up, then linear decay towards zero, as a share of the peak.

    Taking both ends of a step keeps the first and the last step from being wasted at zero.

    Args:
        before: share of the run done when the step begins, 0 to 1.
        after: share done when it ends; above `before`.
        warmup: share of the run in which the learning rate rises, 0 to 1.

    Returns:
        Above 0 and at most 1, whenever before < 1.
    """
    rising = after / warmup if warmup else 1.0
    falling = (1 - before) / (1 - warmup) if warmup < 1 else 1.0
    return max(0.0, min(rising, falling, 1.0))


class Budget:
    """What a run may use: a number of steps, or a number of seconds.

    Args:
        num_steps: steps, where seconds do not decide.
        max_seconds: seconds of running, evaluation and saving included; `None` for steps.

    Attributes:
        step: optimizer steps done.
    """

    def __init__(self, *, num_steps: int, max_seconds: float | None) -> None:
        self.num_steps = num_steps
        self.max_seconds = max_seconds
        self.start()

    def start(self, *, step: int = 0, elapsed_seconds: float = 0.0) -> None:
        """Starts the clock, at 0 or where an interrupted run stopped."""
        self.step = step
        self._last_seconds = 0.0
        self._zero = time.monotonic() - elapsed_seconds

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of running so far, pauses between interrupted runs left out."""
        return time.monotonic() - self._zero

    def used(self) -> float:
        """Share of the run that is done, 0 to 1."""
        if self.max_seconds is None:
            return min(1.0, self.step / self.num_steps)
        return min(1.0, self.elapsed_seconds / self.max_seconds)

    def used_after_next(self, before: float) -> float:
        """Share that will be done after the next step, which should last as long as the last."""
        if self.max_seconds is None:
            return (self.step + 1) / self.num_steps
        return before + max(self._last_seconds, 1e-3) / self.max_seconds

    def count_step(self, seconds: float) -> None:
        """Notes that a step was taken, and how long it lasted."""
        self.step += 1
        self._last_seconds = seconds
