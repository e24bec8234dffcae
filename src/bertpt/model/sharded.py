"""Tensors that may be sharded over several processes (DTensors).

Every function also accepts plain tensors. torch.distributed.tensor is slow to import, so only
`shard_like` imports it.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process holds only a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the complete tensor; if it is sharded, all processes must call this."""
    return cast("Any", tensor).full_tensor() if is_sharded(tensor) else tensor


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of the tensor that this process holds."""
    return cast("Any", tensor).to_local() if is_sharded(tensor) else tensor


def shard_like(value: Tensor, tensor: Tensor) -> Tensor:
    """Shard a complete value, known to every process, as `tensor` is sharded."""
    if not is_sharded(tensor):
        return value
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    like = cast("Any", tensor)
    return distribute_tensor(
        value.to(tensor.device), like.device_mesh, like.placements, src_data_rank=None
    )


@torch.no_grad()
def assign(parameter: Tensor, value: Tensor) -> None:
    """Copy a complete value into a parameter, in place."""
    parameter.copy_(shard_like(value, parameter))


def full_state(model: nn.Module, *, device: str = "cpu") -> dict[str, Tensor]:
    """Copy every parameter to a device; a tied one appears once, under its first name.

    If the model is sharded, all processes must call this; those that do not need the result pass
    `device` "meta".
    """
    return {
        name: full_tensor(parameter.detach()).to(device, copy=True).contiguous()
        for name, parameter in model.named_parameters()
    }
