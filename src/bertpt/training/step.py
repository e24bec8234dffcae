"""The gradients of one optimizer step, whatever micro-batches and ranks it is cut into."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertpt.config.data import IGNORE_INDEX
from bertpt.data.batches import Batch, collate
from bertpt.data.example import FILLER, Example
from bertpt.device import autocast
from bertpt.model.losses import loss_sums, pretraining_loss
from bertpt.training.distributed import ALONE, Ranks


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step did. Means are over all targets, or pairs, of the whole step.

    Where the data has no pairs, the figures of NSP are None.
    """

    loss: float
    mlm_loss: float
    mlm_accuracy: float
    nsp_loss: float | None
    nsp_accuracy: float | None
    grad_norm: float = 0.0

    @property
    def is_finite(self) -> bool:
        """Whether the step may be taken."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


def accumulate_gradients(
    model: nn.Module,
    examples: Sequence[Example],
    *,
    micro_batch_size: int,
    pad_id: int,
    precision: torch.dtype,
    dropout_seed: Callable[[int], int],
    ranks: Ranks = ALONE,
) -> StepResult:
    """Adds the gradients of the pretraining loss over some examples, a micro-batch at a time.

    Every micro-batch is weighed by the counts of all examples of all ranks, so that the sum is the
    gradient of the mean over all targets and pairs, not a mean of micro-batch or rank means.

    Args:
        model: in train mode, as `ranks.replicate` gives it.
        examples: this rank's share of those of the optimizer step.
        micro_batch_size: examples in one forward pass.
        pad_id: id of [PAD].
        precision: of the matrix products.
        dropout_seed: the seed for the micro-batch of a number, counted over all ranks.
        ranks: who shares the step.

    Returns:
        The losses and accuracies of all ranks together, without the gradient norm.
    """
    device = next(model.parameters()).device
    num_targets, num_pairs, num_examples = ranks.sum(
        [
            sum(len(example.masked_positions) for example in examples),
            sum(example.next_sentence_label != IGNORE_INDEX for example in examples),
            len(examples),
        ]
    )
    # Backward passes sum gradients over the ranks, so all must make as many as rank 0, which has
    # the largest share: at times one more than is needed, or one without an example at all.
    largest_share = -(-num_examples // ranks.world_size)
    num_micro_batches = -(-largest_share // micro_batch_size)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    for number in range(num_micro_batches):
        torch.manual_seed(dropout_seed(ranks.rank * num_micro_batches + number))
        own = examples[number * micro_batch_size : (number + 1) * micro_batch_size] or [FILLER]
        batch = collate(own, pad_id=pad_id).to(device)
        with ranks.accumulating(model, is_last=number + 1 == num_micro_batches):
            sums += _backward(model, batch, precision, num_targets=num_targets, num_pairs=num_pairs)
    mlm, right, nsp, nsp_right = ranks.sum(sums.tolist())
    return StepResult(
        loss=mlm / max(1, num_targets) + nsp / max(1, num_pairs),
        mlm_loss=mlm / max(1, num_targets),
        mlm_accuracy=right / max(1, num_targets),
        nsp_loss=nsp / num_pairs if num_pairs else None,
        nsp_accuracy=nsp_right / num_pairs if num_pairs else None,
    )


def _backward(
    model: nn.Module,
    batch: Batch,
    precision: torch.dtype,
    *,
    num_targets: int,
    num_pairs: int,
) -> Tensor:
    """Adds a micro-batch's gradients; returns its sums: MLM loss, right, NSP loss, right."""
    with autocast(batch.input_ids.device, precision):
        output = model(*batch.inputs)
    sums = loss_sums(output, batch.masked_lm_labels, batch.next_sentence_labels)
    loss = pretraining_loss(sums, num_targets=num_targets, num_pairs=num_pairs)
    loss.backward()  # type: ignore[no-untyped-call]
    right = output.prediction_logits.argmax(dim=-1) == batch.masked_lm_labels
    nsp_right = output.seq_relationship_logits.argmax(dim=-1) == batch.next_sentence_labels
    return torch.stack([sums.mlm.detach(), right.sum(), sums.nsp.detach(), nsp_right.sum()])
