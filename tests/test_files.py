import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bertpt import files, text
from bertpt.errors import InputError, OutputError
from bertpt.outputs import refuse_existing


def test_a_new_folder_appears_when_it_is_complete(tmp_path):
    out = tmp_path / "deep" / "out"
    with files.new_folder(out) as work:
        (work / "a").write_text("a")
        assert not out.exists()
    assert (out / "a").read_text() == "a"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_failure_leaves_the_old_folder_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    with files.new_folder(out) as work:
        (work / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt), files.new_folder(out) as work:  # noqa: PT012
        (work / "a").write_text("new")
        raise KeyboardInterrupt
    assert (out / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_old_folder_is_replaced_completely(tmp_path):
    out = tmp_path / "out"
    for name in ("a", "b"):
        with files.new_folder(out) as work:
            (work / name).touch()
    assert [path.name for path in out.iterdir()] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_new_folder_follows_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        with files.new_folder(tmp_path / "out"):
            pass
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    place = files.new_folder(tmp_path / "file" / "out")
    with pytest.raises(OutputError, match=r"cannot write .*file/out"), place:
        pass


def test_an_error_while_filling_names_the_output_and_not_the_temporary(tmp_path):
    with pytest.raises(OutputError) as error, files.new_folder(tmp_path / "out") as work:
        (work / "missing" / "a").write_text("a")
    assert str(error.value) == f"cannot write {tmp_path / 'out'}: No such file or directory"


def test_existing_outputs_are_refused_unless_ours_is_to_be_replaced(tmp_path):
    ours = tmp_path / "ours"
    ours.mkdir()
    refuse_existing(ours, overwrite=False, is_ours=lambda _: False)  # empty
    (ours / "a").touch()
    with pytest.raises(OutputError, match="`overwrite` to replace"):
        refuse_existing(ours, overwrite=False, is_ours=lambda _: True)
    refuse_existing(ours, overwrite=True, is_ours=lambda _: True)
    with pytest.raises(OutputError, match="not made by this command"):
        refuse_existing(ours, overwrite=True, is_ours=lambda _: False)


def test_a_file_is_replaced_atomically(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_json(path, {"a": "é"})
    assert path.read_bytes() == '{\n  "a": "é"\n}\n'.encode()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "new")
    assert files.read_json(path) == {"a": "é"}
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [None, b"", b"[1]", b"{", b"\xff"])
def test_json_that_is_not_an_object_is_named(tmp_path, content):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json"):
        files.read_json(path)


