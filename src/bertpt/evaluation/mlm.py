"""The eval-mlm stage: losses and accuracies on held-out examples, with baselines."""

import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from bertpt.compat import require_rows, require_same_tokenizer, require_sequences
from bertpt.config import SPLITS, EvalConfig
from bertpt.config.data import IGNORE_INDEX
from bertpt.data.batches import Batch, in_order
from bertpt.data.dataset import Dataset
from bertpt.device import autocast, choose_device, choose_precision
from bertpt.errors import InputError
from bertpt.model.bert import BertForPreTraining, BertOutput
from bertpt.model.hf_files import find_model
from bertpt.model.pretrained import MLM_HEAD, NSP_HEAD, load_model
from bertpt.progress import Progress

KINDS = ("masked", "random", "unchanged")  # what the model sees in place of a target


def eval_mlm(
    model_path: Path,
    data_path: Path | Sequence[Path],
    *,
    config: EvalConfig,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Evaluate a model on the stored masks of DATA folders.

    Args:
        model_path: a run, a checkpoint or a Hugging Face folder.
        data_path: one or more DATA folders built with the model's tokenizer.
        config: which examples, and where to compute. The batch size changes results by less than
            1e-6.
        progress: receives a progress bar and warnings.

    Returns:
        The result of `evaluate`, and that of `baselines` as "baselines".

    Raises:
        BertptError: model and data do not match, or there are no examples.
    """
    progress = progress or Progress()
    folder, data = find_model(model_path), Dataset(data_path)
    examples = data.examples(config.split)
    if not len(examples):
        other = next(split for split in SPLITS if split != config.split)
        raise InputError(f"{data.name} has no {config.split} examples; try `split` {other}")
    require_same_tokenizer(folder, data)
    device = choose_device(config.device)
    model, report = load_model(BertForPreTraining, folder)
    report.require(MLM_HEAD, folder)
    require_rows(model.config, len(data.tokenizer.vocab), folder)
    require_sequences(model.config, data)
    batches: Iterable[Batch] = in_order(
        examples, batch_size=config.batch_size, pad_id=data.tokenizer.pad_id
    )
    if report.ignored:
        progress.log(f"{folder}: {report.ignored_note()}")
    objective = "mlm" if report.lacks(NSP_HEAD) else model.config.objective
    if data.settings.objective not in (objective, "mlm"):
        has = "no trained NSP head" if objective == "mlm" else f"a head for {objective.upper()}"
        wanted = data.settings.objective.upper()
        progress.log(f"skipping {wanted}: the model has {has}")
        batches = map(_without_pairs, batches)
    with progress.bar("evaluating", unit="example", total=len(examples)) as bar:
        result = evaluate(
            model.to(device),
            _counted(batches, bar),
            mask_id=data.tokenizer.mask_id,
            num_characters=data.tokenizer.num_characters,
            precision=choose_precision(config.precision, device),
        )
    return {
        "split": config.split,
        **result,
        "baselines": baselines(data, config.split, num_classes=model.config.vocab_size),
    }


def _counted(batches: Iterable[Batch], bar: Any) -> Iterable[Batch]:
    for batch in batches:
        yield batch
        bar.update(len(batch.lengths))


def _without_pairs(batch: Batch) -> Batch:
    none = torch.full_like(batch.next_sentence_labels, IGNORE_INDEX)
    return dataclasses.replace(batch, next_sentence_labels=none)


@torch.no_grad()
def evaluate(
    model: BertForPreTraining,
    batches: Iterable[Batch],
    *,
    mask_id: int,
    num_characters: np.ndarray,
    precision: torch.dtype,
    add_up: Callable[[list[float]], list[float]] = list,
) -> dict[str, Any]:
    """Compute losses and accuracies over all targets and pairs of some batches.

    Means are taken over targets (or pairs), not over batches, so the batch size does not matter.
    The model's training mode is restored at the end.

    Args:
        model: the model.
        batches: examples to evaluate on; `FILLER` does not count.
        mask_id: id of [MASK].
        num_characters: of each token, int64, (vocabulary,).
        precision: of matrix products.
        add_up: turns the sums of this process into those of all processes that share the batches.
            Each process needs at least one batch.

    Returns:
        loss (mlm_loss + nsp_loss), mlm_loss (nats per target), mlm_perplexity (see `perplexity`),
        mlm_bits_per_character (loss of all targets per character of their text, which compares
        models with different vocabularies),
        mlm_accuracy, mlm_top5_accuracy, mlm_accuracy_by_input and num_targets_by_input (by what the
        model sees: [MASK], a random token, or the target unchanged), nsp_loss, nsp_accuracy,
        num_examples, num_targets, num_pairs. Means without targets or pairs are None.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    total: Counter[str] = Counter()
    characters = torch.from_numpy(num_characters)
    for batch in batches:
        on_device = batch.to(device)
        with autocast(device, precision):
            output = model(*on_device.inputs)
        total.update(_tally(output, on_device, mask_id))
        total["characters"] += int(characters[batch.masked_lm_labels].sum())
    model.train(was_training)
    total = Counter(dict(zip(total, add_up(list(total.values())), strict=True)))
    mlm_loss = _mean(total["mlm_loss"], total["targets"])
    nsp_loss = _mean(total["nsp_loss"], total["pairs"])
    return {
        "loss": (mlm_loss or 0.0) + (nsp_loss or 0.0),
        "mlm_loss": mlm_loss,
        "mlm_perplexity": perplexity(mlm_loss),
        "mlm_bits_per_character": _mean(total["mlm_loss"] / math.log(2), total["characters"]),
        "mlm_accuracy": _mean(total["right"], total["targets"]),
        "mlm_top5_accuracy": _mean(total["right in 5"], total["targets"]),
        "mlm_accuracy_by_input": {
            kind: _mean(total[f"right, {kind}"], total[f"targets, {kind}"]) for kind in KINDS
        },
        "nsp_loss": nsp_loss,
        "nsp_accuracy": _mean(total["nsp right"], total["pairs"]),
        "num_examples": total["examples"],
        "num_targets": total["targets"],
        "num_targets_by_input": {kind: total[f"targets, {kind}"] for kind in KINDS},
        "num_pairs": total["pairs"],
    }


def perplexity(loss: float | None) -> float | None:
    """Return exp(loss); `None` if the loss is `None` or the result exceeds a float64."""
    return math.exp(loss) if loss is not None and loss < math.log(sys.float_info.max) else None


def _tally(output: BertOutput, batch: Batch, mask_id: int) -> dict[str, Any]:
    """Return sums and counts over a batch; losses are summed in float64."""
    logits, labels = output.prediction_logits.float(), batch.masked_lm_labels
    seen = batch.input_ids.flatten()[batch.masked_positions]
    saw_mask, saw_truth = seen == mask_id, seen == labels
    kinds = zip(KINDS, (saw_mask, ~saw_mask & ~saw_truth, saw_truth), strict=True)
    best = logits.topk(min(5, logits.shape[1])).indices
    right = best[:, 0] == labels
    nsp_logits, nsp_labels = output.seq_relationship_logits.float(), batch.next_sentence_labels
    tally: dict[str, Any] = {
        "examples": int((batch.lengths > 1).sum()),  # excludes FILLER
        "targets": len(labels),
        "pairs": int((nsp_labels != IGNORE_INDEX).sum()),
        "mlm_loss": F.cross_entropy(logits, labels, reduction="none").double().sum().item(),
        "nsp_loss": F.cross_entropy(nsp_logits, nsp_labels, reduction="none").double().sum().item(),
        "right": int(right.sum()),
        "right in 5": int((best == labels.unsqueeze(1)).any(dim=1).sum()),
        "nsp right": int((nsp_logits.argmax(dim=1) == nsp_labels).sum()),
    }
    for kind, is_kind in kinds:
        tally[f"targets, {kind}"] = int(is_kind.sum())
        tally[f"right, {kind}"] = int((right & is_kind).sum())
    return tally


def _mean(total: float, number: float) -> float | None:
    return total / number if number else None


def baselines(data: Dataset, split: str, *, num_classes: int) -> dict[str, dict[str, float | None]]:
    """Compute what predictions without a model would score on a split.

    Args:
        data: the data.
        split: "train" or "valid".
        num_classes: rows of the model's embedding. It may have more than the vocabulary has tokens,
            and its softmax covers all of them.

    Returns:
        uniform: all tokens are equally likely. unigram: tokens are as likely as in the training
        documents, with 1 added to every count. nsp_majority: always the more frequent label; None
        without pairs.
    """
    counts = np.ones(num_classes)
    counts[: len(data.token_counts)] += data.token_counts
    losses = -np.log(counts / counts.sum())
    most_frequent = int(counts.argmax())
    loss, right, num_targets = 0.0, 0, 0
    labels = np.zeros(2, np.int64)
    for batch in in_order(data.examples(split), batch_size=1024, pad_id=data.tokenizer.pad_id):
        targets = batch.masked_lm_labels.numpy()
        loss += float(losses[targets].sum())
        right += int((targets == most_frequent).sum())
        num_targets += len(targets)
        pairs = batch.next_sentence_labels.numpy()
        labels += np.bincount(pairs[pairs >= 0], minlength=2)
    share = labels.max() / max(1, labels.sum())
    entropy = sum(p * math.log(1 / p) for p in (share, 1 - share) if p > 0)
    return {
        "uniform": {"mlm_loss": math.log(num_classes), "mlm_accuracy": 1 / num_classes},
        "unigram": {
            "mlm_loss": _mean(loss, num_targets),
            "mlm_accuracy": _mean(right, num_targets),
        },
        "nsp_majority": {
            "nsp_loss": float(entropy) if labels.any() else None,
            "nsp_accuracy": float(share) if labels.any() else None,
        },
    }
