"""Tensors that may be sharded over several processes (DTensors).

Functions on tensors also accept plain ones. The parts of torch.distributed are imported where they
are needed, because they are slow to import.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from bertpt.model.bert import BertForPreTraining


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


def shard_model(
    model: BertForPreTraining, device: torch.device, precision: torch.dtype
) -> BertForPreTraining:
    """Shard every tensor over the ranks; a layer is gathered while it computes.

    Shards, their gradients and the sums of gradients are float32.
    """
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import (  # noqa: PLC0415
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
    )

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    dtype = dtype_of_layers(device, precision)
    in_layers = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    for module in (*model.bert.encoder.layer, model):
        policy = MixedPrecisionPolicy() if module is model else in_layers
        # Outside a pass no module holds more than its shard, not even the outermost.
        fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
        sharded = cast("FSDPModule", module)
        sharded.set_gradient_divide_factor(1.0)  # sums, not means of rank means
        sharded.set_force_sum_reduction_for_comms(True)  # gloo supports nothing else
    return model


def dtype_of_layers(device: torch.device, precision: torch.dtype) -> torch.dtype:
    """Return the format that sharded layers are gathered in.

    In float32, autocast would keep a bfloat16 copy of the full layer from the forward to the
    backward pass. But the CPU's autocast, unlike CUDA's, fails on a LayerNorm in bfloat16.
    """
    return precision if device.type == "cuda" else torch.float32
