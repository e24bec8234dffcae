"""Training in several processes against training in one, on gloo.

Started as a script, this file is one of two ranks, which run all cases of `CASES`.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.distributed as dist

from bertpt.config import PretrainConfig
from bertpt.data.batches import TrainingExamples, collate, in_order
from bertpt.data.dataset import Dataset
from bertpt.device import autocast
from bertpt.errors import BertptError, InputError
from bertpt.model import sharded
from bertpt.model.sharded import full_tensor, local_part
from bertpt.progress import Progress
from bertpt.signals import exit_without_teardown
from bertpt.training import checkpoint, distributed, schedule, trainer
from bertpt.training.checkpoint import Checkpoint, checkpoint_paths, verify
from bertpt.training.distributed import ALONE, join
from bertpt.training.optimizer import make_optimizers
from bertpt.training.pretrain import pretrain
from bertpt.training.resume import resumed_config
from bertpt.training.run_folder import read_metrics
from bertpt.training.setup import initialize_weights
from bertpt.training.step import accumulate_gradients
from bertpt.training.trainer import Trainer

CONFIG = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "steps": 6,
    "batch_size": 8,
    "eval_every": 2,
    "eval_examples": 0,
    "save_every": 2,
    "keep_last": 0,
    "log_every": 1,
    "device": "cpu",
    "precision": "float32",
    "distributed_timeout_minutes": 2.0,
}
SHARDED = {"sharding": "full"}
# What is trained, by name: once in one process and once in two.
CASES = {
    "plain": {},
    "sharded": SHARDED,
    # Of 5 examples one rank has 3, the other 2, and so as many micro-batches.
    "uneven": {"batch_size": 5, "micro_batch_size": 1},
    "uneven sharded": {"batch_size": 5, "micro_batch_size": 1, **SHARDED},
    # Each step has an example for one rank only.
    "lone": {"batch_size": 1},
    "lone sharded": {"batch_size": 1, **SHARDED},
    # An epoch ends with what is left of it, and the next has another order.
    "epochs": {"steps": None, "epochs": 2, "batch_size": 7, "recipe": "published", "dropout": 0.0},
    # The ranks' micro-batches are those of one process, and so is what dropout drops.
    "dropout": {"micro_batch_size": 4, "dropout": 0.3},
    "mlm": {},
    "mlm sharded": SHARDED,
    "many to evaluate": {"eval_examples": 7, "micro_batch_size": 2},
}
GRADIENTS = ["plain", "sharded", "uneven", "uneven sharded", "lone", "lone sharded", "mlm"]


def config_of(case):
    return PretrainConfig(**{**CONFIG, **CASES[case]})


def data_of(case):
    return "mlm-data" if case.startswith("mlm") else "data"


def gradients(folder, case, ranks):
    """The gradients of the first step, whole, and its result."""
    config = config_of(case).resolve()
    data = Dataset(folder / data_of(case))
    trainer = Trainer(data, config, Progress(), ranks=ranks)
    initialize_weights(trainer.model, trainer.config, trainer.data, trainer.progress)
    result = accumulate_gradients(
        ranks.replicate(trainer.model.train()),
        trainer.training[0],
        micro_batch_size=config.micro_batch_size,
        pad_id=data.tokenizer.pad_id,
        precision=torch.float32,
        dropout_seed=lambda number: number,
        ranks=ranks,
    )
    parameters = trainer.model.named_parameters()
    return {name: full_tensor(p.grad) for name, p in parameters if p.grad is not None}, result


def after_a_step_of_muon(folder, ranks):
    """Return the encoder's weights before and after a step of Muon in bfloat16."""
    config = PretrainConfig(**CONFIG, **SHARDED).resolve()
    trainer = Trainer(Dataset(folder / "data"), config, Progress(), ranks=ranks)
    trainer.optimizers = make_optimizers(trainer.model, config, torch.bfloat16)
    initialize_weights(trainer.model, trainer.config, trainer.data, trainer.progress)

    def weights():
        parameters = trainer.model.named_parameters()
        return {
            name: full_tensor(p.detach()).clone() for name, p in parameters if ".encoder." in name
        }

    before = weights()
    trainer.take_step(trainer.training[0])
    return before, weights()


