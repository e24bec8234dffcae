"""Several processes that train one model: each is a rank and takes its share of every step.

torchrun or Slurm's srun starts them. What ranks must agree on goes through `Ranks`, whose base
class is a process on its own; so whoever uses it need not ask how many there are.
"""

import contextlib
import gc
import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from bertpt.config import PretrainConfig
from bertpt.device import choose_device
from bertpt.errors import BertptError, SettingError
from bertpt.model.bert import BertForPreTraining
from bertpt.training.launcher import Place, find_place

Number = TypeVar("Number", int, float)

SECONDS_FOR_FIRST = 1.0  # that others leave to rank 0 to tell an error, since all may have it
SECONDS_BETWEEN_LOOKS = 0.05  # at whether it did


class Ranks:
    """The processes that train one model together; this base class is one on its own.

    Where there are several, all must make the same calls in the same order, since each call waits
    for the others.

    Attributes:
        number: this process's, from 0 on.
        count: how many there are.
    """

    number = 0
    count = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.number == 0

    def device(self, name: str) -> torch.device:
        """The device that auto, cpu or cuda stands for in this process."""
        return choose_device(name)

    def where(self, device: torch.device) -> str:
        """The device, and how many processes compute there, for a log line."""
        return device.type

    # --------------------------------------------------------------------------------- agreement

    def sum(self, numbers: Sequence[Number]) -> list[Number]:
        """The sum over all ranks of each number."""
        return list(numbers)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any rank."""
        return self.sum([int(flag)])[0] > 0

    def broadcast(self, number: float) -> float:
        """The number that rank 0 has."""
        return self.sum([number if self.is_first else 0.0])[0]

    def barrier(self) -> None:
        """Waits until all ranks are here."""
        self.sum([0])

    # --------------------------------------------------------------------------------- the model

    def evaluation_precision(self, precision: torch.dtype) -> torch.dtype:  # noqa: ARG002
        """Return the format that held-out examples are evaluated in, given that of training.

        It is float32, as in eval-mlm, so that both report the same figures for the same weights.
        """
        return torch.float32

    def place(
        self, model: BertForPreTraining, device: torch.device, precision: torch.dtype
    ) -> BertForPreTraining:
        """Moves a new model to where this rank computes; shards it where that was asked for.

        Args:
            model: on the CPU.
            device: where to compute.
            precision: of its matrix products.
        """
        del precision  # which matters to shards alone
        return model.to(device)

    def replicate(self, model: BertForPreTraining) -> nn.Module:
        """What to call instead of the model, so that backward passes sum gradients over ranks."""
        return model

    def accumulating(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """For one micro-batch, forward and backward: gradients need be summed after the last."""
        return nullcontext()


ALONE = Ranks()


class JoinedRanks(Ranks):
    """Several ranks, connected through torch.distributed.

    Args:
        place: of this process among them.
        device: where it computes.
        sharding: "none" or "full", as in `PretrainConfig`.
    """

    def __init__(self, place: Place, device: torch.device, sharding: str) -> None:
        self.number, self.count = place.rank, place.num_ranks
        self._device, self._sharding = device, sharding

    def device(self, name: str) -> torch.device:  # noqa: ARG002  which `join` was given
        return self._device

    def where(self, device: torch.device) -> str:
        sharded = ", sharded" if self._sharding == "full" else ""
        return f"{device.type} ({self.count} processes{sharded})"

    def sum(self, numbers: Sequence[Number]) -> list[Number]:
        if not numbers:
            return []
        sums = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        dist.all_reduce(sums)
        kinds = [type(number) for number in numbers]  # a count stays one
        return [kind(total) for kind, total in zip(kinds, sums.tolist(), strict=True)]

    def evaluation_precision(self, precision: torch.dtype) -> torch.dtype:
        # Layers that are gathered in bfloat16 cannot be multiplied in float32.
        if self._sharding == "full":
            return _dtype_of_layers(self._device, precision)
        return torch.float32

    def place(
        self, model: BertForPreTraining, device: torch.device, precision: torch.dtype
    ) -> BertForPreTraining:
        # Pairs are all that trains these; DistributedDataParallel would wait for their gradients.
        if model.config.objective == "mlm":
            model.bert.pooler.requires_grad_(False)
            model.cls.seq_relationship.requires_grad_(False)
        if self._sharding == "full":
            return _fully_shard(model, device, precision)
        return model.to(device)

    def replicate(self, model: BertForPreTraining) -> nn.Module:
        if self._sharding == "full":
            return model
        replica = DistributedDataParallel(
            model,
            device_ids=None if self._device.type == "cpu" else [self._device],
            gradient_as_bucket_view=True,
        )
        # Left alone, it makes a mean of rank means. (A lambda, for torch reads annotations.)
        replica.register_comm_hook(None, lambda _, bucket: _all_reduce(bucket.buffer()))
        return replica

    def accumulating(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        # A sharded model has no room for whole gradients, so they are summed each time.
        if is_last or not isinstance(model, DistributedDataParallel):
            return nullcontext()
        return cast("AbstractContextManager[None]", model.no_sync())


def _all_reduce(gradients: torch.Tensor) -> Any:
    """Begins to sum gradients over all ranks; the future holds them."""
    work: Any = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _fully_shard(
    model: BertForPreTraining, device: torch.device, precision: torch.dtype
) -> BertForPreTraining:
    """Leaves a part of each tensor to each rank; a layer is put together while it computes.

    Parts, their gradients and the sums of gradients are float32.
    """
    # These take long to import, and few need them.
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import (  # noqa: PLC0415
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
    )

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    dtype = _dtype_of_layers(device, precision)
    in_layers = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    for module in (*model.bert.encoder.layer, model):
        policy = MixedPrecisionPolicy() if module is model else in_layers
        # Outside of a pass no module holds more than its part, the outermost one neither.
        fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
        sharded = cast("FSDPModule", module)
        sharded.set_gradient_divide_factor(1.0)  # sums, not means of rank means
        sharded.set_force_sum_reduction_for_comms(True)  # gloo has no other
    return model


def _dtype_of_layers(device: torch.device, precision: torch.dtype) -> torch.dtype:
    """What a sharded layer is put together in.

    In float32, autocast would keep a copy of the whole layer in bfloat16 from the forward to the
    backward pass. The CPU's autocast, unlike CUDA's, leaves a LayerNorm in bfloat16 to fail.
    """
    return precision if device.type == "cuda" else torch.float32


# ------------------------------------------------------------------------------------------- meet


@contextmanager
def join(config: PretrainConfig) -> Iterator[Ranks]:
    """Meets the other processes that torchrun or srun started, if there are any.

    Where one ends with an error, the others end, too. Of an error that several ranks have, one
    tells.

    Raises:
        BertptError: whatever the block raises; or the others did not come, or were lost.
    """
    place = find_place(os.environ)
    if place is None:
        yield ALONE
        return
    device = _device(config.device, place)
    minutes = config.distributed_timeout_minutes
    timeout = timedelta(minutes=minutes)
    try:
        store = _meet(place, device, timeout)
    except (RuntimeError, ValueError) as error:
        raise BertptError(
            f"rank {place.rank} of {place.num_ranks} did not meet the others at {place.address}, "
            f"port {place.port} (`distributed_timeout_minutes` {minutes:g}): {_gist(error)}"
        ) from error
    ranks = JoinedRanks(place, device, config.sharding)
    try:
        yield ranks
        ranks.barrier()
    except BertptError as error:
        _tell_once(error, place, store)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        lost = BertptError(f"lost contact with the other processes: {_gist(error)}")
        _tell_once(lost, place, store, unless_any=True)
    gc.collect()  # models that were replicated are in cycles, and hold on to threads that talk
    dist.destroy_process_group()


def _device(name: str, place: Place) -> torch.device:
    """This rank's device; each of a machine has a GPU of its own, unless srun shows it only one."""
    device = choose_device(name)
    if device.type != "cuda":
        return device
    visible = torch.cuda.device_count()
    if visible > 1 and place.local_rank >= visible:
        raise SettingError(
            "device",
            f"cuda: process {place.local_rank + 1} of this machine has no GPU, there are {visible}"
            "; start fewer",
        )
    device = torch.device("cuda", place.local_rank if visible > 1 else 0)
    torch.cuda.set_device(device)
    return device


