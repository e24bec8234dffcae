"""Losses, gradients and weights that are not finite: they are never saved."""

import math
from collections.abc import Mapping
from typing import Any

from bertpt.errors import BertptError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.sharded import local_part
from bertpt.training.distributed import Ranks

START_AGAIN = (
    "start again with a lower `learning_rate`, from a checkpoint with `init_from` if you like"
)


class BadSteps:
    """The number of steps skipped because their numbers were not finite.

    Args:
        allowed: the most there may be in the whole run.

    Attributes:
        num: skipped steps so far.
        num_in_a_row: skipped steps since the last good one.
    """

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.num = self.num_in_a_row = 0

    def note_good(self) -> None:
        """Count a good step."""
        self.num_in_a_row = 0

    def require_few(self, *, steps: int) -> None:
        """Check at the end of a run that most steps were good.

        Raises:
            BertptError: more than half of them were skipped.
        """
        if 2 * self.num > steps:
            raise BertptError(
                f"{self.num} of {steps} steps were skipped because their losses or gradients were "
                f"not finite, so the model is hardly trained; {START_AGAIN}"
            )

    def note_bad(self, problem: str, *, can_resume: bool) -> str:
        """Count a skipped step; return a log line with its problem and the number skipped.

        Args:
            problem: what was not finite.
            can_resume: whether there is a checkpoint, for the message.

        Raises:
            BertptError: there were too many.
        """
        self.num += 1
        self.num_in_a_row += 1
        if self.num <= self._allowed:
            return f"{problem}; {self.num} of {self._allowed} that may be skipped"
        if self.num_in_a_row > 1:
            raise BertptError(
                f"{problem}, {self.num_in_a_row} in a row, so the weights are at fault, not the "
                f"batches; {START_AGAIN}"
            )
        if not can_resume:
            raise BertptError(f"{problem}; {START_AGAIN}")
        raise BertptError(
            f"{problem}. Continue from the last checkpoint with `resume` and `skip_bad_batches` "
            f"{self.num}, or start again with a lower `learning_rate`"
        )


def require_finite_weights(model: BertForPreTraining, *, step: int, ranks: Ranks) -> None:
    """Check the weights of all ranks before they are evaluated or saved.

    A step can overflow weights although its gradients are finite.

    Raises:
        BertptError: a weight is not finite.
    """
    parameters = model.named_parameters()
    bad = next((name for name, p in parameters if not local_part(p).isfinite().all()), None)
    if ranks.any(bad is not None):
        raise BertptError(
            f"step {step}: {bad or 'a weight'} is no longer finite, so nothing was saved; try a "
            "lower `learning_rate`"
        )


def require_finite_evaluation(result: Mapping[str, Any], *, step: int) -> None:
    """Check the loss on held-out examples, if there was anything to predict.

    Raises:
        BertptError: it is not finite.
    """
    loss = result["loss"]
    if loss is not None and not math.isfinite(loss):
        raise BertptError(
            f"step {step}: the held-out loss is {loss:g}, so nothing was saved; {START_AGAIN}"
        )