# --------------------------------------------------------------------------------- one of two ranks


def be_a_rank(folder):
    """Runs all cases; tells what only this rank knows in a file of its own."""
    trainers = []
    prepare = trainer.Trainer.__init__

    def noting(self, *arguments, **named):
        trainers.append(self)
        prepare(self, *arguments, **named)

    trainer.Trainer.__init__ = noting
    report = {}
    with join(PretrainConfig(**CONFIG)) as plain:
        report["sum"] = plain.sum([1, 0.5 + plain.rank, 1 << 40])
        report["any"] = [plain.any(plain.rank == 1), plain.any(False)]
        report["broadcast"] = plain.broadcast(7.25 + plain.rank)
        for case in CASES:
            ranks = ranks_for(plain, case)
            if case in GRADIENTS:
                grads, _ = gradients(folder, case, ranks)
                if ranks.is_first:
                    safetensors.torch.save_file(grads, folder / f"{case} gradients.safetensors")
            progress, heard = Progress(), []
            progress.log = heard.append
            last = pretrain(
                folder / data_of(case),
                folder / "two" / case,
                config=config_of(case),
                progress=progress,
                ranks=ranks,
            )
            report[case] = {
                "last": last,
                "heard": heard,
                "weights": checksum(trainers[-1].model),
                "seen": [hash_of(trainers[-1].training[step]) for step in range(8)],
            }
        for case, out in (("plain", "resumed by two"), ("sharded", "resumed by two, sharded")):
            go_on(folder, out, ranks=ranks_for(plain, case), **CASES[case])
        if plain.is_first:
            cut_back(folder, "two/plain", "resumed")
            cut_back(folder, "two/plain", "prolonged")
        plain.barrier()
        go_on(folder, "resumed", ranks=ranks_for(plain, "plain"))
        report["prolonged"] = prolonged_where_the_second_is_slow(folder, plain)
        report["apart"] = where_the_second_sees_an_older_checkpoint(folder, plain)
        _, after = after_a_step_of_muon(folder, ranks_for(plain, "sharded"))
        if plain.is_first:
            safetensors.torch.save_file(after, folder / "muon.safetensors")
        with pytest.MonkeyPatch.context() as patch:
            as_on_a_gpu(patch)
            report["kept"] = kept_for_the_backward_pass(folder, ranks_for(plain, "sharded"))
        report["spoilt"] = spoilt_in_the_second_rank(folder, ranks_for(plain, "sharded"))
        report["diverged"] = saved_when_the_loss_is_not_finite(folder, ranks_for(plain, "plain"))
        report["by the clock"] = by_the_clock(folder, ranks_for(plain, "plain"))
    (folder / f"rank {plain.rank}.json").write_text(json.dumps(report))


def ranks_for(ranks, case):
    ranks._sharding = config_of(case).sharding
    return ranks


def hash_of(examples):
    return [[example.input_ids.tolist(), example.masked_positions.tolist()] for example in examples]


def checksum(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(full_tensor(parameter.detach()).numpy().tobytes())
    return digest.hexdigest()


def go_on(folder, out, *, ranks=ALONE, **changes):
    config = resumed_config(folder / out, changes)
    pretrain(folder / "data", folder / out, config=config, resume=True, ranks=ranks)


def prolonged_where_the_second_is_slow(folder, ranks):
    """How often a new length is reported, as all ranks must report it to agree on a clock."""
    load, calls = Checkpoint.load, []

    def slow_load(checkpoint, *arguments):
        time.sleep(0.3 * ranks.rank)
        return load(checkpoint, *arguments)

    def noting(*arguments, **_):
        calls.append(arguments)
        return "another length"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "load", slow_load)
        patch.setattr(trainer, "describe_new_length", noting)
        go_on(folder, "prolonged", ranks=ranks, steps=4)
    return len(calls)


