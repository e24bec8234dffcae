"""What commands write to stdout and stderr, and what happens when those are closed."""

import os
import shlex
import signal
import subprocess

import pytest
from helpers import COMMAND, TINY, start

from bertpt import progress


@pytest.fixture(params=["train-tokenizer", "build-data", "pretrain", "eval-mlm"])
def stage(request, tmp_path, corpus):
    """Returns a call of each command that reports its progress."""
    out = ("--out", tmp_path / "o")
    data, trained = request.getfixturevalue("data"), request.getfixturevalue("trained")
    return {
        "train-tokenizer": ("train-tokenizer", corpus, *out, "--vocab-size", 99),
        "build-data": ("build-data", corpus, *out, "--vocab-size", 99),
        "pretrain": ("pretrain", data, *out, *TINY, "--steps", 3, "--eval-every", 1),
        "eval-mlm": ("eval-mlm", trained, data, "--batch-size", 1),
    }[request.param]


def test_quiet_leaves_stderr_empty(done, stage):
    result = done(*stage, "--quiet")
    assert result.stderr == ""
    assert result.stdout != ""


def test_a_redirected_log_has_complete_lines_only(done, stage, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    result = done(*stage)
    assert result.stderr_bytes.endswith(b"\n")
    for control in (b"\r", b"\x1b", b"\n\n"):
        assert control not in result.stderr_bytes


def run_with_stdout_closed(*arguments):
    """Runs a command whose reader has gone before it prints, as in `bertpt ... | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with start(*arguments, stdout=writer) as process:
            _, stderr = process.communicate(timeout=60)
    finally:
        os.close(writer)
    return process.returncode, stderr


def test_a_closed_stdout_is_not_an_error(data):
    status, stderr = run_with_stdout_closed("inspect", data)
    assert stderr == ""
    assert status in (0, 128 + signal.SIGPIPE)


@pytest.mark.slow
def test_a_run_finishes_even_if_stdout_is_closed(data, tmp_path):
    out = tmp_path / "run"
    _, stderr = run_with_stdout_closed(
        "pretrain", data, "--out", out, *TINY, "--steps", 2, "--quiet"
    )
    assert stderr == ""
    assert (out / "model" / "model.safetensors").is_file()
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-2"]


@pytest.mark.slow
def test_a_closed_standard_error_changes_nothing_else(data, tmp_path):
    pretrain = ("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    shell = f"{shlex.join([*COMMAND, *map(str, pretrain)])} 2>&-"
    result = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 0
    assert "after 1 step: " in result.stdout


def test_the_first_line_comes_through_a_pipe_to_head(data):
    shell = f"{shlex.join([*COMMAND, 'inspect', str(data)])} | head -1"
    result = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["train", "valid"]
    assert result.stderr == ""
