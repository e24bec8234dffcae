"""Signals in a run: what is finished, what is saved, and that nothing is lost."""

import dataclasses
import json
import multiprocessing
import os
import signal
import threading
import time

import pytest
import safetensors.torch
import torch

from bertpt.config import PretrainConfig
from bertpt.signals import StopRequest
from bertpt.training import trainer
from bertpt.training.checkpoint import Snapshot, checkpoint_paths, newest_checkpoint
from bertpt.training.pretrain import pretrain
from bertpt.training.resume import resumed_config
from bertpt.training.trainer import Trainer

CONFIG = PretrainConfig(
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=16,
    dropout=0.1,
    steps=7,
    batch_size=8,
    micro_batch_size=4,
    eval_every=3,
    save_every=0,
    log_every=1,
    device="cpu",
    precision="float32",
)
WATCHED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]


@pytest.fixture(autouse=True)
def handlers():
    """SIGTERM and SIGHUP end a process, so what obeys them here must raise; all come back."""

    def leave(number, _):
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in WATCHED}
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def send(monkeypatch):
    """Sends signals to this process in the middle of a step, counted from 1."""

    def send_in(step, *numbers):
        accumulate = trainer.accumulate_gradients
        steps = iter(range(1, 1000))

        def interrupted(*arguments, **named):
            result = accumulate(*arguments, **named)
            if next(steps) == step:
                for number in numbers:
                    os.kill(os.getpid(), number)
            return result

        monkeypatch.setattr(trainer, "accumulate_gradients", interrupted)

    return send_in


def go(data, out, **settings):
    return pretrain(data, out, config=dataclasses.replace(CONFIG, **settings))


def resume(data, out):
    return pretrain(data, out, config=resumed_config(out, {}), resume=True)


def metrics(run):
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    timed = {"tokens_per_second", "elapsed_seconds"}
    return [{k: v for k, v in entry.items() if k not in timed} for entry in entries]


def evaluated_steps(run):
    return [entry["step"] for entry in metrics(run) if entry["split"] == "valid"]


def assert_same_run(one, other):
    assert metrics(one) == metrics(other)
    for name in ("model.safetensors", "optimizer.safetensors"):
        left, right = (
            safetensors.torch.load_file(newest_checkpoint(run).path / name) for run in (one, other)
        )
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name