def where_the_second_sees_an_older_checkpoint(folder, ranks):
    """The error."""
    ranks.barrier()  # for what was saved last to be there
    older = checkpoint_paths(folder / "prolonged")[-2]
    with pytest.MonkeyPatch.context() as patch:
        if ranks.rank:
            patch.setattr(
                "bertpt.training.pretrain.newest_checkpoint",
                lambda *_: Checkpoint(older, verify(older)),
            )
        with pytest.raises(InputError) as error:
            go_on(folder, "prolonged", ranks=ranks)
    return str(error.value)


def as_on_a_gpu(patch):
    """Lets sharded layers be in bfloat16, and autocast give LayerNorm float32, as CUDA's does."""
    normalize = torch.nn.functional.layer_norm

    def in_float32(hidden, shape, weight, bias, eps):
        return normalize(hidden.float(), shape, weight.float(), bias.float(), eps)

    patch.setattr(torch.nn.functional, "layer_norm", in_float32)
    patch.setattr(sharded, "dtype_of_layers", lambda _, precision: precision)


def keeping(tensors):
    return lambda tensor: tensors.append(tensor) or tensor


def kept_for_the_backward_pass(folder, ranks):
    """By precision: whole matrices of layers that a forward pass keeps, and the loss of a step."""
    kept = {}
    data = Dataset(folder / "data")
    for precision in ("float32", "bfloat16"):
        config = dataclasses.replace(config_of("sharded"), precision=precision)
        trainer = Trainer(data, config, Progress(), ranks=ranks)
        initialize_weights(trainer.model, trainer.config, trainer.data, trainer.progress)
        # Heads have square ones, too, which are put together with the embeddings.
        shapes = {tuple(p.shape) for p in trainer.model.bert.encoder.parameters() if p.ndim == 2}
        shapes = {(rows, columns) for rows, columns in shapes if rows != columns}
        saved = []
        batch = collate(trainer.training[0][:5], pad_id=data.tokenizer.pad_id)
        with (
            autocast(trainer.device, trainer.precision),
            torch.autograd.graph.saved_tensors_hooks(keeping(saved), lambda tensor: tensor),
        ):
            logits = trainer.model(*batch.inputs).prediction_logits
        whole = {
            tensor.untyped_storage().data_ptr()
            for tensor in saved
            if tensor.untyped_storage().size() and tuple(tensor.shape) in shapes
        }
        logits.sum().backward()
        trainer.model.zero_grad()
        kept[precision] = {
            "matrices": len(whole),
            "loss": trainer.take_step(trainer.training[0]).loss,
            "kinds": sorted({str(p.dtype) for p in trainer.model.parameters()}),
        }
    return kept


def spoilt_in_the_second_rank(folder, ranks):
    """The error of a run in which the second step leaves rank 1 a weight that is not finite."""
    take_step = trainer.Trainer.take_step

    def spoiling_step(trainer, examples):
        result = take_step(trainer, examples)
        if trainer.budget.step == 1 and ranks.rank == 1:
            local_part(next(trainer.model.parameters()).detach()).fill_(torch.nan)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "take_step", spoiling_step)
        with pytest.raises(BertptError) as error:
            pretrain(
                folder / "data", folder / "two/spoilt", config=config_of("sharded"), ranks=ranks
            )
    return str(error.value)


def saved_when_the_loss_is_not_finite(folder, ranks):
    """The checkpoints that there are when the error of step 2 comes, though saving takes long."""
    accumulate, seal, steps = trainer.accumulate_gradients, checkpoint.complete, itertools.count(1)

    def diverging(*arguments, **named):
        result = accumulate(*arguments, **named)
        return dataclasses.replace(result, loss=math.nan) if next(steps) == 2 else result

    def slow_seal(*arguments):
        time.sleep(0.3)
        seal(*arguments)

    config = dataclasses.replace(config_of("plain"), save_every=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "accumulate_gradients", diverging)
        patch.setattr(checkpoint, "complete", slow_seal)
        with pytest.raises(BertptError, match=r"^step 2: loss nan"):
            pretrain(folder / "data", folder / "two/diverged", config=config, ranks=ranks)
    return [path.name for path in checkpoint_paths(folder / "two/diverged")]


