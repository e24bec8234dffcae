"""Several processes that train one model; each is a rank and takes its share of every step.

torchrun or Slurm's srun starts them. Whatever ranks must agree on goes through `Ranks`. Its base
class is a single process, so callers need not ask how many there are.
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
from bertpt.model import sharded
from bertpt.model.bert import BertForPreTraining
from bertpt.training.launcher import Launch, read_launch

Number = TypeVar("Number", int, float)

SECONDS_FOR_FIRST = 1.0  # for rank 0 to report an error that all ranks may have
SECONDS_BETWEEN_POLLS = 0.05


class Ranks:
    """The processes that train one model together; this base class is a single process.

    All ranks must make the same calls in the same order, since each call waits for the others.

    Attributes:
        rank: of this process, from 0 on.
        world_size: the number of processes.
    """

    rank = 0
    world_size = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that prints and writes."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """Return this rank's device for "auto", "cpu" or "cuda"."""
        return choose_device(name)

    def describe(self, device: torch.device) -> str:
        """Return the device and the number of processes, for a log line."""
        return device.type

    # --------------------------------------------------------------------------------- agreement

    def sum(self, numbers: Sequence[Number]) -> list[Number]:
        """Return the sum of each number over all ranks."""
        return list(numbers)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any rank."""
        return self.sum([int(flag)])[0] > 0

    def broadcast(self, number: float) -> float:
        """Return the number that rank 0 has."""
        return self.sum([number if self.is_first else 0.0])[0]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.sum([0])

    # --------------------------------------------------------------------------------- the model

    def evaluation_precision(self, precision: torch.dtype) -> torch.dtype:  # noqa: ARG002
        """Return the format that held-out examples are evaluated in, given that of training.

        It is float32, as in eval-mlm, so that both report the same figures for the same weights.
        """
        return torch.float32

    def prepare(
        self, model: BertForPreTraining, device: torch.device, precision: torch.dtype
    ) -> BertForPreTraining:
        """Move a new model to this rank's device, and shard it if asked for.

        Args:
            model: on the CPU.
            device: where to compute.
            precision: of its matrix products.
        """
        del precision  # only sharding needs it
        return model.to(device)

    def replicate(self, model: BertForPreTraining) -> nn.Module:
        """Return the module to call, whose backward passes sum gradients over the ranks."""
        return model

    def accumulating(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return the context of a micro-batch; gradients are summed over the ranks in the last."""
        return nullcontext()


ALONE = Ranks()


