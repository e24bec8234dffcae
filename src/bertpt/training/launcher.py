"""Read which rank of a job this process is from the variables of torchrun or Slurm's srun."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bertpt.errors import InputError


@dataclass(frozen=True)
class Launch:
    """How a launcher started this process, as one of several that train together.

    Attributes:
        rank: of this process, from 0 on.
        world_size: the number of processes.
        local_rank: of this process on its machine.
        address: host of rank 0.
        port: that rank 0 listens on.
    """

    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int


def read_launch(variables: Mapping[str, str]) -> Launch | None:
    """Read torchrun's environment variables, or else srun's.

    Returns:
        `None` if this process trains alone.

    Raises:
        InputError: a variable is missing or is not a number.
    """
    if "RANK" in variables:
        launch = Launch(
            rank=_number(variables, "RANK"),
            world_size=_number(variables, "WORLD_SIZE"),
            local_rank=_number(variables, "LOCAL_RANK") if "LOCAL_RANK" in variables else 0,
            address=_variable(variables, "MASTER_ADDR"),
            port=_number(variables, "MASTER_PORT"),
        )
    # sbatch sets SLURM_NTASKS and SLURM_PROCID, too, for a script that runs once; only srun sets
    # the number of tasks of a step.
    elif "SLURM_STEP_NUM_TASKS" in variables:
        launch = _read_slurm(variables)
    else:
        return None
    return launch if launch.world_size > 1 else None


def _read_slurm(variables: Mapping[str, str]) -> Launch:
    given = "MASTER_ADDR" in variables
    nodes = "SLURM_STEP_NODELIST" if "SLURM_STEP_NODELIST" in variables else "SLURM_JOB_NODELIST"
    return Launch(
        rank=_number(variables, "SLURM_PROCID"),
        world_size=_number(variables, "SLURM_STEP_NUM_TASKS"),
        local_rank=_number(variables, "SLURM_LOCALID"),
        address=variables["MASTER_ADDR"] if given else first_host(_variable(variables, nodes)),
        port=_number(variables, "MASTER_PORT")
        if "MASTER_PORT" in variables
        # A port for each step of each job, below those that systems assign to clients.
        else 10_000
        + (_number(variables, "SLURM_JOB_ID") + _number(variables, "SLURM_STEP_ID")) % 20_000,
    )


def first_host(nodes: str) -> str:
    """Return the first host of a list in Slurm's notation: a03 of "a[03-05,09],b"."""
    first = re.match(r"(?:[^,\[\]]|\[[^\[\]]+\])+", nodes)
    if first is None:
        raise InputError(f"{nodes!r} names no node; set MASTER_ADDR to the host of rank 0")
    return re.sub(r"\[([^-,\]]+)[^\]]*\]", r"\1", first[0])


def _variable(variables: Mapping[str, str], name: str) -> str:
    if name not in variables:
        sign = "RANK" if "RANK" in variables else "SLURM_STEP_NUM_TASKS"
        raise InputError(
            f"{name} is not set, though {sign} is; start with torchrun or srun or, to train in one "
            f"process, unset {sign}"
        )
    return variables[name]


def _number(variables: Mapping[str, str], name: str) -> int:
    value = _variable(variables, name)
    if not value.isdecimal():
        raise InputError(f"{name} is {value!r}, which is not a number; torchrun and srun set it")
    return int(value)
