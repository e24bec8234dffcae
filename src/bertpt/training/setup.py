"""How a model starts: its configuration, its initial weights, and a log line about both."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from bertpt.compat import require_rows, require_sequences, tokens_to_add
from bertpt.config import BertConfig, PretrainConfig
from bertpt.data.batches import collate
from bertpt.data.dataset import Dataset
from bertpt.data.example import Example
from bertpt.device import autocast
from bertpt.model.bert import BertForPreTraining
from bertpt.model.growth import num_rows
from bertpt.model.hf_files import find_model, read_config
from bertpt.model.initialization import initialize
from bertpt.model.losses import loss_sums, pretraining_loss
from bertpt.model.pretrained import load_into
from bertpt.progress import Progress
from bertpt.rng import torch_seed
from bertpt.tokenizer.tokenizer import load_tokenizer

UNTRAINED_TOLERANCE = 0.5  # nats that the untrained loss may be off


def model_config(config: PretrainConfig, data: Dataset) -> BertConfig:
    """Return the configuration of a new model, or that of `init_from` with this run's dropout.

    Args:
        config: resolved settings.
        data: to train on.

    Raises:
        BertptError: the model does not fit the data.
    """
    tokenizer = data.tokenizer
    if config.init_from is None:
        shape = config.bert_config(
            vocab_size=len(tokenizer.vocab),
            pad_token_id=tokenizer.pad_id,
            objective=data.settings.objective,
        )
    else:
        folder = find_model(Path(config.init_from))
        shape = read_config(folder)
        old_tokens = len(tokenizer.vocab)
        if tokens_to_add(folder, data):
            old_tokens = len(load_tokenizer(folder).vocab)
        require_rows(shape, old_tokens, folder)
        rows = num_rows(len(tokenizer.vocab), old_rows=shape.vocab_size, old_tokens=old_tokens)
        assert config.dropout is not None
        shape = dataclasses.replace(
            shape,
            vocab_size=rows,
            objective=data.settings.objective,
            hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=config.dropout,
        )
        if config.extend_positions:
            positions = max(shape.max_position_embeddings, data.settings.seq_len)
            shape = dataclasses.replace(shape, max_position_embeddings=positions)
    require_sequences(
        shape,
        data,
        more_positions=f"`max_position_embeddings` {data.settings.seq_len}"
        if config.init_from is None
        else "`extend_positions`",
    )
    return shape


def initialize_weights(
    model: BertForPreTraining, config: PretrainConfig, data: Dataset, progress: Progress
) -> None:
    """Initialise the weights, from the seed alone or from the model of `init_from`.

    Args:
        model: of `model_config`.
        config: resolved settings.
        data: to train on; its vocabulary may extend that of `init_from`.
        progress: logs what the folder lacked, and what was added to it.

    Raises:
        InputError: the folder's weights do not fit the model.
    """
    generator = torch.Generator().manual_seed(torch_seed(config.seed, "init"))
    if config.init_from is None:
        assert config.init is not None
        initialize(model, config.init, generator)
        return
    folder = find_model(Path(config.init_from))
    new_tokens = tokens_to_add(folder, data)
    report = load_into(
        model,
        folder,
        generator,
        extend_positions=config.extend_positions,
        new_tokens=new_tokens,
    )
    if str(report):
        progress.log(f"{folder}: {report}")
    old, new = read_config(folder).max_position_embeddings, model.config.max_position_embeddings
    if new > old:
        progress.log(f"{folder}: repeated its {old} position embeddings up to {new}")
    if new_tokens:
        progress.log(
            f"{folder}: added {len(new_tokens):,} tokens; each starts as the mean of its pieces"
        )


@torch.no_grad()
def describe_start(
    model: BertForPreTraining,
    examples: Sequence[Example],
    data: Dataset,
    *,
    where: str,
    precision: torch.dtype,
    init_from: str | None,
) -> str:
    """Describe the run in one line: parameters, data, and whether the untrained loss is right.

    Args:
        model: with its initial weights.
        examples: to measure the loss on, at least one.
        data: that they come from.
        where: the device, in words.
        precision: of the matrix products.
        init_from: the model that the weights come from, if any.
    """
    device = next(model.parameters()).device
    batch = collate(examples, pad_id=data.tokenizer.pad_id).to(device)
    model.eval()
    with autocast(device, precision):
        output = model(*batch.inputs)
    sums = loss_sums(output, batch.masked_lm_labels, batch.next_sentence_labels)
    loss = float(pretraining_loss(sums, num_targets=sums.num_targets, num_pairs=sums.num_pairs))
    shape, counts = model.config, data.manifest["examples"]
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    line = (
        f"{num_parameters:,} parameters ({shape.num_hidden_layers} layers, "
        f"{shape.hidden_size} wide) on {where}, {str(precision).removeprefix('torch.')}; "
        f"{counts['train']:,} training and {counts['valid']:,} held-out examples"
    )
    if init_from is not None:
        return f"{line}; loss at the start {loss:.2f}, from {init_from}"
    chance = math.log(shape.vocab_size) + (math.log(2) if sums.num_pairs else 0.0)
    expected = f"ln({shape.vocab_size}){' + ln 2' if sums.num_pairs else ''} = {chance:.2f}"
    line += f"; untrained loss {loss:.2f}"
    if abs(loss - chance) <= UNTRAINED_TOLERANCE:
        return f"{line}, near {expected} as expected"
    return (
        f"{line}; warning: expected about {expected}; the weights do not look freshly initialised"
    )
