"""The RUN folder: checkpoints whole or passed over, the best kept, nothing of others touched."""

import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import safetensors.torch
import torch

from bertpt import files
from bertpt.config import PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.errors import BertptError, InputError, OutputError
from bertpt.progress import Progress
from bertpt.training import checkpoint, trainer
from bertpt.training.checkpoint import checkpoint_paths, newest_checkpoint, verify
from bertpt.training.optimizer import optimizer_state
from bertpt.training.pretrain import pretrain
from bertpt.training.resume import resumed_config
from bertpt.training.run_folder import RunFolder
from bertpt.training.trainer import Trainer

CONFIG = PretrainConfig(
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=16,
    steps=5,
    batch_size=8,
    warmup=0.4,
    eval_every=1,
    save_every=1,
    keep_last=3,
    log_every=1,
    device="cpu",
    precision="float32",
)
FILES = {
    *("README.md", "config.json", "model.safetensors", "optimizer.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "trainer_state.json", "vocab.txt"),
}


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """A run of 5 steps with checkpoints 3, 4 and 5; change nothing."""
    out = tmp_path_factory.mktemp("whole") / "run"
    pretrain(data, out, config=CONFIG)
    return out


@pytest.fixture
def out(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "run")


def resume(data, out, **changes):
    """Resumes the run; returns the logged lines."""
    progress, heard = Progress(), []
    progress.log = heard.append
    pretrain(data, out, config=resumed_config(out, changes), resume=True, progress=progress)
    return heard


def step(out, number):
    return out / "checkpoints" / f"step-{number}"


def names(folder):
    return {path.name for path in folder.iterdir()}


def lines_with(heard, words):
    return [line for line in heard if words in line]


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def evaluations(out):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [entry for entry in lines if entry["split"] == "valid"]


# ------------------------------------------------------------------------------------- checksums


def test_a_checkpoint_lists_the_sha256_of_every_other_file(finished):
    stored = json.loads((step(finished, 5) / "trainer_state.json").read_text())
    assert stored["step"] == 5
    assert names(step(finished, 5)) == FILES
    assert stored["files"] == {
        name: hashlib.sha256((step(finished, 5) / name).read_bytes()).hexdigest()
        for name in FILES - {"trainer_state.json"}
    }


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_checkpoint_with_any_file_damaged_is_passed_over_and_named(data, finished, out, name):
    damaged = step(out, 5) / name
    written = bytearray(damaged.read_bytes())
    written[len(written) // 2] ^= 4
    damaged.write_bytes(written)
    heard = resume(data, out)
    [line] = lines_with(heard, "skipping")
    assert line.startswith(f"skipping {step(out, 5)}: {damaged} ")
    assert lines_with(heard, "resuming") == [f"resuming {out} after step 4"]
    assert content(out / "model") == content(finished / "model")
    assert (
        content(step(out, 5))[Path("model.safetensors")]
        == (content(step(finished, 5))[Path("model.safetensors")])
    )


def flip(path, rng):
    written = bytearray(path.read_bytes())
    written[rng.randrange(len(written))] ^= 1 << rng.randrange(8)
    path.write_bytes(written)


DAMAGE = {
    "a bit": flip,
    "a byte": lambda path, _: path.write_bytes(path.read_bytes()[:-1] + b"\xff"),
    "cut short": lambda path, rng: os.truncate(path, rng.randrange(path.stat().st_size)),
    "empty": lambda path, _: os.truncate(path, 0),
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b"\n"),
    "gone": lambda path, _: path.unlink(),
    "noise": lambda path, rng: path.write_bytes(rng.randbytes(path.stat().st_size)),
    "a folder": lambda path, _: (path.unlink(), path.mkdir()),
    "of another": lambda path, _: (
        shutil.copy(path.with_name("vocab.txt"), path)
        if path.name != "vocab.txt"
        else shutil.copy(path.with_name("README.md"), path)
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_of_every_kind_to_every_file_is_one_line_that_names_it(out, kind):
    rng = random.Random(kind)
    good = step(out, 5)
    for name in sorted(FILES):
        for _ in range(5):
            copy = shutil.copytree(good, out.parent / "copy")
            DAMAGE[kind](copy / name, rng)
            with pytest.raises(InputError) as caught:
                verify(copy)
            assert str(caught.value).startswith(str(copy / name)), caught.value
            assert "\n" not in str(caught.value)
            shutil.rmtree(copy)
    verify(good)


@pytest.mark.parametrize("name", ["model.safetensors", "trainer_state.json"])
def test_a_file_of_another_step_is_noticed(data, out, name):
    shutil.copy(step(out, 4) / name, step(out, 5) / name)
    assert lines_with(resume(data, out), "skipping")


def test_a_checkpoint_under_another_number_is_not_mistaken_for_that_step(data, out):
    step(out, 5).rename(step(out, 1000))
    heard = resume(data, out)
    assert lines_with(heard, "step-1000 holds step 5, so it was renamed")
    assert lines_with(heard, "resuming") == [f"resuming {out} after step 4"]


def test_if_every_checkpoint_is_damaged_the_error_names_the_newest(data, out):
    for number in (3, 4, 5):
        (step(out, number) / "config.json").unlink()
    before = content(out)
    with pytest.raises(InputError) as caught:
        resume(data, out)
    assert str(caught.value) == (
        f"{step(out, 5) / 'config.json'} is missing; no other checkpoint is intact, so start with "
        "`overwrite`"
    )
    assert content(out) == before


@pytest.mark.parametrize("value", ["[]", "{}", '{"sha256": 1, "files": 2}', '"\\ud800"', "nul\0"])
def test_any_invalid_state_is_refused(out, value):
    (step(out, 5) / "trainer_state.json").write_text(value)
    with pytest.raises(InputError, match=r"trainer_state\.json"):
        verify(step(out, 5))


def test_a_run_whose_config_lacks_a_part_is_refused(data, out):
    stored = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**stored, "settings": None}))
    with pytest.raises(InputError, match=r"config\.json is damaged: it has no settings"):
        resume(data, out)