@pytest.mark.parametrize(
    ("number", "step"), [(signal.SIGINT, 1), (signal.SIGTERM, 3), (signal.SIGHUP, 5)]
)
def test_an_interrupted_step_is_finished_and_saved_and_the_run_resumes_unchanged(
    data, tmp_path, send, number, step
):
    go(data, tmp_path / "whole")
    send(step, number)
    with pytest.raises((KeyboardInterrupt, SystemExit)) as left:
        go(data, tmp_path / "run")
    assert isinstance(left.value, SystemExit) == (number != signal.SIGINT)
    assert newest_checkpoint(tmp_path / "run").path.name == f"step-{step}"
    resume(data, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("at", [3, 7])
def test_an_interrupted_evaluation_is_repeated_on_resuming(data, tmp_path, monkeypatch, at):
    go(data, tmp_path / "whole")
    evaluate = trainer.evaluate

    def interrupted(model, batches, **named):
        def interrupting(steps):
            for batch in batches:
                yield batch
                if steps == at:
                    os.kill(os.getpid(), signal.SIGTERM)

        steps = sum(1 for entry in metrics(tmp_path / "run") if entry["split"] == "train")
        return evaluate(model, interrupting(steps), **named)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "evaluate", interrupted)
        with pytest.raises(SystemExit):
            go(data, tmp_path / "run")
    assert newest_checkpoint(tmp_path / "run").path.name == f"step-{at}"
    assert at in evaluated_steps(tmp_path / "whole")
    assert at not in evaluated_steps(tmp_path / "run")
    resume(data, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_an_ignored_sighup_does_not_end_a_run(data, tmp_path, send):
    """As under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    send(2, signal.SIGHUP)
    go(data, tmp_path / "run")
    assert newest_checkpoint(tmp_path / "run").path.name == "step-7"


def test_sigusr1_saves_and_continues(data, tmp_path, send):
    go(data, tmp_path / "whole", keep_last=0)
    send(2, signal.SIGUSR1)
    go(data, tmp_path / "run", keep_last=0)
    saved = [path.name for path in checkpoint_paths(tmp_path / "run")]
    assert saved == ["step-2", "step-7"]
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_sigusr1_in_a_step_that_is_saved_anyway_saves_once(data, tmp_path, send):
    send(2, signal.SIGUSR1)
    go(data, tmp_path / "run", save_every=2, keep_last=0)
    saved = [path.name for path in checkpoint_paths(tmp_path / "run")]
    assert saved == ["step-2", "step-4", "step-6", "step-7"]


def test_a_second_ctrl_c_exits_at_once_without_damage(data, tmp_path, send):
    send(5, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        go(data, tmp_path / "run", save_every=2)
    assert newest_checkpoint(tmp_path / "run").path.name == "step-4"
    assert [entry["step"] for entry in metrics(tmp_path / "run") if entry["split"] == "train"] == [
        *(1, 2, 3, 4)
    ]


def test_ctrl_c_twice_while_a_checkpoint_is_written_waits_for_it(data, tmp_path, monkeypatch):
    write = Snapshot.write_model

    def interrupted(snapshot, folder, card):
        write(snapshot, folder, card)
        if "step-4" in str(folder):
            os.kill(os.getpid(), signal.SIGINT)
            while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                time.sleep(0.001)  # two that come at once count as one
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Snapshot, "write_model", interrupted)
    with pytest.raises(KeyboardInterrupt):
        go(data, tmp_path / "run", save_every=2)
    assert newest_checkpoint(tmp_path / "run").path.name == "step-4"
    assert not list((tmp_path / "run").rglob("*.tmp-*"))


def test_handlers_are_restored(data, tmp_path):
    before = [signal.getsignal(number) for number in WATCHED]
    go(data, tmp_path / "run", steps=1)
    assert [signal.getsignal(number) for number in WATCHED] == before


def test_a_thread_may_train(data, tmp_path):
    thread = threading.Thread(target=go, args=(data, tmp_path / "run"), kwargs={"steps": 1})
    thread.start()
    thread.join()
    assert newest_checkpoint(tmp_path / "run").path.name == "step-1"


def test_a_save_is_asked_for_once():
    with StopRequest() as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.take_save()
        assert not signals.take_save()
        assert signals.stop is None


def test_loader_processes_change_no_bit_also_when_interrupted(data, tmp_path, send):
    go(data, tmp_path / "whole")
    send(4, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        go(data, tmp_path / "run", loader_workers=1)
    resume(data, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(
    "when",
    [
        (trainer.console, "training_bar"),
        pytest.param((Trainer, "take_step"), marks=pytest.mark.slow),
    ],
    ids=["first", "in a step"],
)
def test_signals_to_all_processes_are_for_the_one_that_trains(data, tmp_path, monkeypatch, when):
    """A terminal, systemd and Slurm send them to loader processes, too, even as these start."""
    method = getattr(*when)

    def signalled(*arguments):
        children = multiprocessing.active_children()
        assert len(children) == 2
        for child in children:
            for number in WATCHED:
                os.kill(child.pid, number)
        return method(*arguments)

    monkeypatch.setattr(*when, signalled)
    go(data, tmp_path / "run", loader_workers=2)
    assert newest_checkpoint(tmp_path / "run").path.name == "step-7"
    assert not multiprocessing.active_children()


def test_a_loader_process_that_dies_ends_the_run_in_one_line(data, tmp_path, monkeypatch):
    take_step = Trainer.take_step

    def kill_first(trainer, examples):
        for process in multiprocessing.active_children():
            process.kill()
        return take_step(trainer, examples)

    monkeypatch.setattr(Trainer, "take_step", kill_first)
    with pytest.raises(trainer.BertptError, match="a process that loads examples died"):
        go(data, tmp_path / "run", loader_workers=1, steps=50)
