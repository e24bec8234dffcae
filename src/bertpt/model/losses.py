"""The two pretraining losses."""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertpt.config.data import IGNORE_INDEX
from bertpt.model.bert import BertOutput


class LossSums(NamedTuple):
    """Summed losses and counts of a batch, from which a mean over any larger set can be made.

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
    """Sums both losses over a batch, in float32.

    The pretraining loss of Devlin et al. (2019) is mlm / num_targets + nsp / num_pairs, the
    counts being those of the whole optimizer step: means of micro-batch means would weigh the
    targets of a micro-batch with few of them too much.

    Args:
        output: of the model.
        masked_lm_labels: true ids at the predicted positions. (P,)
        next_sentence_labels: 0, 1, or -100 for an example that is no pair. (B,)
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
    """The share of a micro-batch in the loss of an optimizer step with these counts."""
    # Without targets the sum is 0, and a loss with a gradient all the same; the NSP head of a
    # model that sees no pairs is left alone.
    mlm = sums.mlm / max(1, num_targets)
    nsp = sums.nsp / num_pairs if num_pairs else torch.zeros_like(sums.mlm)
    return mlm + nsp