def test_a_loaded_checkpoint_may_change_or_disappear(data, out):
    config = resumed_config(out, {})
    trainer = Trainer(Dataset(data), config, Progress(), checkpoint=newest_checkpoint(out))
    trainer.resume()

    def state():
        return optimizer_state(trainer.optimizers, trainer.model)

    before = state()
    for path in step(out, 5).glob("*.safetensors"):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
    after = state()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert any(tensor.any() for tensor in before.values())


# ------------------------------------------------------------------- what is ours, and the newest


def test_junk_among_the_checkpoints_is_neither_trusted_nor_deleted(data, out):
    junk = {"step-x", "step-", "step-007", "letters", ".step-9.mine", "step-2"}
    for name in junk:
        (out / "checkpoints" / name).mkdir()
        (out / "checkpoints" / name / "a").touch()
    step(out, 1000).mkdir()
    step(out, 2000).write_text("a file")
    heard = resume(data, out, steps=7)
    assert lines_with(heard, "resuming") == [f"resuming {out} after step 5"]
    passed_over = lines_with(heard, "skipping")
    assert len(passed_over) == 1
    assert "step-1000/trainer_state.json is missing" in passed_over[0]
    kept = {"step-5", "step-6", "step-7"}
    assert names(out / "checkpoints") == junk | kept | {"step-1000", "step-2000"}


def test_checkpoints_are_ordered_by_number_and_damaged_ones_do_not_count(data, out):
    resume(data, out, steps=11, keep_last=2)
    assert names(out / "checkpoints") == {"step-10", "step-11"}
    (step(out, 11) / "vocab.txt").unlink()
    heard = resume(data, out, keep_last=1, save_every=4, steps=12)
    assert lines_with(heard, "resuming") == [f"resuming {out} after step 10"]
    assert names(out / "checkpoints") == {"step-12"}


def test_a_damaged_later_checkpoint_does_not_push_out_the_new_one(data, out):
    (step(out, 5) / "vocab.txt").unlink()
    shutil.rmtree(step(out, 4))
    resume(data, out, steps=4, keep_last=1, save_every=0)
    assert names(out / "checkpoints") == {"step-4", "step-5"}
    verify(step(out, 4))


