"""The two pretraining losses: masked language model and next sentence."""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertpt.config.data import IGNORE_INDEX
from bertpt.model.bert import BertOutput


class LossSums(NamedTuple):
    """Summed losses and counts of a batch; sums of several batches can be added.

    Attributes:
        mlm: sum of -ln p(true id) over the predicted positions. ()
        nsp: sum of -ln p(true label) over the pairs. ()
        num_targets: predicted positions.
        num_pairs: examples with a next-sentence label.
    """

    mlm: Tensor
    nsp: Tensor
    num_targets: int
    num_pairs: int


def loss_sums(
    output: BertOutput, masked_lm_labels: Tensor, next_sentence_labels: Tensor
) -> LossSums:
    """Sum both losses over a batch, in float32.

    The pretraining loss of Devlin et al. (2019) is mlm / num_targets + nsp / num_pairs with the
    counts of the full optimizer step. A mean of micro-batch means would give more weight to the
    targets of micro-batches that have few.

    Args:
        output: of the model.
        masked_lm_labels: true ids at the predicted positions. (P,)
        next_sentence_labels: 0, 1, or -100 for a single segment. (B,)
    """
    return LossSums(
        mlm=F.cross_entropy(output.prediction_logits.float(), masked_lm_labels, reduction="sum"),
        nsp=F.cross_entropy(
            output.seq_relationship_logits.float(), next_sentence_labels, reduction="sum"
        ),
        num_targets=len(masked_lm_labels),
        num_pairs=int((next_sentence_labels != IGNORE_INDEX).sum()),
    )


def pretraining_loss(sums: LossSums, *, num_targets: int, num_pairs: int) -> Tensor:
    """Return a micro-batch's part of the loss of a step that has these counts in total."""
    # Without targets the sum is 0 but still has a gradient. Without pairs the NSP head gets none.
    mlm = sums.mlm / max(1, num_targets)
    nsp = sums.nsp / num_pairs if num_pairs else torch.zeros_like(sums.mlm)
    return mlm + nsp