def by_the_clock(folder, ranks):
    """Trains for a minute in which rank 0 makes steps of 10 seconds, rank 1 of 25."""
    now = [0.0]
    take_step = trainer.Trainer.take_step

    def slow_step(trainer, examples):
        now[0] += 25.0 if ranks.rank else 10.0
        return take_step(trainer, examples)

    trainer.Trainer.take_step = slow_step
    schedule.time = SimpleNamespace(monotonic=lambda: now[0])
    trainer.time = schedule.time
    config = dataclasses.replace(config_of("plain"), steps=None, max_minutes=1.0, warmup=0.0)
    result = pretrain(folder / "data", folder / "two" / "clock", config=config, ranks=ranks)
    return {"step": result["step"]}


# --------------------------------------------------------------------------------------- the tests


def free_port():
    with contextlib.closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start(command, **variables):
    """A process with these environment variables and no thread of its own."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "MASTER_"))}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        env={**inherited, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(command):
    """Two ranks, with the variables that torchrun would set."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [start(command, RANK=str(r), LOCAL_RANK=str(r), **shared) for r in range(2)]


def ends_of(processes):
    """Waits; gives the exit status, standard output and standard error of each."""
    try:
        outputs = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        SimpleNamespace(status=process.returncode, out=out, err=err)
        for process, (out, err) in zip(processes, outputs, strict=True)
    ]


def cut_back(folder, source, out):
    """A copy of a run as it was after step 2."""
    shutil.copytree(folder / source, folder / out)
    for step in (4, 6):
        shutil.rmtree(folder / out / "checkpoints" / f"step-{step}")


@pytest.fixture(scope="module")
def folder(build_tiny, tmp_path_factory):
    """Runs of all cases by one process under one/, by two under two/."""
    folder = tmp_path_factory.mktemp("ranks")
    build_tiny(folder / "data")
    build_tiny(folder / "mlm-data", objective="mlm")
    for case in CASES:
        data, out = folder / data_of(case), folder / "one" / case
        pretrain(data, out, config=config_of(case))
    cut_back(folder, "one/plain", "resumed by two")
    cut_back(folder, "one/plain", "resumed by two, sharded")
    for end in ends_of(start_two([__file__, folder])):
        assert end.status == 0, end.err
    return folder


@pytest.fixture(scope="module")
def reports(folder):
    """The report of each rank."""
    return [json.loads((folder / f"rank {number}.json").read_text()) for number in range(2)]


def metrics(out):
    return list(read_metrics(out))


def assert_same_course(ours, theirs):
    """The same losses and rates in the same steps; speed is another matter."""
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for key in mine.keys() - {"tokens_per_second", "elapsed_seconds"}:
            expected = other[key] if other[key] is None else pytest.approx(other[key], abs=1e-5)
            assert mine[key] == expected, (mine["step"], key)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_give_the_losses_and_evaluations_of_one(folder, case):
    assert_same_course(metrics(folder / "two" / case), metrics(folder / "one" / case))


@pytest.mark.parametrize("case", GRADIENTS)
def test_two_ranks_give_the_gradients_of_one(folder, case):
    found = safetensors.torch.load_file(folder / f"{case} gradients.safetensors")
    expected, result = gradients(folder, case, ALONE)
    assert math.isfinite(result.loss)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-6, rtol=1e-5), name


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_end_with_the_same_weights_bit_for_bit(reports, case):
    assert reports[0][case]["weights"] == reports[1][case]["weights"]