def test_a_file_in_place_of_a_checkpoint_is_kept_under_another_name(data, out):
    step(out, 6).mkdir()
    (step(out, 6) / "letter").write_text("Dear")
    resume(data, out, steps=6)
    verify(step(out, 6))
    assert (out / "checkpoints" / "step-6.foreign-1" / "letter").read_text() == "Dear"


def test_old_checkpoints_are_removed_only_when_the_new_one_is_complete(data, out, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "complete", full)
    with pytest.raises(OutputError, match=r"cannot write .*step-6: No space"):
        resume(data, out, steps=7)
    assert names(out / "checkpoints") == {"step-3", "step-4", "step-5"}


def test_an_old_checkpoint_still_being_read_is_removed_later(data, out, monkeypatch):
    """NFS keeps a file that is open, and with it the folder."""
    rmdir = os.rmdir

    def busy(path, **named):
        if "step-" in str(path):
            raise OSError(39, "Directory not empty")
        rmdir(path, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", busy)
        resume(data, out, steps=6)
    kept = {"step-4", "step-5", "step-6"}
    assert kept < names(out / "checkpoints")
    assert newest_checkpoint(out).state.step == 6
    assert {path.name for path in checkpoint_paths(out)} == kept
    assert lines_with(resume(data, out), "left unfinished")
    assert names(out / "checkpoints") == kept


# -------------------------------------------------------------------------------- one at a time


def test_the_remains_of_a_killed_process_are_removed_and_reported(data, out, finished):
    left = [
        out / ".model.tmp-0123abcd",
        out / ".metrics.jsonl.tmp-4711",
        out / "checkpoints" / ".step-6.tmp-0123abcd",
    ]
    for path in left:
        path.mkdir()
        (path / "a").touch()
    (out / ".letters.tmp-0123abcd").touch()
    (out / ".model.old-0123abcd").mkdir()
    (out / "model").rename(out / ".model.old-0123abcd" / "model")
    heard = resume(data, out)
    assert len(lines_with(heard, "left unfinished")) == 4
    assert names(out) == {*names(finished), ".letters.tmp-0123abcd"}
    assert content(out / "model") == content(finished / "model")


def test_a_second_process_on_a_run_is_refused_and_harms_nothing(data, out):
    script = """
import sys
from pathlib import Path
from bertpt.locks import locked
with locked(Path(sys.argv[1]) / ".lock"):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        unfinished = out / "checkpoints" / ".step-6.tmp-0123abcd"
        unfinished.mkdir()  # the other's, who is writing it
        before = content(out)
        with pytest.raises(OutputError, match=f"being written by process {other.pid} "):
            resume(data, out, steps=6)
        with pytest.raises(OutputError, match=f"being written by process {other.pid} "):
            pretrain(data, out, config=CONFIG, overwrite=True)
        assert content(out) == before
        assert unfinished.exists()
        other.communicate()
    assert lines_with(resume(data, out, steps=6), "resuming")


def test_a_run_is_locked_while_it_trains_and_not_after(data, tmp_path, monkeypatch):
    seen = []

    def note(self, *arguments):
        seen.append((self.path / ".lock").read_text().split()[0])
        return log(self, *arguments)

    log = RunFolder.log
    monkeypatch.setattr(RunFolder, "log", note)
    pretrain(data, tmp_path / "run", config=CONFIG)
    assert set(seen) == {str(os.getpid())}
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_run_on_a_file_system_without_locks_trains(data, out, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    assert lines_with(resume(data, out, steps=6), "resuming")


# ----------------------------------------------------------------------------------------- best


@pytest.fixture
def loss_that_rises_again(monkeypatch):
    """Held-out losses of 5, 4, 3, 4, 5, ... one evaluation after another."""
    evaluate, numbers = trainer.evaluate, itertools.count()

    def bent(*arguments, **named):
        return {**evaluate(*arguments, **named), "loss": 3.0 + abs(2 - next(numbers))}

    monkeypatch.setattr(trainer, "evaluate", bent)


@pytest.mark.usefixtures("loss_that_rises_again")
def test_best_has_the_weights_of_the_lowest_held_out_loss(data, tmp_path):
    out = tmp_path / "run"
    progress, heard = Progress(), []
    progress.log = heard.append
    config = dataclasses.replace(CONFIG, steps=12, eval_every=1, save_every=1, keep_last=0)
    pretrain(data, out, config=config, progress=progress)
    lowest = min(evaluations(out), key=lambda entry: entry["loss"])
    assert lowest["step"] == 3
    expected = (step(out, lowest["step"]) / "model.safetensors").read_bytes()
    assert (out / "best" / "model.safetensors").read_bytes() == expected
    assert heard[-1] == (
        f"step {lowest['step']} had the lowest held-out loss, {lowest['loss']:.3f}: {out / 'best'}"
    )


@pytest.mark.parametrize(
    "stop", [3, *(pytest.param(stop, marks=pytest.mark.slow) for stop in (6, 9))]
)
def test_a_resumed_run_has_the_best_of_one_that_was_not_stopped(data, tmp_path, stop):
    settings = {"steps": 12, "learning_rate": 0.3, "muon_learning_rate": 0.3, "save_every": 3}
    config = dataclasses.replace(CONFIG, **settings, schedule="constant", keep_last=0)
    one, other = tmp_path / "one", tmp_path / "other"
    pretrain(data, one, config=config)
    pretrain(data, other, config=config)
    for later in range(stop + 3, 13, 3):
        shutil.rmtree(step(other, later))
    shutil.rmtree(other / "model")
    if min(evaluations(one), key=lambda entry: entry["loss"])["step"] > stop:
        shutil.rmtree(other / "best")
    resume(data, other)
    assert content(other / "best") == content(one / "best")


def test_best_is_written_by_evaluations_between_saves(data, tmp_path):
    pretrain(data, tmp_path / "run", config=dataclasses.replace(CONFIG, save_every=0))
    assert names(tmp_path / "run" / "checkpoints") == {"step-5"}
    best = min(evaluations(tmp_path / "run"), key=lambda entry: entry["loss"])["step"]
    assert f"after step {best}" in (tmp_path / "run" / "best" / "README.md").read_text()


def test_for_mlm_alone_the_best_is_by_mlm_loss(build_tiny, tmp_path):
    data = build_tiny(tmp_path / "data", objective="mlm")
    pretrain(data, tmp_path / "run", config=CONFIG)
    best = min(evaluations(tmp_path / "run"), key=lambda entry: entry["mlm_loss"])["step"]
    assert f"after step {best}" in (tmp_path / "run" / "best" / "README.md").read_text()


def test_without_held_out_data_there_is_no_best(build_tiny, tmp_path):
    data = build_tiny(tmp_path / "data", valid_fraction=0.0)
    pretrain(data, tmp_path / "run", config=CONFIG)
    assert not (tmp_path / "run" / "best").exists()


# ------------------------------------------------------------------------------- beside training


def test_a_background_save_has_the_weights_of_its_step(data, tmp_path):
    """Every save begins late, when the live weights are those of a later step."""
    late, gates = threading.Event(), []
    new_folder = files.new_folder

    def slow(path):
        if threading.current_thread() is not threading.main_thread() and not gates:
            gates.append(path)
            late.wait(timeout=30)
        return new_folder(path)

    config = dataclasses.replace(CONFIG, steps=2, keep_last=0, save_every=1, eval_every=0)
    pretrain(data, tmp_path / "whole", config=config)
    log = RunFolder.log

    def opens_after_the_second_step(self, entry):
        if entry["step"] == 2:
            late.set()
        return log(self, entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "new_folder", slow)
        patch.setattr(RunFolder, "log", opens_after_the_second_step)
        pretrain(data, tmp_path / "run", config=config)
    assert gates == [step(tmp_path / "run", 1)]
    for number in (1, 2):
        for name in ("model.safetensors", "optimizer.safetensors"):
            mine, theirs = (step(tmp_path / run, number) / name for run in ("run", "whole"))
            assert mine.read_bytes() == theirs.read_bytes()


def test_a_save_that_fails_ends_the_run_with_its_error(data, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "complete", full)
    with pytest.raises(OutputError, match=r"cannot write .*step-5: No space"):
        pretrain(data, tmp_path / "run", config=dataclasses.replace(CONFIG, save_every=0))


def test_an_interrupted_run_waits_for_the_save_under_way(data, tmp_path, monkeypatch):
    def interrupted(self, entry):
        if entry["step"] == 4 and entry["split"] == "train":
            raise KeyboardInterrupt
        return log(self, entry)

    log = RunFolder.log
    monkeypatch.setattr(RunFolder, "log", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pretrain(data, tmp_path / "run", config=CONFIG)
    assert names(tmp_path / "run" / "checkpoints") == {"step-1", "step-2", "step-3"}
    for number in (1, 2, 3):
        verify(step(tmp_path / "run", number))


# --------------------------------------------------------------------------------- a disk is full


@pytest.mark.parametrize(
    "kth",
    [
        pytest.param(kth, marks=() if kth in (1, 17, 41) else pytest.mark.slow)
        for kth in range(1, 60, 4)
    ],
)
def test_a_full_disk_at_any_write_keeps_the_earlier_checkpoints(data, out, kth, monkeypatch):
    """A write is noticed as failed when it is flushed, as on file systems that delay it."""
    flushed, fsync = [], os.fsync

    def full(descriptor):
        flushed.append(descriptor)
        if len(flushed) >= kth:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((BertptError, OSError), match=r"No space") as caught:
            resume(data, out, steps=7)
    assert str(out) in str(caught.value)
    assert not [path for path in out.rglob(".*") if path.is_dir()]
    heard = resume(data, out, steps=7)
    assert not lines_with(heard, "skipping")
    assert lines_with(heard, "resuming")
    assert [entry["step"] for entry in evaluations(out)] == [1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def file_size_limit():
    """Sets a limit on the size of files, as `ulimit -f` does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [10, 300, 1_000, 3_000, 6_000, 12_000, 20_000])
