import os
import stat
from pathlib import Path

import pytest

from bertpt import files
from bertpt.errors import InputError, OutputError


def test_a_new_folder_appears_when_it_is_complete(tmp_path):
    out = tmp_path / "deep" / "out"
    with files.new_folder(out) as work:
        (work / "a").write_text("a")
        assert not out.exists()
    assert (out / "a").read_text() == "a"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_failure_leaves_nothing_and_the_old_folder_as_it_was(tmp_path):
    out = tmp_path / "out"
    with files.new_folder(out) as work:
        (work / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt), files.new_folder(out) as work:  # noqa: PT012
        (work / "a").write_text("new")
        raise KeyboardInterrupt
    assert (out / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_old_folder_is_replaced_whole(tmp_path):
    out = tmp_path / "out"
    for name in ("a", "b"):
        with files.new_folder(out) as work:
            (work / name).touch()
    assert [path.name for path in out.iterdir()] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_new_folder_can_be_read_by_whom_the_umask_lets(tmp_path):
    old = os.umask(0o027)
    try:
        with files.new_folder(tmp_path / "out"):
            pass
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750


def test_a_place_that_cannot_be_written_is_named(tmp_path):
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
    files.refuse_existing(ours, overwrite=False, is_ours=lambda _: False)  # empty
    (ours / "a").touch()
    with pytest.raises(OutputError, match="--overwrite to replace"):
        files.refuse_existing(ours, overwrite=False, is_ours=lambda _: True)
    files.refuse_existing(ours, overwrite=True, is_ours=lambda _: True)
    with pytest.raises(OutputError, match="leaves it alone"):
        files.refuse_existing(ours, overwrite=True, is_ours=lambda _: False)


def test_a_file_is_replaced_in_one_step_or_not_at_all(tmp_path, monkeypatch):
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
def test_json_that_is_no_object_is_named(tmp_path, content):
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
            files.refuse_existing(place, overwrite=True, is_ours=lambda _: True)


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")
    with files.new_folder(tmp_path / "out") as work:
        (work / "a").touch()
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk" / "out" / "a").exists()


def test_a_name_that_is_no_utf8_can_be_printed():
    assert files.printable(os.fsdecode(b"caf\xe9.txt")) == "caf\ufffd.txt"
    assert files.printable(Path("caf\u00e9")) == "caf\u00e9"