def files_in(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_write_the_files_of_one(folder, case):
    """A wrapped model's names, such as module.bert, must not come into a checkpoint."""
    one, two = folder / "one" / case, folder / "two" / case
    assert files_in(two) == files_in(one)
    for mine in two.rglob("*.safetensors"):
        found, expected = (
            safetensors.torch.load_file(path) for path in (mine, one / mine.relative_to(two))
        )
        assert {n: (t.shape, t.dtype) for n, t in found.items()} == {
            n: (t.shape, t.dtype) for n, t in expected.items()
        }
        if mine.name == "model.safetensors":
            for name, tensor in expected.items():
                assert torch.allclose(found[name], tensor, atol=1e-4), name


def test_the_ranks_share_each_step_and_skip_no_example(folder, reports):
    config = config_of("plain")
    data = Dataset(folder / "data")
    alone = TrainingExamples(
        data.examples("train"), batch_size=8, seed=config.seed, masking=data.masking
    )
    for step in range(8):
        shares = [reports[rank]["plain"]["seen"][step] for rank in range(2)]
        assert shares[0] + shares[1] == hash_of(alone[step])
        assert 0 <= len(shares[0]) - len(shares[1]) <= 1


def test_only_the_first_rank_prints(reports):
    assert [len(rank["plain"]["heard"]) > 2 for rank in reports] == [True, False]
    assert "on cpu (2 processes), float32" in reports[0]["plain"]["heard"][0]
    assert "on cpu (2 processes, sharded), float32" in reports[0]["sharded"]["heard"][0]
    assert reports[1]["plain"]["heard"] == []


def test_ranks_agree(reports):
    for rank in reports:
        assert rank["sum"] == [2, 2.0, 2 << 40]
        assert [type(number) for number in rank["sum"]] == [int, float, int]
        assert rank["any"] == [True, False]
        assert rank["broadcast"] == 7.25


@pytest.mark.parametrize("out", ["resumed by two", "resumed by two, sharded"])
def test_a_run_of_one_process_resumes_in_two(folder, out):
    assert_same_course(metrics(folder / out), metrics(folder / "one/plain"))
    assert files_in(folder / out) == files_in(folder / "one/plain")


@pytest.mark.parametrize("case", ["plain", "sharded"])
def test_a_run_of_two_processes_resumes_in_one(folder, tmp_path, case):
    cut_back(folder, f"two/{case}", tmp_path / "run")
    go_on(folder, tmp_path / "run")
    assert_same_course(metrics(tmp_path / "run"), metrics(folder / "one/plain"))


def test_a_run_of_two_that_was_stopped_ends_with_the_same_bits(folder):
    for name in ("model/model.safetensors", "checkpoints/step-6/optimizer.safetensors"):
        assert (folder / "resumed" / name).read_bytes() == (
            folder / "two/plain" / name
        ).read_bytes()


def test_every_rank_sees_a_new_length_however_late_it_looks(reports):
    assert [rank["prolonged"] for rank in reports] == [1, 1]


def test_ranks_that_see_different_checkpoints_stop(reports):
    for rank in reports:
        assert rank["apart"].startswith("not every process found the checkpoint of step 4 intact")


def test_a_weight_that_is_not_finite_in_one_rank_stops_all_before_they_save(folder, reports):
    assert all(
        re.match("step 2: .* finite.* nothing was saved", rank["spoilt"]) for rank in reports
    )
    assert not (folder / "two/spoilt/checkpoints").exists()


def test_no_rank_ends_with_an_error_of_all_while_the_first_still_saves(reports):
    assert [rank["diverged"] for rank in reports] == [["step-1"], ["step-1"]]


def test_a_sharded_forward_pass_keeps_no_full_matrix_of_a_layer(reports):
    for rank in reports:
        single, half = (rank["kept"][precision] for precision in ("float32", "bfloat16"))
        assert single["matrices"] == half["matrices"] == 0
        assert half["loss"] != single["loss"]
        assert half["loss"] == pytest.approx(single["loss"], rel=0.01)
        assert half["kinds"] == ["torch.float32"]


@pytest.mark.usefixtures("reports")
def test_muon_in_bfloat16_gives_the_same_for_sharded_matrices(folder):
    found = safetensors.torch.load_file(folder / "muon.safetensors")
    before, after = after_a_step_of_muon(folder, ALONE)
    for name, start_value in before.items():
        if name.endswith("weight") and "LayerNorm" not in name:
            expected = after[name] - start_value
            assert (found[name] - after[name]).norm() < 0.05 * expected.norm(), name


def test_all_ranks_use_the_clock_of_the_first(folder, reports):
    """Left to itself, the second would stop after three steps, and the first wait for it."""
    assert [rank["by the clock"]["step"] for rank in reports] == [6, 6]
    rates = [e["learning_rate"] for e in metrics(folder / "two/clock") if e["split"] == "train"]
    peak = config_of("plain").resolve().learning_rate
    assert rates == pytest.approx([peak * (1 - seconds / 60) for seconds in range(0, 60, 10)])


# ---------------------------------------------------------------------------- shares, on their own


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 7])
@pytest.mark.parametrize(("batch_size", "at_most"), [(4, 0), (1, 5), (100, 0)])
def test_evaluation_examples_are_all_shared_out_in_equal_numbers_of_batches(
    folder, num_ranks, batch_size, at_most
):
    data = Dataset(folder / "data")
    options = {"batch_size": batch_size, "pad_id": 0, "at_most": at_most}
    dealt = [
        list(in_order(data.examples("valid"), **options, rank=rank, num_ranks=num_ranks))
        for rank in range(num_ranks)
    ]
    assert len({len(batches) for batches in dealt}) == 1
    found = [batch for turn in zip(*dealt, strict=True) for batch in turn]
    expected = list(in_order(data.examples("valid"), **options))
    for batch, whole_batch in itertools.zip_longest(found, expected):
        if whole_batch is None:
            assert batch.lengths.tolist() == [1]
            assert len(batch.masked_positions) == 0
            assert batch.next_sentence_labels.tolist() == [-100]
        else:
            assert torch.equal(batch.input_ids, whole_batch.input_ids)


