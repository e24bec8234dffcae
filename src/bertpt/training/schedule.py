"""How much of a run is done, and the learning rate as a pure function of that."""

import math
import time
from collections.abc import Callable
from functools import partial

from bertpt.config import PretrainConfig, share_of_run

# From the fractions of the run done before and after a step to the fraction of the peak rate.
Schedule = Callable[[float, float], float]


def make_schedule(config: PretrainConfig, num_steps: int) -> Schedule:
    """Return the schedule that the settings ask for.

    It has no memory: when a run is resumed with another length, the fraction done is computed
    again, and so is the learning rate.

    Args:
        config: resolved settings.
        num_steps: steps of the run; 0 with `max_minutes`.
    """
    warmup = share_of_run(config.warmup or 0.0, num_steps)
    if config.schedule == "wsd":
        return partial(wsd, warmup=warmup, decay=share_of_run(config.decay or 0.0, num_steps))
    if config.schedule == "google":
        given = config.warmup or 0.0
        # Whole steps, a fraction rounded down, as in run_classifier.py.
        warmup = int(given if given >= 1 else given * num_steps) / num_steps
    return partial(WITHOUT_DECAY[config.schedule], warmup=warmup)


def linear(before: float, after: float, *, warmup: float) -> float:
    """Linear warm-up, then linear decay towards zero, as a fraction of the peak.

    With both ends of a step given, neither the first nor the last step is wasted at zero.

    Args:
        before: fraction of the run done when the step begins, 0 to 1.
        after: fraction done when it ends; above `before`.
        warmup: fraction of the run in which the learning rate rises, 0 to 1.

    Returns:
        Above 0 if before < 1; at most 1.
    """
    return min(_warm_up(after, warmup), _left(before, 1 - warmup))


def cosine(before: float, after: float, *, warmup: float) -> float:
    """Linear warm-up, then half a cosine towards zero (Loshchilov and Hutter, "SGDR", 2017).

    Arguments and result are as in `linear`.
    """
    falling = math.sin(math.pi / 2 * _left(before, 1 - warmup)) ** 2  # (1 + cos) / 2, exact near 0
    return min(_warm_up(after, warmup), falling)


def constant(before: float, after: float, *, warmup: float) -> float:  # noqa: ARG001
    """Linear warm-up, then the peak. Arguments and result are as in `linear`."""
    return _warm_up(after, warmup)


def wsd(before: float, after: float, *, warmup: float, decay: float) -> float:
    """Warm-up, stable, decay (Hu et al., "MiniCPM", 2024): the peak, then a final decay.

    The decay is 1 - sqrt(fraction of it done), which Hägele et al. ("Scaling Laws and
    Compute-Optimal Training Beyond Fixed Training Durations", 2024) found better than a linear one.

    Args:
        before: as in `linear`.
        after: as in `linear`.
        warmup: as in `linear`.
        decay: fraction of the run in which the learning rate falls, 0 to 1.

    Returns:
        Above 0 if before < 1; at most 1.
    """
    left = _left(before, decay)
    falling = left / (1 + math.sqrt(1 - left))  # 1 - sqrt(1 - left), exact near 0
    return min(_warm_up(after, warmup), falling)


def google(before: float, after: float, *, warmup: float) -> float:  # noqa: ARG001
    """The schedule of google-research/bert's optimization.py, for comparisons with it.

    Its faults are reproduced. Steps count from 0, so the first has a learning rate of 0 and changes
    nothing. The decay starts at the first step, so the peak is never reached: where the warm-up
    ends, the learning rate drops to `1 - warmup`.

    Args:
        before: fraction of the run's steps done when the step begins.
        after: unused.
        warmup: whole steps of warm-up, as a fraction of the run's.

    Returns:
        At least 0 and at most 1.
    """
    return before / warmup if before < warmup else max(0.0, 1 - before)


WITHOUT_DECAY = {"linear": linear, "cosine": cosine, "constant": constant, "google": google}


def _warm_up(after: float, warmup: float) -> float:
    return min(1.0, after / warmup) if warmup else 1.0


def _left(before: float, length: float) -> float:
    """Return the fraction left of the last part of a run; 1 before it begins."""
    return max(0.0, min(1.0, (1 - before) / length)) if length > 0 else 1.0


def make_budget(
    config: PretrainConfig, steps_per_epoch: int, agree: Callable[[float], float] = float
) -> "Budget":
    """Return the budget that the settings ask for; `agree` is as in `Budget`."""
    return Budget(
        num_steps=config.steps or (config.epochs or 0) * steps_per_epoch,
        max_seconds=60 * config.max_minutes if config.max_minutes else None,
        agree=agree,
    )


class Budget:
    """The length of a run: a number of steps, or a number of seconds.

    Args:
        num_steps: steps, if `max_seconds` is `None`.
        max_seconds: seconds after which no step starts; evaluations and saves between steps count,
            those at the end do not.
        agree: from this process's clock to the one that all ranks use. With `max_seconds`, `used`,
            `next_step` and `has_time_for_pause` call it, so all ranks must call them alike.

    Attributes:
        step: optimizer steps done.
    """

    def __init__(
        self,
        *,
        num_steps: int,
        max_seconds: float | None,
        agree: Callable[[float], float] = float,
    ) -> None:
        self._agree = agree
        self.num_steps = num_steps
        self.max_seconds = max_seconds
        self.start()

    def start(self, *, step: int = 0, elapsed_seconds: float = 0.0) -> None:
        """Start the clock, at 0 or where an interrupted run stopped."""
        self.step = step
        self._last_seconds = self._longest_pause = 0.0
        self._zero = time.monotonic() - elapsed_seconds

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of training so far, without the pauses between interrupted runs."""
        return time.monotonic() - self._zero

    def used(self) -> float:
        """Return the fraction of the run that is done, 0 to 1."""
        if self.max_seconds is None:
            return min(1.0, self.step / self.num_steps)
        return min(1.0, self._agree(self.elapsed_seconds) / self.max_seconds)

    def next_step(self) -> tuple[float, float]:
        """Return the fractions done before and after the next step, assumed as long as the last."""
        used = self.used()
        if self.max_seconds is None:
            return used, (self.step + 1) / self.num_steps
        return used, used + max(self._agree(self._last_seconds), 1e-3) / self.max_seconds

    def count_step(self, seconds: float) -> None:
        """Count a step that took some seconds."""
        self.step += 1
        self._last_seconds = seconds

    def count_pause(self, seconds: float) -> None:
        """Count the seconds of an evaluation or a save between two steps."""
        self._longest_pause = max(self._longest_pause, seconds)

    def has_time_for_pause(self) -> bool:
        """Return whether an evaluation or a save would finish before the run ends.

        Otherwise the schedule would end before the decay does; the run evaluates and saves at its
        end anyway.
        """
        if self.max_seconds is None:
            return True
        return self._agree(self.elapsed_seconds + self._longest_pause) < self.max_seconds
