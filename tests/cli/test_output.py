"""What commands write to stdout and stderr, and what happens when those are closed."""

import json
import os
import shlex
import shutil
import signal
import subprocess

import pytest
from helpers import COMMAND, TINY, read_json, start

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


# ---------------------------------------------------------------------------- terminal safety

CONTROLS = "".join(map(chr, (*range(0x20), 0x7F, *range(0x80, 0xA0))))


NAME = "a\x1b[31m\x07\t\x9b31m\x7f"


@pytest.fixture
def inputs(tmp_path, monkeypatch, corpus, data, trained):
    """The current folder, with inputs for every command."""
    monkeypatch.chdir(tmp_path)
    for target, source in (("corpus.txt", corpus), ("data", data), ("run", trained)):
        (tmp_path / target).symlink_to(source)
    (tmp_path / "rows.jsonl").write_text('{"text": "One."}\n')
    (tmp_path / "odd.jsonl").write_text('{"\\u001b": "\x9b\x1b"}\n')
    (tmp_path / "folder").mkdir()
    return tmp_path


def assert_safe(result):
    for text in (result.stdout, result.stderr):
        found = {control for control in CONTROLS if control in text}
        assert found <= {"\n"}, result


@pytest.mark.parametrize(
    "command",
    [
        "build-data NAME --out out",
        "build-data corpus.txt --out NAME/NAME",
        "build-data corpus.txt --out out --tokenizer NAME",
        "build-data corpus.txt --out out --language NAME",
        "build-data rows.jsonl --out out --text-field NAME",
        "build-data odd.jsonl --out out",
        "build-data folder --out out",
        "train-tokenizer NAME --out out",
        "inspect NAME",
        "pretrain NAME --out out",
        "pretrain data --out out --init-from NAME",
        "pretrain data --out NAME --resume",
        "eval-mlm NAME data",
        "fill-mask run NAME",
        "fill-mask run 'the dog' --mask-word NAME",
        "encode run NAME --out NAME",
        "build-data corpus.txt --NAME",
        "NAME",
    ],
)
def test_no_control_character_of_an_argument_reaches_the_terminal(run, inputs, command):
    (inputs / "folder" / f"{NAME}.md").write_text("One.\n")
    result = run(*(word.replace("NAME", NAME) for word in shlex.split(command)))
    assert_safe(result)
    assert "\\x1b" in result.stderr


@pytest.mark.parametrize("is_json", [False, True])
def test_no_control_character_of_a_vocabulary_reaches_the_terminal(
    done, tmp_path, trained, is_json
):
    """A model folder may come from anyone; only its tokens differ here."""
    model = shutil.copytree(trained / "model", tmp_path / "model")
    tokens = (model / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tokens[5:] = [f"{token}\x1b\x9b\x7f" for token in tokens[5:]]
    (model / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    (model / "tokenizer.json").unlink()
    options = ["--json"] if is_json else []
    result = done("fill-mask", model, "[MASK].", "--quiet", *options)
    assert_safe(result)
    assert ("\\u001b\\u009b\\u007f" if is_json else "\\x1b\\x9b\\x7f") in result.stdout


def test_warnings_of_a_manifest_are_escaped(done, tmp_path, data):
    folder = shutil.copytree(data, tmp_path / "data")
    manifest = read_json(folder / "manifest.json")
    manifest["warnings"] = ["a\x1b[31mb"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for options in ([], ["--examples", 2], ["--json"]):
        assert_safe(done("inspect", folder, *options))


def test_a_name_that_the_locale_cannot_spell_is_one_line(two, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    given = ("--tokenizer", two / "vocab.txt", "--valid-fraction", 0, "--quiet")
    with start("build-data", two / "two.txt", *given, "--out", two / "ö") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith(f"error: the name {two}/")
    assert err.endswith(" is not valid UTF-8; rename it, or set PYTHONUTF8=1\n")
    assert sorted(path.name for path in two.iterdir()) == ["two.txt", "vocab.txt"]
