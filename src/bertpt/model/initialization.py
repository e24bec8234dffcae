"""Starting values of the weights: as published, or mimetic."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from bertpt.model.sharded import assign

if TYPE_CHECKING:
    from bertpt.model.bert import BertForPreTraining, BertLayer

POSITION_STD = 0.04


def initialize(model: "BertForPreTraining", init: str, generator: torch.Generator) -> None:
    """Gives every parameter its starting value, in place.

    Args:
        model: on any device; the values are drawn on the CPU, so they do not depend on it.
        init: "published" (`make_published`) or "mimetic" (that, then `make_mimetic`).
        generator: decides the draws.
    """
    make_published(model.named_parameters(), model.config.initializer_range, generator)
    if init == "mimetic":
        make_mimetic(model, generator)


@torch.no_grad()
def make_published(
    parameters: Iterable[tuple[str, nn.Parameter]], std: float, generator: torch.Generator
) -> None:
    """Starts named parameters as google-research/bert does, in place.

    Matrices come from a normal distribution cut off at two standard deviations; biases are 0,
    LayerNorm's weights 1.
    """
    for name, parameter in parameters:
        if parameter.ndim >= 2:
            drawn = torch.empty(parameter.shape)
            nn.init.trunc_normal_(drawn, std=std, a=-2 * std, b=2 * std, generator=generator)
            assign(parameter, drawn)
        else:
            parameter.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)


@torch.no_grad()
def make_mimetic(model: "BertForPreTraining", generator: torch.Generator) -> None:
    """Lets attention start where training would take it, in place.

    After Trockman and Kolter, "Mimetic Initialization of Self-Attention Layers" (2023): the
    query-key products start near a multiple of the identity, so a head attends to what is like
    itself, and the output-value products near a negative multiple. Positions start as the
    sinusoids of Vaswani et al. (2017), so heads can tell distances at once.
    """
    positions = model.bert.embeddings.position_embeddings.weight
    assign(positions, sinusoids(*positions.shape, std=POSITION_STD))
    for module in model.bert.encoder.layer:
        layer = cast("BertLayer", module)
        attention = layer.attention.self
        head_size = model.config.hidden_size // model.config.num_attention_heads
        # (W_q^T W_k of a head) is the best approximation of rank D to 0.7 Z + 0.7 I
        heads = [
            _halves(0.7, 0.7, model.config.hidden_size, head_size, generator)
            for _ in range(model.config.num_attention_heads)
        ]
        assign(attention.query.weight, torch.cat([left.T for left, _ in heads]))
        assign(attention.key.weight, torch.cat([right for _, right in heads]))
        # W_o W_v = 0.4 Z - 0.4 I
        left, right = _halves(
            0.4, -0.4, model.config.hidden_size, model.config.hidden_size, generator
        )
        assign(layer.attention.output.dense.weight, left)
        assign(attention.value.weight, right)


def _halves(
    noise: float, diagonal: float, size: int, rank: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Matrices (H, rank) and (rank, H) whose product is near noise * Z + diagonal * I.

    Z has entries N(0, 1 / H). The product is exact where rank is H, else the best there is.
    """
    z = torch.randn(size, size, generator=generator, dtype=torch.float64) / math.sqrt(size)
    u, s, vh = torch.linalg.svd(noise * z + diagonal * torch.eye(size, dtype=torch.float64))
    root = s[:rank].sqrt()
    return (u[:, :rank] * root).float(), (root[:, None] * vh[:rank]).float()


def sinusoids(num_positions: int, size: int, *, std: float) -> Tensor:
    """The position encoding of Vaswani et al. (2017), section 3.5, scaled to a standard deviation.

    Sines in the even columns, cosines in the odd ones. (num_positions, size)
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = 10_000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    table = torch.stack([(position * frequency).sin(), (position * frequency).cos()], dim=-1)
    return (table.flatten(1)[:, :size] * (std * math.sqrt(2))).float()
