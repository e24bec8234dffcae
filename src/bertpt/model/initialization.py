"""Initial weights of a model: published or mimetic."""

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from bertpt.model.bert import BertForPreTraining, BertLayer
from bertpt.model.sharded import assign

POSITION_STD = 0.04


def initialize(model: BertForPreTraining, init: str, generator: torch.Generator) -> None:
    """Initialise every parameter in place.

    Args:
        model: on any device; values are drawn on the CPU, so they do not depend on the device.
        init: "published" (`init_published`) or "mimetic" (also `init_mimetic`).
        generator: source of all random values.
    """
    init_published(model.named_parameters(), model.config.initializer_range, generator)
    if init == "mimetic":
        init_mimetic(model, generator)


@torch.no_grad()
def init_published(
    parameters: Iterable[tuple[str, nn.Parameter]], std: float, generator: torch.Generator
) -> None:
    """Initialise named parameters as google-research/bert does, in place.

    Matrices come from a normal distribution truncated at two standard deviations; biases are 0,
    LayerNorm weights 1.
    """
    for name, parameter in parameters:
        if parameter.ndim >= 2:
            value = torch.empty(parameter.shape)
            nn.init.trunc_normal_(value, std=std, a=-2 * std, b=2 * std, generator=generator)
            assign(parameter, value)
        else:
            parameter.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)


@torch.no_grad()
def init_mimetic(model: BertForPreTraining, generator: torch.Generator) -> None:
    """Initialise attention to resemble that of a trained model, in place.

    After Trockman and Kolter, "Mimetic Initialization of Self-Attention Layers" (2023): query-key
    products start near a multiple of the identity, so a head attends to similar tokens, and
    output-value products near a negative multiple. Positions start as the sinusoids of Vaswani et
    al. (2017), so heads can measure distances from the first step.
    """
    positions = model.bert.embeddings.position_embeddings.weight
    assign(positions, sinusoids(*positions.shape, std=POSITION_STD))
    size, num_heads = model.config.hidden_size, model.config.num_attention_heads
    for module in model.bert.encoder.layer:
        attention = cast("BertLayer", module).attention
        # W_q^T W_k of each head is the best rank-D approximation of 0.7 Z + 0.7 I
        heads = [_factors(0.7, 0.7, size, size // num_heads, generator) for _ in range(num_heads)]
        assign(attention.self.query.weight, torch.cat([left.T for left, _ in heads]))
        assign(attention.self.key.weight, torch.cat([right for _, right in heads]))
        # W_o W_v = 0.4 Z - 0.4 I
        left, right = _factors(0.4, -0.4, size, size, generator)
        assign(attention.output.dense.weight, left)
        assign(attention.self.value.weight, right)


def _factors(
    noise: float, diagonal: float, size: int, rank: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Factor noise * Z + diagonal * I into matrices (H, rank) and (rank, H).

    Z has entries N(0, 1 / H). The product is exact if rank is H, else the best approximation.
    """
    z = torch.randn(size, size, generator=generator, dtype=torch.float64) / math.sqrt(size)
    u, s, vh = torch.linalg.svd(noise * z + diagonal * torch.eye(size, dtype=torch.float64))
    root = s[:rank].sqrt()
    return (u[:, :rank] * root).float(), (root[:, None] * vh[:rank]).float()


def sinusoids(num_positions: int, size: int, *, std: float) -> Tensor:
    """Return the position encoding of Vaswani et al. (2017), section 3.5, with a given std.

    Sines in the even columns, cosines in the odd ones. (num_positions, size)
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = 10_000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    table = torch.stack([(position * frequency).sin(), (position * frequency).cos()], dim=-1)
    return (table.flatten(1)[:, :size] * (std * math.sqrt(2))).float()