@pytest.mark.parametrize("error", [OSError(16, "Device or resource busy"), KeyboardInterrupt()])
def test_a_replacement_that_fails_puts_the_old_folder_back(tmp_path, monkeypatch, error):
    out = tmp_path / "out"
    with files.new_folder(out) as work:
        (work / "a").write_text("old")
    rename = Path.rename

    def fails(self, target):
        if self.name.startswith(".out.tmp-"):
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises((OutputError, KeyboardInterrupt)), files.new_folder(out) as work:
        (work / "a").write_text("new")
    assert (out / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_current_folder_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in (Path(), tmp_path, Path("/")):
        with pytest.raises(OutputError, match="cannot be replaced as a whole"):
            refuse_existing(place, overwrite=True, is_ours=lambda _: True)


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")
    with files.new_folder(tmp_path / "out") as work:
        (work / "a").touch()
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk" / "out" / "a").exists()


def test_a_name_that_is_not_utf8_can_be_printed():
    assert text.printable(os.fsdecode(b"caf\xe9.txt")) == "caf\ufffd.txt"
    assert text.printable(Path("caf\u00e9")) == "caf\u00e9"


# --------------------------------------------------------------------- what a killed process leaves


def ours(name):
    return name in ("model", "metrics.jsonl")


def test_only_the_remains_of_a_killed_process_are_removed(tmp_path):
    for name in (".model.tmp-0123abcd", ".model.old-0123abcd", ".letters.tmp-0123abcd", "model"):
        (tmp_path / name).mkdir()
    for name in (".metrics.jsonl.tmp-4711", ".model.tmp", ".model.tmp-mine", "metrics.jsonl"):
        (tmp_path / name).write_text("a")
    found = files.clean_up(tmp_path, ours)
    left = {".letters.tmp-0123abcd", "model", ".model.tmp", ".model.tmp-mine", "metrics.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == left
    assert len(found) == 3


def test_every_temporary_of_a_process_killed_while_writing_is_removed(tmp_path):
    """The names are those that files.py itself gives."""
    script = """
import os, sys
from pathlib import Path
from bertpt import files
place = Path(sys.argv[1])
with files.new_folder(place / "model"), files.new_file(place / "metrics.jsonl") as temporary:
    temporary.write_text("a")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    assert len(files.clean_up(tmp_path, ours)) == 2
    assert list(tmp_path.iterdir()) == []


WAITING = """
import sys
from pathlib import Path
from bertpt import files
with files.new_folder(Path(sys.argv[1])) as work:
    (work / "a").write_text("a")
    print(work.name, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_new_folder_removes_the_remains_of_killed_processes_only(tmp_path, is_killed):
    out = tmp_path / "data"
    command = [sys.executable, "-c", WAITING, out]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        name = other.stdout.readline().strip()
        if is_killed:
            other.kill()
            other.wait()
        (tmp_path / ".other.tmp-0123abcd").mkdir()
        with files.new_folder(out):
            assert (tmp_path / name).exists() != is_killed
            assert (tmp_path / ".other.tmp-0123abcd").exists()
        if not is_killed:
            other.communicate("")
            assert (out / "a").read_text() == "a"
    assert {path.name for path in tmp_path.iterdir()} == {"data", ".other.tmp-0123abcd"}


def refuse(out):
    with pytest.raises(OutputError, match="exists; give another `out`, or `overwrite`"):
        refuse_existing(out, overwrite=False, is_ours=lambda _: True)


@pytest.mark.parametrize(
    "come_by",
    [lambda out: files.clean_up(out.parent, ours), refuse],
    ids=["cleaned up", "asked whether it may be replaced"],
)
def test_a_folder_comes_back_when_a_kill_hit_between_the_two_renames(tmp_path, come_by):
    script = """
import os, sys
from pathlib import Path
from bertpt import files
out = Path(sys.argv[1]) / "model"
with files.new_folder(out) as work:
    (work / "a").write_text("old")
rename = Path.rename
def killed(self, target):
    if self.name.startswith(".model.tmp-"):
        os.kill(os.getpid(), 9)
    return rename(self, target)
Path.rename = killed
with files.new_folder(out) as work:
    (work / "a").write_text("new")
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert not (tmp_path / "model").exists()
    come_by(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "a").read_text() == "old"


def test_a_folder_is_removed_completely(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").touch()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # as if killed there
        files.remove_folder(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    files.clean_up(tmp_path, ours)
    assert list(tmp_path.iterdir()) == []


def test_files_and_the_names_in_a_folder_are_flushed_before_and_after_the_rename(
    tmp_path, monkeypatch
):
    """What a crash of the machine may undo is what was not flushed: fsync(2)."""
    events = []
    fsync, rename, replace = os.fsync, Path.rename, Path.replace

    def flushed(descriptor):
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def renamed(self, target):
        events.append("rename")
        return rename(self, target)

    def replaced(self, target):
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(Path, "replace", replaced)
    with files.new_folder(tmp_path / "out") as work:
        (work / "a").touch()
    assert events == ["a", work.name, "rename", tmp_path.name]
    events.clear()
    files.write_text(tmp_path / "b", "b")
    assert events == [f".b.tmp-{os.getpid()}", "rename", tmp_path.name]


# ------------------------------------------------------------------------------- one process a time


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_folder_that_was_set_aside_comes_back_unless_dropped(tmp_path, is_replaced, is_dropped):
    path = tmp_path / "a"
    path.mkdir()
    (path / "old").touch()
    with files.set_aside(path) as drop:
        assert not path.exists()
        if is_replaced:
            path.mkdir()
            (path / "new").touch()
        if is_dropped:
            drop()
    found = [each.name for each in path.iterdir()] if path.exists() else []
    assert found == (["old"] if not is_dropped else ["new"] if is_replaced else [])
    assert list(tmp_path.iterdir()) == ([path] if found else [])


def test_a_dropped_folder_that_cannot_be_removed_does_not_come_back(tmp_path, monkeypatch):
    """As on NFS, where a file that another process reads stays."""
    path = tmp_path / "a"
    path.mkdir()
    (path / "old").touch()
    with files.set_aside(path) as drop:
        path.mkdir()
        (path / "new").touch()
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            drop()
    assert [each.name for each in path.iterdir()] == ["new"]


def test_a_folder_that_cannot_come_back_is_kept_for_the_next_run(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.mkdir()
    (path / "old").touch()

    def fails(_):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(files, "remove_folder", fails)
        with pytest.raises(PermissionError), files.set_aside(path):
            path.mkdir()
    path.rmdir()
    files.clean_up(tmp_path, "a".__eq__)
    assert [each.name for each in path.iterdir()] == ["old"]
