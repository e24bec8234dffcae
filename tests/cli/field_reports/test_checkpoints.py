"""Resuming, signals, what fits: faults that users of other tools met, and the right value."""

import collections
import os
import signal
import subprocess
import time

import psutil
import pytest
import torch
from helpers import TINY, start

from bertpt.training import trainer


@pytest.fixture(scope="module")
def data(build, two):
    return build(two, "--dupe-factor", 6)


@pytest.fixture(scope="module")
def batch(data):
    """Examples in a batch, of which there are 4 in an epoch."""
    num_examples = len(list(data.examples()))
    size = -(-num_examples // 4)
    assert -(-num_examples // size) == 4
    return size


def newest_states(run):
    """The weights and the optimizers' state of the last checkpoint."""
    newest = max(run.checkpoints().items())[1]
    return [run.tensors(newest / f"{name}.safetensors") for name in ("model", "optimizer")]


def assert_same(run, other):
    for mine, theirs in zip(newest_states(run), newest_states(other), strict=True):
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            assert torch.equal(tensor, theirs[name]), name
    for key in ("step", "loss", "grad_norm", "learning_rate", "muon_learning_rate"):
        mine, theirs = ([entry[key] for entry in r.logged()] for r in (run, other))
        assert mine == theirs, key


# ----------------------------------------------------------------------------------------- resuming


@pytest.mark.parametrize("stop", [5, 8], ids=["in an epoch", "between epochs"])
def test_a_resumed_run_continues_with_the_next_example(pretrain, data, batch, stop, monkeypatch):
    """Examples came twice or never: their order was drawn again, or was that of the first epoch.

    (huggingface/transformers#8874, huggingface/transformers#40691)
    """
    seen = []
    accumulate = trainer.accumulate_gradients

    def noting(model, examples, **named):
        seen.append([tuple(example.input_ids) for example in examples])
        return accumulate(model, examples, **named)

    monkeypatch.setattr(trainer, "accumulate_gradients", noting)
    # a schedule that does not depend on the length, or 5 steps would be another run's
    how = ("--batch-size", batch, "--dropout", 0.1, "--schedule", "constant", "--warmup", 2)
    whole = pretrain(data, *how, "--steps", 12)
    part = pretrain(data, *how, "--steps", stop)
    pretrain(data, "--steps", 12, out=part.folder)
    assert_same(part, whole)
    assert [entry["step"] for entry in part.logged()] == list(range(1, 13))

    assert seen[:12] == seen[12:]
    of_epochs = [[row for step in seen[i : i + 4] for row in step] for i in (0, 4, 8)]
    ids = {word: number for number, word in enumerate(data.vocab)}
    every = collections.Counter(
        tuple(ids[token] for token in example.tokens) for example in data.examples()
    )
    assert [collections.Counter(epoch) for epoch in of_epochs] == [every] * 3
    assert of_epochs[0] != of_epochs[1] != of_epochs[2]


def test_an_interrupted_warm_up_continues_with_its_rates_and_moments(
    pretrain, run, data, batch, *, tmp_path, monkeypatch
):
    """The warm-up started over, and Adam's moments were lost.

    (vllm-project/speculators#900, huggingface/transformers#33336)
    """
    how = ("--batch-size", batch, "--warmup", 10, "--dropout", 0.1)
    whole = pretrain(data, *how, "--steps", 20)
    with monkeypatch.context() as patch:
        accumulate, steps = trainer.accumulate_gradients, iter(range(1, 100))

        def interrupted(*arguments, **named):
            if next(steps) == 7:
                os.kill(os.getpid(), signal.SIGINT)
            return accumulate(*arguments, **named)

        patch.setattr(trainer, "accumulate_gradients", interrupted)
        out = tmp_path / "run"
        asked = (*TINY, "--device", "cpu", "--precision", "float32", "--log-every", 1)
        stopped = run("pretrain", data.folder, "--out", out, *how, *asked, "--steps", 20)
    assert stopped.exit_code == 130
    assert "SIGINT: saving step 7; press Ctrl-C again to quit without saving\n" in stopped.stderr
    assert "SIGINT: step 7 is saved" in stopped.stderr
    resumed = pretrain(data, out=out)
    assert "resuming" in resumed.log
    assert_same(resumed, whole)
    rates = [entry["learning_rate"] / 1e-3 for entry in resumed.logged()]
    assert rates[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert rates[10:] == pytest.approx([left / 10 for left in range(10, 0, -1)])
    counted = {t.item() for name, t in newest_states(resumed)[1].items() if name.endswith("/step")}
    assert counted == {20}

    longer = pretrain(data, "--steps", 30, out=out)
    # 20 of 30 are done, so 10 of the 20 that follow the warm-up are left
    assert (
        "--steps 30 instead of --steps 20: the next step's learning rate is 0.0005, not 0"
        in longer.log
    )
    assert longer.logged()[20]["learning_rate"] == pytest.approx(0.0005)


@pytest.mark.parametrize("place", ["model", "checkpoints/step-1"])
def test_weights_alone_can_start_a_run_but_not_resume_one(pretrain, run, data, place):
    """A run was "resumed" from weights, and its optimizer started over silently.

    (vllm-project/speculators#900)
    """
    first = pretrain(data, "--steps", 1)
    folder = first.folder / place
    result = run("pretrain", data.folder, "--out", folder, "--resume", "--steps", 2)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (f"error: no run to resume in {folder}; start one without --resume\n")
    started = pretrain(data, "--init-from", folder, "--steps", 1, shape=())
    assert [entry["step"] for entry in started.logged()] == [1]


# ------------------------------------------------------------------------------------------ signals


def interrupt_twice(process):
    """Press Ctrl-C twice, 50 ms apart; return the output after the process and its children end."""
    others = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)  # to a shell, both are 130
    assert stdout == ""
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(others, timeout=20)
    assert not alive
    return others


@pytest.mark.slow
def test_two_ctrl_c_end_a_run_that_can_be_resumed(pretrain, data, tmp_path):
    """The second Ctrl-C broke the save that the first had asked for.

    (lipixun/tftrainer#7, Lightning-AI/pytorch-lightning#1455)
    """
    out = tmp_path / "run"
    endless = ("--steps", 1_000_000, "--save-every", 1, "--keep-last", 0, "--loader-workers", 1)
    log = ("--device", "cpu", "--precision", "float32", "--log-every", 1)
    with start("pretrain", data.folder, "--out", out, *TINY, *endless, *log) as process:
        while not (out / "checkpoints/step-3").exists():
            assert process.poll() is None
            time.sleep(0.05)
        assert interrupt_twice(process)
    last = max(
        int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*")
    )
    resumed = pretrain(data, "--steps", last + 1, "--loader-workers", 0, out=out)
    assert f"after step {last}" in resumed.log
    assert [entry["step"] for entry in resumed.logged()] == list(range(1, last + 2))
    assert not [path for path in out.rglob("*") if ".tmp-" in path.name]


def test_two_ctrl_c_leave_no_unfinished_data(tmp_path, vocabulary):
    """Worker processes stayed, and half a data set that looked complete.

    (facebookresearch/ParlAI#1419, goodfire-ai/spd#677)
    """
    words = [f"{a}{b}" for a in "bdfgklmn" for b in ("a", "et", "ing", "or", "un")]
    text = "".join(f"{' '.join(words[i:])}.\n\n" for i in range(40)) * 200
    options = ("--tokenizer", vocabulary(words), "--workers", 2, "--out", tmp_path / "data")
    with start("build-data", "-", *options, stdin=subprocess.PIPE) as process:
        for _ in range(8):  # more than the pipe and the first tasks take
            process.stdin.write(text)
        process.stdin.flush()
        assert list(tmp_path.iterdir())
        assert interrupt_twice(process)
    assert not (tmp_path / "data").exists()


# ---------------------------------------------------------------------------------------- what fits


def test_longer_sequences_of_the_same_vocabulary_only_need_the_positions(
    pretrain, evaluate, run, build, *, two, tmp_path
):
    """Longer data gave a size mismatch, or was refused although the model had the positions.

    (facebookresearch/fairseq#3325, huggingface/transformers#2596)
    """
    short, longer, too_long = (build(two, "--seq-len", length) for length in (16, 24, 25))
    trained = pretrain(short, "--steps", 1, "--max-position-embeddings", 24)
    assert evaluate(trained.folder, longer)["num_examples"] > 0
    gone_on = pretrain(longer, "--init-from", trained.folder, "--steps", 1, shape=())
    assert len(gone_on.logged()) == 1
    out = tmp_path / "out"
    for command in (
        ("eval-mlm", trained.folder, too_long.folder, "--split", "train"),
        ("pretrain", too_long.folder, "--init-from", trained.folder, "--out", out),
    ):
        result = run(*command, "--quiet")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "sequences of 25 tokens, but the model has 24 positions" in result.stderr
    assert not out.exists()


def test_a_vocabulary_in_another_order_is_refused_everywhere(
    pretrain, run, build, *, two, letters, tmp_path
):
    """Ids meant other words after the vocabulary was rebuilt, and nothing noticed.

    (NVIDIA/DeepLearningExamples#651, huggingface/transformers#1978)
    """
    data, other = build(two), build(two, words=letters[::-1])
    trained = pretrain(data, "--steps", 1)
    prints = [d.manifest["tokenizer_sha256"][:12] for d in (data, other)]
    out = tmp_path / "out"
    for command in (
        ("eval-mlm", trained.folder, other.folder, "--split", "train"),
        ("pretrain", other.folder, "--init-from", trained.folder, "--out", out),
        ("pretrain", other.folder, "--out", trained.folder, "--resume"),
    ):
        result = run(*command, "--quiet")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.count("\n") == 1
        if "--resume" not in command:
            assert all(fingerprint in result.stderr for fingerprint in prints)
        else:
            assert f"{trained.folder} was trained on {data.folder} (" in result.stderr
            assert f"and {other.folder} is " in result.stderr
    assert not out.exists()
