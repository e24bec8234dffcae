"""A lock belongs to one process, and is free when that process ends, however it ends."""

import errno
import fcntl
import subprocess
import sys

import pytest

from bertpt.errors import OutputError
from bertpt.locks import locked

HOLDS = """
import sys
from pathlib import Path
from bertpt.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield process


def test_a_lock_that_another_process_holds_is_refused_with_its_number(tmp_path, holder):
    lock = locked(tmp_path / ".lock")
    with (
        pytest.raises(OutputError, match=rf"{tmp_path} is being .* process {holder.pid} on "),
        lock,
    ):
        pass
    holder.communicate()
    with locked(tmp_path / ".lock"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path / ".lock"):
        pass


def test_a_file_system_without_locks_works(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    with locked(tmp_path / ".lock"):
        pass