class JoinedRanks(Ranks):
    """Several ranks, connected by torch.distributed.

    Args:
        launch: how this process was started.
        device: of this rank.
        sharding: "none" or "full", as in `PretrainConfig`.
    """

    def __init__(self, launch: Launch, device: torch.device, sharding: str) -> None:
        self.rank, self.world_size = launch.rank, launch.world_size
        self._device, self._sharding = device, sharding

    def device(self, name: str) -> torch.device:  # noqa: ARG002  `join` chose it
        return self._device

    def describe(self, device: torch.device) -> str:
        sharded = ", sharded" if self._sharding == "full" else ""
        return f"{device.type} ({self.world_size} processes{sharded})"

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
            return sharded.dtype_of_layers(self._device, precision)
        return torch.float32

    def prepare(
        self, model: BertForPreTraining, device: torch.device, precision: torch.dtype
    ) -> BertForPreTraining:
        # Only pairs train these, and DistributedDataParallel would wait for their gradients.
        if model.config.objective == "mlm":
            model.bert.pooler.requires_grad_(False)
            model.cls.seq_relationship.requires_grad_(False)
        if self._sharding == "full":
            return sharded.shard_model(model, device, precision)
        return model.to(device)

    def replicate(self, model: BertForPreTraining) -> nn.Module:
        if self._sharding == "full":
            return model
        replica = DistributedDataParallel(
            model,
            device_ids=None if self._device.type == "cpu" else [self._device],
            gradient_as_bucket_view=True,
        )
        # By default it averages rank means. (A lambda, since torch reads annotations.)
        replica.register_comm_hook(None, lambda _, bucket: _all_reduce(bucket.buffer()))
        return replica

    def accumulating(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        # A sharded model has no room for full gradients, so they are summed each time.
        if is_last or not isinstance(model, DistributedDataParallel):
            return nullcontext()
        return cast("AbstractContextManager[None]", model.no_sync())


def _all_reduce(gradients: torch.Tensor) -> Any:
    """Start to sum gradients over all ranks; return the future."""
    work: Any = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


# ------------------------------------------------------------------------------------------- join


@contextmanager
def join(config: PretrainConfig) -> Iterator[Ranks]:
    """Connect to the other processes that torchrun or srun started, if there are any.

    If one rank ends with an error, so do the others; an error that several have is reported once.

    Raises:
        BertptError: the block raised it, the ranks could not connect, or a connection was lost.
    """
    launch = read_launch(os.environ)
    if launch is None:
        yield ALONE
        return
    device = _device(config.device, launch)
    minutes = config.distributed_timeout_minutes
    timeout = timedelta(minutes=minutes)
    try:
        store = _connect(launch, device, timeout)
    except (RuntimeError, ValueError) as error:
        raise BertptError(
            f"rank {launch.rank} of {launch.world_size} did not meet the others at "
            f"{launch.address}, port {launch.port} (`distributed_timeout_minutes` {minutes:g}): "
            f"{_first_sentence(error)}"
        ) from error
    ranks = JoinedRanks(launch, device, config.sharding)
    try:
        yield ranks
        ranks.barrier()
    except BertptError as error:
        _raise_once(error, launch, store)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        lost = BertptError(f"lost contact with the other processes: {_first_sentence(error)}")
        _raise_once(lost, launch, store, unless_any=True)
    gc.collect()  # replicated models are in reference cycles, and keep communication threads
    dist.destroy_process_group()


def _device(name: str, launch: Launch) -> torch.device:
    """Return this rank's device: the GPU of its local rank, or the only one that srun shows it."""
    device = choose_device(name)
    if device.type != "cuda":
        return device
    visible = torch.cuda.device_count()
    if visible > 1 and launch.local_rank >= visible:
        raise SettingError(
            "device",
            f"cuda: this machine has {visible} GPUs, but this is its process "
            f"{launch.local_rank + 1}; start fewer",
        )
    device = torch.device("cuda", launch.local_rank if visible > 1 else 0)
    torch.cuda.set_device(device)
    return device


def _connect(launch: Launch, device: torch.device, timeout: timedelta) -> Any:
    """Connect the ranks; return the key-value store that they share."""
    address = f"[{launch.address}]" if ":" in launch.address else launch.address
    store, _, _ = next(
        rendezvous(
            f"tcp://{address}:{launch.port}", launch.rank, launch.world_size, timeout=timeout
        )
    )
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=launch.rank,
        world_size=launch.world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )
    return store


def _raise_once(
    error: BertptError, launch: Launch, store: Any, *, unless_any: bool = False
) -> NoReturn:
    """Raise an error with the rank's number, or exit silently if another rank reported it.

    Args:
        error: to raise.
        launch: how this rank was started.
        store: that the ranks share.
        unless_any: be silent if another rank reported any error.
    """
    name = f"bertpt/errors/{hashlib.sha256(str(error).encode()).hexdigest()}"
    others = same = 0
    with contextlib.suppress(RuntimeError):  # rank 0, which holds the store, may be gone
        others = store.add("bertpt/errors", 1) - 1
        # Poll, since rank 0 may be gone before the time is over. Wait to the end, since torchrun
        # kills rank 0 as soon as another rank has ended.
        for _ in range(round(SECONDS_FOR_FIRST / SECONDS_BETWEEN_POLLS) if launch.rank else 0):
            same = same or store.add(name, 0)
            time.sleep(SECONDS_BETWEEN_POLLS)
        same = same or store.add(name, 1) - 1
    if others if unless_any else same:
        raise SystemExit(error.exit_code)
    error.args = (f"{error} (rank {launch.rank})",) if launch.rank else error.args
    raise error


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of an error of torch or NCCL, without its source location."""
    text = str(error).rpartition("Last error:\n")[2]  # NCCL's own message is at the end
    text = re.sub(r"^\[[^\]]*\]\s*", "", text)
    return re.split(r"\. |\n", text)[0] or type(error).__name__