@pytest.mark.parametrize("num_ranks", [2, 3, 70])
def test_any_number_of_ranks_sees_the_same_examples(folder, num_ranks):
    data = Dataset(folder / "data")
    options = {"batch_size": 7, "seed": 3, "masking": data.masking}
    alone = TrainingExamples(data.examples("train"), **options)
    shared = [
        TrainingExamples(data.examples("train"), **options, rank=rank, num_ranks=num_ranks)
        for rank in range(num_ranks)
    ]
    for step in range(alone.steps_per_epoch + 2):
        parts = [hash_of(examples[step]) for examples in shared]
        assert list(itertools.chain(*parts)) == hash_of(alone[step])
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert np.array_equal(shared[-1].rows(step), alone.rows(step))


# ------------------------------------------------------------------------------ as it is started

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29400",
}


def test_the_error_of_nccl_is_shown_if_the_ranks_do_not_meet(monkeypatch):
    """Its message where two ranks were given one GPU."""
    error = dist.DistBackendError(
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage (run "
        "with NCCL_DEBUG=WARN for details), NCCL version 2.27.3\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000"
    )

    def meet(*_):
        raise error

    monkeypatch.setattr(distributed, "_connect", meet)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BertptError) as caught, join(PretrainConfig(device="cpu")):
        pass
    assert str(caught.value) == (
        "rank 3 of 4 did not meet the others at node1, port 29400 (`distributed_timeout_minutes` "
        "10): Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000"
    )


# ------------------------------------------------------------------------------------ the command

SHORT = "--hidden-size 12 --num-hidden-layers 1 --num-attention-heads 2 --steps 2 --batch-size 4"
LOST = "error: lost contact with the other processes: "


def command(folder, out, *more):
    data = folder / "data"
    return ["-m", "bertpt_cli", "pretrain", data, "--out", out, *SHORT.split(), *more]


def test_srun_alone_starts_a_run_whose_first_rank_prints(folder, tmp_path):
    shared = {
        "SLURM_JOB_ID": "71234",
        "SLURM_STEP_ID": "2",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_TASKS": "2",
        "MASTER_PORT": str(free_port()),
    }
    first, second = ends_of(
        [
            start(
                command(folder, tmp_path / "run"),
                **{**shared, "SLURM_PROCID": number, "SLURM_LOCALID": number},
            )
            for number in "01"
        ]
    )
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert first.out.startswith(f"{tmp_path / 'run'}/model after 2 steps: held-out MLM loss ")
    assert "on cpu (2 processes)" in first.err
    assert (second.out, second.err) == ("", "")