def _meet(place: Place, device: torch.device, timeout: timedelta) -> Any:
    """Connects the ranks; returns the store of names and values that they share."""
    address = f"[{place.address}]" if ":" in place.address else place.address
    store, _, _ = next(
        rendezvous(f"tcp://{address}:{place.port}", place.rank, place.num_ranks, timeout=timeout)
    )
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=place.rank,
        world_size=place.num_ranks,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )
    return store


def _tell_once(
    error: BertptError, place: Place, store: Any, *, unless_any: bool = False
) -> NoReturn:
    """Raises an error, with the rank; or leaves in silence where another rank has told it.

    Args:
        error: what to tell.
        place: of this rank.
        store: what the ranks share.
        unless_any: be silent where another rank has told any error.
    """
    name = f"bertpt/errors/{hashlib.sha256(str(error).encode()).hexdigest()}"
    others = same = 0
    with contextlib.suppress(RuntimeError):  # rank 0, which holds the store, may be gone
        others = store.add("bertpt/errors", 1) - 1
        # Asked again and again, since rank 0 may be gone by the end of this time; waited for to the
        # end, since torchrun ends rank 0, too, when another has ended.
        for _ in range(round(SECONDS_FOR_FIRST / SECONDS_BETWEEN_LOOKS) if place.rank else 0):
            same = same or store.add(name, 0)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        same = same or store.add(name, 1) - 1
    if others if unless_any else same:
        raise SystemExit(error.exit_code)
    error.args = (f"{error} (rank {place.rank})",) if place.rank else error.args
    raise error


def _gist(error: Exception) -> str:
    """The first sentence of an error of torch, or of NCCL, without the place in its source."""
    told = str(error).rpartition("Last error:\n")[2]  # what NCCL itself says is at the end
    told = re.sub(r"^\[[^\]]*\]\s*", "", told)
    return re.split(r"\. |\n", told)[0] or type(error).__name__
