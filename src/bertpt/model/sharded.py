"""Tensors of which every process holds a part (torch calls them DTensors), beside plain ones.

Of plain tensors, each function here gives what it is given. torch.distributed.tensor takes long to
import, so that is left to who shards a model.
"""

from typing import Any, cast

import torch
from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process holds only a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """The tensor in one piece. Of a sharded one, all processes must ask at once."""
    return cast("Any", tensor).full_tensor() if is_sharded(tensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """The part that this process holds."""
    return cast("Any", tensor).to_local() if is_sharded(tensor) else tensor


def sharded_like(value: Tensor, tensor: Tensor) -> Tensor:
    """A whole value, of which every process has a copy, in the parts that another tensor has."""
    if not is_sharded(tensor):
        return value
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    like = cast("Any", tensor)
    return distribute_tensor(
        value.to(tensor.device), like.device_mesh, like.placements, src_data_rank=None
    )


@torch.no_grad()
def assign(parameter: Tensor, value: Tensor) -> None:
    """Copies a whole value into a parameter, in place."""
    parameter.copy_(sharded_like(value, parameter))