def test_a_limit_on_file_size_is_named_with_the_path(data, out, limit, file_size_limit):
    metrics = (out / "metrics.jsonl").read_bytes()
    file_size_limit(limit)
    with pytest.raises((BertptError, OSError)) as caught:
        resume(data, out, steps=7)
    file_size_limit(resource.RLIM_INFINITY)
    assert "too large" in str(caught.value)
    assert str(out) in str(caught.value)
    assert ".tmp-" not in str(caught.value)
    assert not [path for path in out.rglob(".*") if path.is_dir()]
    assert {path.name for path in (out / "checkpoints").iterdir()} == {"step-3", "step-4", "step-5"}
    lines = (out / "metrics.jsonl").read_bytes()
    assert lines.startswith(metrics)
    assert lines.endswith(b"\n")
    assert lines_with(resume(data, out, steps=7), "resuming")


def test_a_torn_last_line_of_the_metrics_is_passed_over(data, out):
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 6, "spl\xff\0')
    resume(data, out, steps=6)
    assert [entry["step"] for entry in evaluations(out)] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_is_killed_resumes_from_the_newest_checkpoint(data, tmp_path):
    script = """
import json, os, signal, sys
from pathlib import Path
import torch
from bertpt.config import PretrainConfig
from bertpt.training import checkpoint
from bertpt.training.pretrain import pretrain
torch.set_num_threads(1)  # as in the process that compares the bits
seal = checkpoint.complete
def killed(folder, state):
    seal(folder, state)
    if state.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint.complete = killed
config = PretrainConfig(**json.loads(sys.argv[3]))
pretrain(Path(sys.argv[1]), Path(sys.argv[2]), config=config)
"""
    out = tmp_path / "run"
    settings = json.dumps(CONFIG.to_dict())
    command = [sys.executable, "-c", script, str(data), str(out), settings]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    heard = resume(data, out)
    [removed] = lines_with(heard, "left unfinished")
    assert "/checkpoints/.step-3.tmp-" in removed
    assert lines_with(heard, "resuming") == [f"resuming {out} after step 2"]
    weights = safetensors.torch.load_file(out / "model" / "model.safetensors")
    pretrain(data, tmp_path / "other", config=CONFIG)
    for name, tensor in safetensors.torch.load_file(
        tmp_path / "other" / "model" / "model.safetensors"
    ).items():
        assert torch.equal(weights[name], tensor)
