"""`bertpt pretrain --verify-resume`."""

import json
import re

import pytest
from helpers import TINY

from bertpt.training import checkpoint


def test_verify_resume_reports_agreement_and_writes_nothing(done, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verify = ("pretrain", data, *TINY, "--verify-resume", 4, "--quiet")
    result = done(*verify)
    assert result.stdout == (
        "4 steps, saved and loaded after 2: losses and weights agree bit for bit\n"
    )
    assert json.loads(done(*verify, "--json").stdout)["identical"] is True
    assert list(tmp_path.iterdir()) == []


def test_verify_resume_fails_with_the_differences(run, data, monkeypatch):
    monkeypatch.setattr(checkpoint, "load_optimizer_state", lambda *_: None)
    result = run("pretrain", data, *TINY, "--verify-resume", 4, "--quiet")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"4 steps, saved and loaded after 2: losses differ by at most [\d.e-]+, weights by at most "
        r"[\d.e-]+; the first at step 4\n",
        result.stdout,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--resume", "--verify-resume", 4), "--verify-resume and --resume exclude each other"),
        (("--verify-resume", 1), "--verify-resume 1 must be at least 2"),
        ((), "Missing option '--out'."),
    ],
)
def test_verify_resume_and_out_that_do_not_fit_give_one_line(run, data, options, message):
    result = run("pretrain", data, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"error: {message}"


def test_verify_resume_is_refused_in_several_processes(run, data, monkeypatch):
    ours = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    result = run("pretrain", data, *TINY, "--verify-resume", 4)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: --verify-resume is for one process; start it without torchrun\n"
