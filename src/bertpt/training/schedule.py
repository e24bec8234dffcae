"""How far a run is, and the learning rate as a pure function of that."""

import math
import time
from collections.abc import Callable
from functools import partial

from bertpt.config import PretrainConfig, share_of_run

# From the shares of the run done before and after a step to the step's share of the peak.
Schedule = Callable[[float, float], float]


def make_schedule(config: PretrainConfig, num_steps: int) -> Schedule:
    """The schedule that the settings ask for.

    It knows nothing of the past: where a run is resumed with another length, the share done is
    reckoned anew, and the learning rate is the one that the new length has there.

    Args:
        config: resolved settings.
        num_steps: steps of the run; 0 where seconds decide.
    """
    warmup = share_of_run(config.warmup or 0.0, num_steps)
    if config.schedule == "wsd":
        return partial(wsd, warmup=warmup, decay=share_of_run(config.decay or 0.0, num_steps))
    if config.schedule == "google":
        asked = config.warmup or 0.0
        # Whole steps, a share of them rounded down, as run_classifier.py has it.
        warmup = int(asked if asked >= 1 else asked * num_steps) / num_steps
    return partial(WITHOUT_DECAY[config.schedule], warmup=warmup)


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
    return min(_warm_up(after, warmup), _left(before, 1 - warmup))


def cosine(before: float, after: float, *, warmup: float) -> float:
    """Linear warm-up, then half a cosine towards zero (Loshchilov and Hutter, "SGDR", 2017).

    Arguments and result are those of `linear`.
    """
    falling = math.sin(math.pi / 2 * _left(before, 1 - warmup)) ** 2  # (1 + cos) / 2, exact near 0
    return min(_warm_up(after, warmup), falling)


def constant(before: float, after: float, *, warmup: float) -> float:  # noqa: ARG001
    """Linear warm-up, then the peak to the end. Arguments and result are those of `linear`."""
    return _warm_up(after, warmup)


def wsd(before: float, after: float, *, warmup: float, decay: float) -> float:
    """Warm-up, stable, decay (Hu et al., "MiniCPM", 2024): the peak until the last part of the run.

    There it falls as 1 - sqrt(share of that part done), fast at first and slowly near zero, which
    Hägele et al. ("Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations",
    2024) found better than a linear fall.

    Args:
        before: as for `linear`.
        after: as for `linear`.
        warmup: as for `linear`.
        decay: share of the run in which the learning rate falls, 0 to 1.

    Returns:
        Above 0 and at most 1, whenever before < 1.
    """
    left = _left(before, decay)
    falling = left / (1 + math.sqrt(1 - left))  # 1 - sqrt(1 - left), exact near 0
    return min(_warm_up(after, warmup), falling)


def google(before: float, after: float, *, warmup: float) -> float:  # noqa: ARG001
    """The schedule of google-research/bert's optimization.py, to compare with what it trained.

    Its faults are reproduced: steps count from 0, so the first one has a learning rate of 0 and
    changes nothing (with one step and one of warm-up, none does); the decay runs from the first
    step on, so the peak is never reached, and where the warm-up ends, the learning rate drops
    from near the peak to `1 - warmup`.

    Args:
        before: share of the run's steps done when the step begins.
        after: not used.
        warmup: whole steps of warm-up as a share of the run's.

    Returns:
        At least 0 and at most 1.
    """
    return before / warmup if before < warmup else max(0.0, 1 - before)


WITHOUT_DECAY = {"linear": linear, "cosine": cosine, "constant": constant, "google": google}


def _warm_up(after: float, warmup: float) -> float:
    return min(1.0, after / warmup) if warmup else 1.0


def _left(before: float, length: float) -> float:
    """What is left of the last part of a run, as a share of that part: 1 until it begins."""
    return max(0.0, min(1.0, (1 - before) / length)) if length > 0 else 1.0


def make_budget(
    config: PretrainConfig, steps_per_epoch: int, agree: Callable[[float], float] = float
) -> "Budget":
    """The length that the settings ask for; `agree` as for `Budget`."""
    return Budget(
        num_steps=config.steps or (config.epochs or 0) * steps_per_epoch,
        max_seconds=60 * config.max_minutes if config.max_minutes else None,
        agree=agree,
    )


class Budget:
    """What a run may use: a number of steps, or a number of seconds.

    Args:
        num_steps: steps, where seconds do not decide.
        max_seconds: seconds of running after which no step begins, evaluations and saves
            between the steps included and those at the end not; `None` for steps.
        agree: from this process's clock to the one that processes that train together go by. Where
            seconds decide, `used`, `next_step` and `has_time_for_pause` ask it, so all processes
            must call them alike.

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
        """Starts the clock, at 0 or where an interrupted run stopped."""
        self.step = step
        self._last_seconds = self._longest_pause = 0.0
        self._zero = time.monotonic() - elapsed_seconds

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of running so far, pauses between interrupted runs left out."""
        return time.monotonic() - self._zero

    def used(self) -> float:
        """Share of the run that is done, 0 to 1."""
        if self.max_seconds is None:
            return min(1.0, self.step / self.num_steps)
        return min(1.0, self._agree(self.elapsed_seconds) / self.max_seconds)

    def next_step(self) -> tuple[float, float]:
        """Shares done before and after the next step, which should last as long as the last."""
        used = self.used()
        if self.max_seconds is None:
            return used, (self.step + 1) / self.num_steps
        return used, used + max(self._agree(self._last_seconds), 1e-3) / self.max_seconds

    def count_step(self, seconds: float) -> None:
        """Notes that a step was taken, and how long it lasted."""
        self.step += 1
        self._last_seconds = seconds

    def count_pause(self, seconds: float) -> None:
        """Notes how long an evaluation or a save between two steps lasted."""
        self._longest_pause = max(self._longest_pause, seconds)

    def has_time_for_pause(self) -> bool:
        """Whether another would end before the run, which evaluates and saves at its end anyway.

        One that does not would take the end of the decay away.
        """
        if self.max_seconds is None:
            return True
        return self._agree(self.elapsed_seconds + self._longest_pause) < self.max_seconds
