"""The gradients of one optimizer step, split into micro-batches and over ranks."""

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
    """The figures of an optimizer step: means over all its targets, or pairs.

    Without pairs, the NSP figures are `None`.
    """

    loss: float
    mlm_loss: float
    mlm_accuracy: float
    nsp_loss: float | None
    nsp_accuracy: float | None
    grad_norm: float = 0.0

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient norm are finite, so the update may be applied."""
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
    """Accumulate the gradients of the pretraining loss, one micro-batch at a time.

    Each micro-batch is weighted by the counts of all examples of all ranks. So the sum is the
    gradient of the mean over all targets and pairs, not of a mean of micro-batch or rank means.

    Args:
        model: in train mode, from `ranks.replicate`.
        examples: this rank's share of the step's examples.
        micro_batch_size: examples in one forward pass.
        pad_id: id of [PAD].
        precision: of the matrix products.
        dropout_seed: from a micro-batch's number, counted over all ranks, to its seed.
        ranks: that share the step.

    Returns:
        Losses and accuracies over all ranks; the gradient norm is left at 0.
    """
    device = next(model.parameters()).device
    num_targets, num_pairs, num_examples = ranks.sum(
        [
            sum(len(example.masked_positions) for example in examples),
            sum(example.next_sentence_label != IGNORE_INDEX for example in examples),
            len(examples),
        ]
    )
    # Backward passes sum gradients over the ranks, so all ranks must make as many as rank 0, which
    # has the largest share. The last one of another rank may have no example.
    largest_share = -(-num_examples // ranks.world_size)
    num_micro_batches = -(-largest_share // micro_batch_size)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    for number in range(num_micro_batches):
        torch.manual_seed(dropout_seed(ranks.rank * num_micro_batches + number))
        own = examples[number * micro_batch_size : (number + 1) * micro_batch_size] or [FILLER]
        batch = collate(own, pad_id=pad_id).to(device)
        with ranks.accumulating(model, is_last=number + 1 == num_micro_batches):
            sums += _backward(model, batch, precision, num_targets=num_targets, num_pairs=num_pairs)
    mlm, mlm_hits, nsp, nsp_hits = ranks.sum(sums.tolist())
    return StepResult(
        loss=mlm / max(1, num_targets) + nsp / max(1, num_pairs),
        mlm_loss=mlm / max(1, num_targets),
        mlm_accuracy=mlm_hits / max(1, num_targets),
        nsp_loss=nsp / num_pairs if num_pairs else None,
        nsp_accuracy=nsp_hits / num_pairs if num_pairs else None,
    )


def _backward(
    model: nn.Module,
    batch: Batch,
    precision: torch.dtype,
    *,
    num_targets: int,
    num_pairs: int,
) -> Tensor:
    """Add a micro-batch's gradients; return MLM loss, MLM hits, NSP loss, NSP hits, summed."""
    with autocast(batch.input_ids.device, precision):
        output = model(*batch.inputs)
    sums = loss_sums(output, batch.masked_lm_labels, batch.next_sentence_labels)
    loss = pretraining_loss(sums, num_targets=num_targets, num_pairs=num_pairs)
    loss.backward()  # type: ignore[no-untyped-call]
    mlm_hits = output.prediction_logits.argmax(dim=-1) == batch.masked_lm_labels
    nsp_hits = output.seq_relationship_logits.argmax(dim=-1) == batch.next_sentence_labels
    return torch.stack([sums.mlm.detach(), mlm_hits.sum(), sums.nsp.detach(), nsp_hits.sum()])
