"""Too little memory or disk space, no GPU, no standard input."""

import re
import resource
import subprocess
import sys

import pytest


def test_cuda_is_refused_where_there_is_none(wrong):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    line = "error: --device cuda is not available here; use cpu or auto"
    assert wrong("pretrain data --out out --device cuda", 2) == line
    assert wrong("eval-mlm run data --device cuda", 2) == line
    assert wrong("fill-mask run 'a [MASK].' --device cuda", 2) == line
    assert wrong("encode run a --device cuda", 2) == line


@pytest.mark.parametrize(
    ("command", "function", "advice"),
    [
        (
            "pretrain {data} --out {out}",
            "bertpt.training.pretrain.pretrain",
            "; try a smaller --micro-batch-size, or a smaller model",
        ),
        (
            "eval-mlm {trained} {data}",
            "bertpt.evaluation.mlm.eval_mlm",
            "; try a smaller --batch-size",
        ),
        (
            "build-data {corpus} --out {out}",
            "bertpt.build.build.build_data",
            "; try fewer --workers",
        ),
        ("inspect {data}", "bertpt.build.describe.describe", ""),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        MemoryError(),
    ],
    ids=["torch", "python"],
)
def test_out_of_memory_is_one_line_with_advice_for_the_command(  # noqa: PLR0917
    run, data, trained, corpus, tmp_path, monkeypatch, command, function, advice, error
):
    def allocate(*_, **__):
        raise error

    monkeypatch.setattr(function, allocate)
    words = command.format(data=data, trained=trained, corpus=corpus, out=tmp_path / "out").split()
    result = run(*words)
    assert result.stderr.splitlines()[-1] == f"error: out of memory{advice}"
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_bug_keeps_its_traceback(run, data, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("bertpt.training.pretrain.pretrain", fail)
    with pytest.raises(RuntimeError, match="shapes differ"):
        run("pretrain", data, "--out", tmp_path / "run")


@pytest.mark.slow
def test_a_full_disk_during_a_save_is_one_line_and_leaves_no_partial_files(data, tmp_path):
    """Simulates a full disk with a limit on the size of files."""
    command = [sys.executable, "-m", "bertpt_cli", "pretrain", str(data), "--out", "run"]
    result = subprocess.run(
        [*command, "--model", "tiny", "--steps", "2", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    assert result.returncode == 1
    assert re.fullmatch(r"error: cannot write \S+: .*too large.*\n", result.stderr), result.stderr
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert not (tmp_path / "run" / "model").exists()


def test_a_closed_standard_input_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    from bertpt.corpus.corpus import Corpus
    from bertpt.errors import InputError

    with pytest.raises(InputError, match="standard input is closed"):
        list(Corpus(["-"]))
