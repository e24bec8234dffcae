"""Commands that are interrupted or killed."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from helpers import SPECIAL_TOKENS, TINY, start

from bertpt.training import pretrain


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_run_with_its_status_and_no_traceback(data, tmp_path, number, status):
    endless = ("--steps", 1_000_000, "--eval-every", 1)
    run = ("pretrain", data, "--out", tmp_path / "run", *TINY, *endless)
    # Under nohup, the tests and what they start would ignore SIGHUP.
    with start(*run, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as process:
        for line in process.stderr:
            if line.startswith("step 1: "):
                break
        process.send_signal(number)
        try:
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == status
    assert stdout == ""
    assert "Traceback" not in stderr
    assert not [path for path in tmp_path.rglob(".*") if ".tmp-" in path.name]


SIGNALLED_IN_AN_IMPORT = """
import os
import signal
import sys
signal.signal({number}, signal.SIG_DFL)  # nohup ignores SIGHUP
from bertpt_cli.main import app
class Swallowing:
    def find_spec(self, name, *_):
        if name == "torch":
            try:
                os.kill(os.getpid(), {number})
                for _ in range(1000):
                    pass
            except BaseException:
                pass
sys.meta_path.insert(0, Swallowing())
app()
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_no_import_of_pretrain_swallows_a_signal(data, tmp_path, number, status):
    arguments = ("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    script = SIGNALLED_IN_AN_IMPORT.format(number=int(number))
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (status, "", "")


def test_a_save_requested_before_training_is_ignored(done, data, tmp_path, monkeypatch):
    dataset = pretrain.Dataset
    sent = []

    def asked(*arguments, **named):
        os.kill(os.getpid(), signal.SIGUSR1)
        sent.append(signal.SIGUSR1)
        return dataset(*arguments, **named)

    def end(*_):
        raise AssertionError("the signal reached the handler")

    monkeypatch.setattr(pretrain, "Dataset", asked)
    before = signal.signal(signal.SIGUSR1, end)
    try:
        done("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sent


SLOW_SECOND_SAVE = """
import time
from bertpt.training.checkpoint import Snapshot
from bertpt_cli.main import app
write = Snapshot.write_model
def slowly(snapshot, folder, card):
    write(snapshot, folder, card)
    if "step-2" in folder.name:
        print("saving", flush=True)
        time.sleep(600)
Snapshot.write_model = slowly
app()
"""


def test_a_second_ctrl_c_quits_at_once_during_a_save(done, data, tmp_path):
    run = tmp_path / "run"
    often = ("--steps", 3, "--save-every", 1, "--keep-last", 0, "--loader-workers", 1)
    command = [sys.executable, "-c", SLOW_SECOND_SAVE, "pretrain", data, "--out", run, *TINY]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*map(str, (*command, *often))], **pipes) as process:
        assert process.stdout.readline() == "saving\n"
        others = psutil.Process(process.pid).children(recursive=True)
        assert others
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # the first one waits for the save
            process.wait(timeout=1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        stderr = process.stderr.read()
    assert "quit without finishing the save; continue with --resume" in stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive
    resumed = done("pretrain", data, "--out", run, "--resume", "--loader-workers", 0)
    assert "which a killed process left unfinished" in resumed.stderr
    assert f"resuming {run} after step 1\n" in resumed.stderr
    assert not [path for path in run.rglob(".*") if ".tmp-" in path.name]


@pytest.fixture
def building(tmp_path):
    """Starts a build-data that waits for more text; yields it and its worker processes."""
    words = [f"{a}{b}" for a in "bdfgklmn" for b in ("a", "et", "ing", "or", "un")]
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]))
    text = "".join(f"{' '.join(words[i:])}.\n\n" for i in range(40)) * 200  # 0.7 MB
    options = ("--tokenizer", tmp_path / "vocab.txt", "--workers", 2, "--out", tmp_path / "data")
    with start("build-data", "-", *options, stdin=subprocess.PIPE, start_new_session=True) as main:
        # More than the pipe and the first tasks hold, so writing it all means that the workers
        # have started.
        for _ in range(8):
            main.stdin.write(text)
        main.stdin.flush()
        others = psutil.Process(main.pid).children(recursive=True)
        assert others, "no worker process has started"
        assert len(list(tmp_path.iterdir())) == 2
        yield main, others


@pytest.mark.parametrize(
    ("number", "status", "send"),
    [
        (signal.SIGTERM, 143, os.kill),
        pytest.param(signal.SIGTERM, 143, os.killpg, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, os.kill, marks=pytest.mark.slow),
        (signal.SIGINT, 130, os.killpg),
    ],
)
def test_a_signal_removes_an_unfinished_data_folder(building, tmp_path, number, status, send):
    process, others = building
    send(process.pid, number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == status
    assert stdout == ""
    assert "Traceback" not in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive


def test_a_killed_build_leaves_no_process_and_the_next_build_removes_its_files(
    building, done, corpus, tmp_path
):
    process, others = building
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive
    assert len(list(tmp_path.iterdir())) == 2
    done("build-data", corpus, "--vocab-size", 99, "--out", tmp_path / "data", "--quiet")
    assert {path.name for path in tmp_path.iterdir()} == {"vocab.txt", "data"}
