"""Pipes, processes, options: faults that users of other tools met, and the right value."""

import json
import os
import subprocess

import psutil
import pytest
import torch
from helpers import COMMAND, TINY, digests

from bertpt.build import make_examples, tokenize, workers

# -------------------------------------------------------------------------------------------- pipes


def test_data_is_complete_if_the_report_is_not_read(tmp_path, two, vocabulary, letters):
    """A reader that goes away gave a traceback, and a second one at the very end.

    (Backblaze/B2_Command_Line_Tool#1071, python/cpython#90650)
    """
    (tmp_path / "two.txt").write_text(two)
    reader, writer = os.pipe()
    os.close(reader)
    options = ("--tokenizer", str(vocabulary(letters)), "--out", "data", "--dupe-factor", "3")
    try:
        result = subprocess.run(
            [*COMMAND, "build-data", "two.txt", *options],
            cwd=tmp_path,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert result.returncode == 141
    for unwanted in (b"Traceback", b"Broken", b"Exception", b"\r"):
        assert unwanted not in result.stderr
    assert (tmp_path / "data/manifest.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "two.txt"]


@pytest.mark.slow
def test_a_run_continues_if_its_log_is_not_read(build, two, tmp_path):
    """Training was killed because the reader of its log went away. (trailofbits/graphtage#156)"""
    data, out = build(two), tmp_path / "run"
    options = ("--steps", 3, "--eval-every", 1, "--log-every", 1, "--device", "cpu")
    words = ["pretrain", data.folder, "--out", out, *TINY, *options, "--json"]
    with subprocess.Popen(
        [*COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "parameters" in process.stderr.readline()
        process.stderr.close()
        assert json.loads(process.stdout.read())["step"] == 3
    assert process.returncode == 0
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-3"]
    assert (out / "model/model.safetensors").is_file()


# ---------------------------------------------------------------------------------------- processes


@pytest.fixture
def many_tasks(monkeypatch):
    """Makes the tasks so small that a short text gives work to every process."""
    monkeypatch.setattr(workers, "TASKS_ALONE", 0)
    monkeypatch.setattr(tokenize, "CHARS_PER_TASK", 40)
    monkeypatch.setattr(make_examples, "TOKENS_PER_TASK", 40)


@pytest.mark.usefixtures("many_tasks")
def test_processes_start_and_end_quietly_after_torch_has_run(build, two):
    """Preparing data hung, being forked after threads of torch or of tokenizers were started.

    (huggingface/datasets#2160, huggingface/tokenizers#187)
    """
    before = left_over()
    torch.ones(300, 300) @ torch.ones(300, 300)
    text = "\n".join([two] * 5)
    alone, three = (build(text, "--dupe-factor", 3, "--workers", n) for n in (1, 3))
    more_than_documents = build(two, "--dupe-factor", 3, "--workers", 8)
    assert left_over() == before
    mine, theirs = (digests(built.folder / "train") for built in (alone, three))
    assert mine == theirs
    assert digests(more_than_documents.folder / "train") == digests(
        build(two, "--dupe-factor", 3, "--workers", 1).folder / "train"
    )


def left_over():
    """Processes of ours that are still at work; multiprocessing keeps a tracker of its own."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    ]


@pytest.mark.usefixtures("many_tasks")
def test_a_process_that_is_killed_ends_the_command(
    run, tmp_path, two, *, vocabulary, letters, monkeypatch
):
    """The others waited for it for ever. (sgl-project/SpecForge#422)"""
    (tmp_path / "text.txt").write_text("\n".join([two] * 20))
    give = workers.Workers._run

    def killing(pool, function, task, waiting):
        future = give(pool, function, task, waiting)
        for process in (pool._pool._processes or {}).values() if pool._pool else ():
            process.kill()
        return future

    monkeypatch.setattr(workers.Workers, "_run", killing)
    tokenizer = ("--tokenizer", vocabulary(letters))
    out = ("--out", tmp_path / "data", "--workers", 2, "--quiet")
    result = run("build-data", tmp_path / "text.txt", *tokenizer, *out)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: a worker process died, perhaps out of memory; try fewer --workers\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


# ------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize("value", ["false", '"False"', '"no"', "0"])
def test_off_in_a_config_file_is_off(done, tmp_path, two, value):
    """bool("False") is true, so what was to be off was on.

    (LeeDoYup/FixMatch-pytorch#13, lucidrains/DALLE-pytorch#349)
    """
    (tmp_path / "two.txt").write_text(two.upper())
    (tmp_path / "c.toml").write_text(f"lowercase = {value}\n")
    out, config = tmp_path / "data", ("--config", tmp_path / "c.toml")
    done("build-data", tmp_path / "two.txt", "--out", out, "--vocab-size", 20, *config, "--quiet")
    assert json.loads((out / "manifest.json").read_text())["tokenizer"]["lowercase"] is False
    stored = json.loads((out / "tokenizer/tokenizer_config.json").read_text())
    assert stored["do_lower_case"] is False
    assert set("ABCDEFGH") <= set((out / "tokenizer/vocab.txt").read_text().split())


def test_a_value_that_is_neither_on_nor_off_is_refused(run, tmp_path, two):
    """The same for a value that says nothing. (ACEsuit/mace#429)"""
    (tmp_path / "two.txt").write_text(two)
    (tmp_path / "c.toml").write_text('lowercase = "maybe"\n')
    config = ("--config", tmp_path / "c.toml")
    result = run("build-data", tmp_path / "two.txt", "--out", tmp_path / "data", *config)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--lowercase" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_masking_rate_of_1_predicts_every_word_and_nothing_else(build, two, letters):
    """A rate at the end of its range was accepted and gave nonsense.

    (huggingface/transformers#684)
    """
    found = build(two, "--masked-lm-prob", 1, "--dupe-factor", 100)
    seen = set()
    for example in found.examples():
        words = [i for i, token in enumerate(example.tokens) if token not in ("[CLS]", "[SEP]")]
        assert example.targets == words
        seen.update(example.seen)
    assert seen == {"[MASK]", *letters}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (("--save-every", 0, "--keep-last", 2), {5}),
        (("--save-every", 2, "--keep-last", 0), {2, 4, 5}),
        (("--save-every", 9, "--keep-last", 1), {5}),
    ],
)
def test_0_means_what_the_help_says(pretrain, build, two, options, kept):
    """A period of 0 divided by zero late in a run. (huggingface/transformers#684)"""
    run = pretrain(build(two), "--steps", 5, *options, "--eval-every", 0, "--eval-examples", 0)
    assert run.checkpoints().keys() == kept


@pytest.mark.parametrize("number", [0, -1])
def test_fewer_processes_than_one_are_refused(run, tmp_path, two, number):
    """The same for a number of processes. (huggingface/transformers#684)"""
    (tmp_path / "two.txt").write_text(two)
    out = ("--out", tmp_path / "data", "--workers", number)
    result = run("build-data", tmp_path / "two.txt", *out)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: --workers {number} must be at least 1\n"
    assert not (tmp_path / "data").exists()
