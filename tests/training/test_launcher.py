"""Which process of a job this is, by the variables of torchrun and srun."""

import pytest

from bertpt.errors import InputError
from bertpt.training.launcher import Launch, first_host, read_launch

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29400",
}
SLURM = {
    "SLURM_JOB_ID": "71234",
    "SLURM_JOB_NODELIST": "gpu[01-04]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
SRUN = {
    **SLURM,
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gpu[03-04]",
}


def test_torchrun_says_which_rank_a_process_is():
    assert read_launch(TORCHRUN) == Launch(3, 4, 1, "node1", 29400)


def test_torchrun_takes_precedence_over_slurm():
    assert read_launch({**SRUN, **TORCHRUN}) == read_launch(TORCHRUN)


def test_srun_says_which_rank_a_process_is():
    place = read_launch(SRUN)
    assert (place.rank, place.world_size, place.local_rank) == (5, 8, 1)
    assert place.address == "gpu03"
    assert 10_000 <= place.port < 30_000


def test_srun_uses_a_given_address():
    place = read_launch({**SRUN, "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4000"})
    assert (place.address, place.port) == ("10.0.0.7", 4000)


def test_steps_and_jobs_meet_on_ports_of_their_own():
    jobs = [{**SRUN, "SLURM_JOB_ID": str(71_234 + job)} for job in range(20)]
    assert len({read_launch(job).port for job in jobs}) == 20
    assert read_launch({**SRUN, "SLURM_STEP_ID": "3"}).port != read_launch(SRUN).port


@pytest.mark.parametrize(
    "variables",
    [
        {},
        SLURM,  # a script of sbatch, which runs once whatever the number of tasks
        {**SRUN, "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"},
        {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"},
    ],
    ids=["nothing", "sbatch", "srun of one task", "torchrun of one process"],
)
def test_a_process_may_be_alone(variables):
    assert read_launch(variables) is None


@pytest.mark.parametrize(
    ("variables", "name", "sign"),
    [
        *((TORCHRUN, name, "RANK") for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")),
        *((SRUN, name, "SLURM_STEP_NUM_TASKS") for name in ("SLURM_PROCID", "SLURM_LOCALID")),
    ],
)
def test_a_missing_variable_is_named_with_the_one_that_requires_it(variables, name, sign):
    variables = {key: value for key, value in variables.items() if key != name}
    with pytest.raises(InputError, match=f"^{name} is not set, though {sign} is.*unset {sign}$"):
        read_launch(variables)


def test_a_variable_that_is_not_a_number_is_named():
    with pytest.raises(InputError, match=r"^WORLD_SIZE is 'many', which is not a number"):
        read_launch({**TORCHRUN, "WORLD_SIZE": "many"})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node7", "node7"),
        ("node7,node8", "node7"),
        ("a[01-04],b", "a01"),
        ("a[01-04,07],b[1-2]", "a01"),
        ("a[3,5-7]", "a3"),
        ("a[09-12]-ib,b", "a09-ib"),
        ("rack[1-2]n[05-10]", "rack1n05"),
        ("login,a[01-04]", "login"),
        ("gpu-a-12.cluster.example,gpu-b-1", "gpu-a-12.cluster.example"),
    ],
)
def test_the_first_host_of_a_list_of_nodes(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.parametrize("nodes", ["", ",a", "[]"])
def test_a_list_without_nodes_is_refused(nodes):
    with pytest.raises(InputError, match="names no node; set MASTER_ADDR"):
        first_host(nodes)