@pytest.mark.slow
def test_an_error_of_one_rank_is_one_line_and_ends_the_other(folder, tmp_path):
    """The place for RUN is taken, which only the first looks at."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/other").touch()
    first, second = ends_of(start_two(command(folder, tmp_path / "run")))
    assert (first.status, second.status) == (1, 1)
    assert first.err.startswith(f"error: {tmp_path / 'run'} exists, and was not made")
    assert first.err.count("\n") == 1
    assert second.out == ""
    assert second.err.startswith(LOST)
    assert second.err.endswith(" (rank 1)\n")
    assert second.err.count("\n") == 1


@pytest.mark.slow
def test_an_error_of_all_ranks_is_printed_once(folder, tmp_path):
    ends = ends_of(start_two(command(folder, tmp_path / "run", "--learning-rate", 1e30)))
    assert [end.status for end in ends] == [1, 1]
    errors = [line for end in ends for line in end.err.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert errors[0].endswith("a lower --learning-rate")  # by the first rank, then


@pytest.mark.slow
def test_a_signal_to_one_rank_saves_and_ends_all_after_the_save(folder, tmp_path):
    code = (
        "import time; from bertpt.training import checkpoint; seal = checkpoint.complete; "
        "checkpoint.complete = lambda *arguments: (time.sleep(2), seal(*arguments)); "
        "from bertpt_cli.main import app; app()"
    )
    out = tmp_path / "run"
    endless = ("--steps", 1_000_000, "--log-every", 1, "--warmup", 0.1)
    processes = start_two(["-c", code, *command(folder, out, *endless)[2:]])
    while not (out / "metrics.jsonl").exists() and all(p.poll() is None for p in processes):
        time.sleep(0.1)
    processes[1].send_signal(signal.SIGTERM)
    processes[1].wait(timeout=300)  # who starts them would now end the other
    saved = checkpoint_paths(out)
    first, second = ends_of(processes)
    assert (first.status, second.status) == (143, 143), first.err + second.err
    [checkpoint] = saved
    step = checkpoint.name.removeprefix("step-")
    assert f"SIGTERM: step {step} is saved in {out}; continue with --resume" in first.err
    assert second.err == ""


@pytest.mark.slow
def test_a_rank_that_waits_in_vain_says_so_in_one_line(folder, tmp_path):
    variables = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    more = ("--distributed-timeout-minutes", 0.02)
    process = start(
        command(folder, tmp_path / "run", *more), **{**variables, "MASTER_PORT": str(free_port())}
    )
    [end] = ends_of([process])
    assert end.status == 1
    assert end.err.startswith("error: rank 0 of 2 did not meet the others at 127.0.0.1, port ")
    assert "(--distributed-timeout-minutes 0.02)" in end.err
    assert end.err.count("\n") == 1


@pytest.mark.slow
def test_waiting_for_a_rank_that_hangs_ends_in_one_line(folder, tmp_path):
    code = (
        "import time; from bertpt.training import trainer; "
        "trainer.Trainer.take_step = lambda *_: time.sleep(300); "
        "from bertpt_cli.main import app; app()"
    )
    options = command(folder, tmp_path / "run", "--distributed-timeout-minutes", 0.25)[2:]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    waiting = start(["-m", "bertpt_cli", *options], RANK="0", LOCAL_RANK="0", **shared)
    hanging = start(["-c", code, *options], RANK="1", LOCAL_RANK="1", **shared)
    try:
        [end] = ends_of([waiting])
    finally:
        hanging.kill()
        hanging.communicate()
    assert end.status == 1
    [error] = [line for line in end.err.splitlines() if "error" in line.lower()]
    assert error.startswith(LOST)


@pytest.mark.slow
def test_torchrun_ends_with_the_line_of_the_rank_that_failed(folder, tmp_path):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    done, failed = (
        ends_of([start([*torchrun, *command(folder, tmp_path / "run")])])[0] for _ in range(2)
    )
    assert done.status == 0
    assert done.out.count("\n") == 1
    assert failed.status == 1
    assert len(re.findall("^error: .* exists; give another --out", failed.err, re.MULTILINE)) == 1
    assert LOST not in failed.err


if __name__ == "__main__":
    with exit_without_teardown(enabled=True):
        be_a_rank(Path(sys.argv[1]))
