"""Parameter groups, AdamW and Muon."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from bertpt.config import PretrainConfig
from bertpt.model.sharded import full_tensor, is_sharded, shard_like


def make_optimizers(
    model: nn.Module, config: PretrainConfig, precision: torch.dtype
) -> list[torch.optim.Optimizer]:
    """Create the optimizers; every parameter is in exactly one group.

    Matrices and embeddings decay, biases and LayerNorm do not. With "muon" the encoder's matrices
    go to Muon and the rest to AdamW. Each group keeps its peak learning rate under "peak_lr", which
    `set_learning_rate` scales.

    Args:
        model: whose parameters to train.
        config: resolved settings.
        precision: format of the matrix products; Muon iterates in it.
    """
    assert config.learning_rate is not None
    assert config.muon_learning_rate is not None
    assert config.weight_decay is not None
    groups = parameter_groups(model, muon=config.optimizer == "muon")
    adamw = [
        {"params": groups["matrices"], "weight_decay": config.weight_decay},
        {"params": groups["vectors"], "weight_decay": 0.0},
    ]
    # 1e-6 as in google-research/bert's optimizer
    rest = torch.optim.AdamW(adamw, lr=config.learning_rate, eps=1e-6, fused=True)
    optimizers: list[torch.optim.Optimizer] = [rest]
    if groups["encoder matrices"]:
        optimizers.append(
            Muon(
                groups["encoder matrices"],
                lr=config.muon_learning_rate,
                weight_decay=config.weight_decay,
                precision=precision,
            )
        )
    for group in _all_groups(optimizers):
        group["peak_lr"] = group["lr"]
    return optimizers


def parameter_groups(model: nn.Module, *, muon: bool) -> dict[str, list[nn.Parameter]]:
    """Group parameters: "encoder matrices" (Muon's), other "matrices", and "vectors"."""
    groups: dict[str, list[nn.Parameter]] = {"encoder matrices": [], "matrices": [], "vectors": []}
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            groups["vectors"].append(parameter)
        elif muon and ".encoder." in name:
            groups["encoder matrices"].append(parameter)
        else:
            groups["matrices"].append(parameter)
    return groups


def set_learning_rate(optimizers: list[torch.optim.Optimizer], scale: float) -> None:
    """Set every group to a fraction of its peak learning rate."""
    for group in _all_groups(optimizers):
        group["lr"] = group["peak_lr"] * scale


def learning_rates(optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
    """Return the current "learning_rate" of AdamW, and "muon_learning_rate" if Muon is used."""
    names = ("learning_rate", "muon_learning_rate")  # in the order of make_optimizers
    return {
        name: optimizer.param_groups[0]["lr"]
        for name, optimizer in zip(names, optimizers, strict=False)
    }


def describe_groups(optimizers: list[torch.optim.Optimizer]) -> str:
    """Describe each group in one line: optimizer, tensors, parameters, weight decay."""
    return "; ".join(
        f"{'Muon' if isinstance(optimizer, torch.optim.Muon) else 'AdamW'} on "
        f"{len(group['params'])} tensors ({sum(p.numel() for p in group['params']):,} parameters), "
        f"weight decay {group['weight_decay']:g}"
        for optimizer in optimizers
        for group in optimizer.param_groups
    )


def _all_groups(optimizers: list[torch.optim.Optimizer]) -> Iterator[dict[str, Any]]:
    for optimizer in optimizers:
        yield from optimizer.param_groups


class Muon(torch.optim.Muon):
    """torch.optim.Muon (Jordan et al., 2024) that iterates in a format of choice.

    torch's iterates in bfloat16, whatever the format of training. In float32 that would magnify
    rounding differences between one process and several, and a processor without bfloat16
    instructions would spend most of a step on it (benchmarks/muon.py). Matrices of one shape are
    iterated together. A sharded matrix is gathered first, since its parts say nothing about its
    singular values. State and settings are those of torch.optim.Muon, with `nesterov` and
    `adjust_lr_fn` at their defaults.

    Args:
        parameters: matrices.
        lr: learning rate.
        weight_decay: as in AdamW.
        precision: format of the Newton-Schulz iteration.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
        precision: torch.dtype,
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)
        self.precision = precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Take one step; closures are not called."""
        for group in self.param_groups:
            updates: dict[object, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for number, parameter in enumerate(group["params"]):
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter.grad)
                momentum = state["momentum_buffer"]
                momentum.lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(momentum, group["momentum"])
                batch = number if is_sharded(parameter) else parameter.shape
                updates[batch].append((parameter, update))
            for members in updates.values():
                orthogonal = newton_schulz(
                    torch.stack([full_tensor(update) for _, update in members]).to(self.precision),
                    coefficients=group["ns_coefficients"],
                    steps=group["ns_steps"],
                    eps=group["eps"],
                )
                rows, columns = members[0][0].shape
                learning_rate = group["lr"] * math.sqrt(max(1, rows / columns))
                for (parameter, _), update in zip(members, orthogonal, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(shard_like(update, parameter), alpha=-learning_rate)


def newton_schulz(
    matrices: Tensor, *, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Move the singular values of each matrix near 1 (Jordan et al., "Muon", 2024).

    Args:
        matrices: in the format to compute in. (number, rows, columns)
        coefficients: of the quintic a x + b x^3 + c x^5.
        steps: iterations.
        eps: the smallest norm to divide by.
    """
    a, b, c = coefficients
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


# ---------------------------------------------------------------------------------- state to save


def optimizer_state(
    optimizers: list[torch.optim.Optimizer], model: nn.Module, *, device: str = "cpu"
) -> dict[str, Tensor]:
    """Return a copy of the optimizers' state, named like "bert.pooler.dense.bias/exp_avg".

    Sharded tensors are gathered, so all ranks must call this; those that do not need the result
    pass "meta" as `device`.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[cast('nn.Parameter', parameter)]}/{key}": full_tensor(value)
        .detach()
        .to(device, copy=True)
        .contiguous()
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def load_optimizer_state(
    optimizers: list[torch.optim.Optimizer], model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Restore the result of `optimizer_state`."""
    parameters = dict(model.named_parameters())
    owner = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
    for name, value in tensors.items():
        parameter_name, _, key = name.rpartition("/")
        parameter = parameters[parameter_name]
        # A copy, since safetensors maps the file, and the map would keep its disk space in use.
        state = value.to(parameter.device, copy=True)
        # State of the parameter's size is sharded as the parameter is.
        owner[parameter].state[parameter][key] = (
            shard_like(state, parameter) if state.shape == parameter.shape else state
        )
