"""What is done about numbers that are not finite: nothing of them is ever saved."""

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
    """Counts the steps that were not taken, since their numbers were not finite.

    Args:
        allowed: how many there may be in the whole run.

    Attributes:
        num: how many there were.
        num_in_a_row: of those, the ones since the last step that was taken.
    """

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.num = self.num_in_a_row = 0

    def note_good(self) -> None:
        """Takes note of a step that was taken."""
        self.num_in_a_row = 0

    def note_bad(self, problem: str) -> str:
        """Takes note of one that was not; returns its problem and how many more there may be.

        Raises:
            BertptError: there were too many; the message tells the problem and the way out.
        """
        self.num += 1
        self.num_in_a_row += 1
        if self.num <= self._allowed:
            return f"{problem}; {self.num} of {self._allowed} that may be skipped"
        if self.num_in_a_row > 1:
            raise BertptError(
                f"{problem}, {self.num_in_a_row} in a row, so the weights are at fault and not the "
                f"batches; {START_AGAIN}"
            )
        raise BertptError(
            f"{problem}. Go on from the last checkpoint with `resume` and `skip_bad_batches` "
            f"{self.num}, or start again with a lower `learning_rate`"
        )


def require_finite_weights(model: BertForPreTraining, *, step: int, ranks: Ranks) -> None:
    """Checks weights before they are evaluated or saved, in all processes.

    A step may overflow weights whose gradients were finite.

    Raises:
        BertptError: one is not finite.
    """
    parameters = model.named_parameters()
    bad = next((name for name, p in parameters if not local_part(p).isfinite().all()), None)
    if ranks.any(bad is not None):
        raise BertptError(
            f"step {step}: {bad or 'a weight'} is no longer finite, so nothing was saved; try a "
            "lower `learning_rate`"
        )


def require_finite_evaluation(result: Mapping[str, Any], *, step: int) -> None:
    """Checks the loss on held-out examples, where they had something to predict.

    Raises:
        BertptError: it is not finite.
    """
    loss = result["loss"]
    if loss is not None and not math.isfinite(loss):
        raise BertptError(
            f"step {step}: the held-out loss is {loss:g}, so nothing was saved; {START_AGAIN}"
        )
