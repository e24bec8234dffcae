"""Which process of a job this is, by the variables that torchrun or Slurm's srun sets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bertpt.errors import InputError


@dataclass(frozen=True)
class Place:
    """A process's place among those that train together.

    Attributes:
        rank: its number among all of them.
        num_ranks: how many they are.
        local_rank: its number on its machine.
        address: where rank 0 listens.
        port: where rank 0 listens.
    """

    rank: int
    num_ranks: int
    local_rank: int
    address: str
    port: int


def find_place(variables: Mapping[str, str]) -> Place | None:
    """The place that environment variables tell: torchrun's, else srun's; `None` if alone.

    Raises:
        InputError: one of them is missing or is no number.
    """
    if "RANK" in variables:
        place = Place(
            rank=_number(variables, "RANK"),
            num_ranks=_number(variables, "WORLD_SIZE"),
            local_rank=_number(variables, "LOCAL_RANK") if "LOCAL_RANK" in variables else 0,
            address=_variable(variables, "MASTER_ADDR"),
            port=_number(variables, "MASTER_PORT"),
        )
    # sbatch sets SLURM_NTASKS and SLURM_PROCID, too, for a script that runs once; srun alone has a
    # step of so many tasks.
    elif "SLURM_STEP_NUM_TASKS" in variables:
        place = _place_in_slurm(variables)
    else:
        return None
    return place if place.num_ranks > 1 else None


def _place_in_slurm(variables: Mapping[str, str]) -> Place:
    given = "MASTER_ADDR" in variables
    nodes = "SLURM_STEP_NODELIST" if "SLURM_STEP_NODELIST" in variables else "SLURM_JOB_NODELIST"
    return Place(
        rank=_number(variables, "SLURM_PROCID"),
        num_ranks=_number(variables, "SLURM_STEP_NUM_TASKS"),
        local_rank=_number(variables, "SLURM_LOCALID"),
        address=variables["MASTER_ADDR"] if given else first_host(_variable(variables, nodes)),
        port=_number(variables, "MASTER_PORT")
        if "MASTER_PORT" in variables
        # Another one for each step of each job, below those that systems give to clients.
        else 10_000
        + (_number(variables, "SLURM_JOB_ID") + _number(variables, "SLURM_STEP_ID")) % 20_000,
    )


def first_host(nodes: str) -> str:
    """The first host of a list in Slurm's notation: a03 of "a[03-05,09],b"."""
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
        raise InputError(f"{name} is {value!r}, which is no number; torchrun and srun set it")
    return int(value)
