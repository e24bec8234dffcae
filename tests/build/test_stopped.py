"""A build stopped by a full disk or a signal leaves everything as it was."""

import errno
import hashlib
import os
import resource
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from bertpt import files
from bertpt.build import google
from bertpt.build.build import build_data
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.errors import OutputError
from bertpt.progress import Progress
from bertpt.tokenizer import train

TEXT = "the cat sat .\nthe dog ran .\nit was late .\n\na cat ran .\nthe end .\nit sat .\n\n" * 3
FULL = os.strerror(errno.ENOSPC)


@pytest.fixture
def rebuild(tmp_path):
    """Replace a complete folder."""
    (tmp_path / "text.txt").write_text(TEXT)

    def rebuild(progress=None, **settings):
        return build_data(
            [str(tmp_path / "text.txt")],
            tmp_path / "data",
            tokenizer_path=None,
            config=BuildConfig(**settings),
            tokenizer_config=TokenizerConfig(vocab_size=60),
            overwrite=True,
            progress=progress,
        )

    rebuild()
    return rebuild


@pytest.fixture
def unchanged(rebuild, tmp_path):  # noqa: ARG001  which comes first
    """Compare all files with those after the first build."""

    def digests():
        return {
            path: path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest()
            for path in tmp_path.rglob("*")
        }

    before = digests()
    return lambda: digests() == before


class Disk:
    """Lets `left` writes succeed, and fails all others as a full disk does.

    Attributes:
        files: the final name of the file of each successful write.
    """

    def __init__(self, monkeypatch, left):
        self.left = left
        self.files = []
        path_open, new_stream = Path.open, pa.ipc.new_stream

        def opened(path, mode="r", *arguments, **options):
            file = path_open(path, mode, *arguments, **options)
            name = path.name.removeprefix(".").split(".tmp-")[0]
            return File(file, self, name) if "w" in mode else file

        monkeypatch.setattr(Path, "open", opened)
        monkeypatch.setattr(
            pa.ipc, "new_stream", lambda path, schema: File(new_stream(path, schema), self, "shard")
        )
        temporary = tempfile.TemporaryFile
        monkeypatch.setattr(
            google, "TemporaryFile", lambda **o: File(temporary(**o), self, "examples")
        )

    def write(self, name):
        if len(self.files) >= self.left:
            raise OSError(errno.ENOSPC, FULL)
        self.files.append(name)


class File:
    def __init__(self, file, disk, name):
        self._file, self._disk, self._name = file, disk, name

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content):
        self._disk.write(self._name)
        return self._file.write(content)

    def write_batch(self, batch):
        self._disk.write(self._name)
        return self._file.write_batch(batch)


@pytest.fixture
def writes(rebuild, monkeypatch):
    """The file of each write in a build."""

    def writes(**settings):
        with monkeypatch.context() as patch:
            disk = Disk(patch, left=10_000)
            rebuild(**settings)
        rebuild()
        return disk.files

    return writes


@pytest.fixture
def fails(rebuild, unchanged, tmp_path, monkeypatch):
    """Check that a build whose write number N fails raises one line and changes nothing."""

    def fails(number, **settings):
        with monkeypatch.context() as patch:
            Disk(patch, left=number)
            with pytest.raises(OutputError) as error:
                rebuild(**settings)
        assert str(error.value) == f"cannot write {tmp_path / 'data'}: {FULL}"
        assert unchanged()

    return fails


def test_a_full_disk_at_the_first_write_of_any_file_changes_nothing(writes, fails):
    found = writes(pairing="google", seed=1)
    assert {"sentences.txt", "tokenizer.json", "tokens", "token_counts.npy"} < set(found)
    assert {"examples", "shard", "state.json", "manifest.json"} < set(found)
    for name in dict.fromkeys(found):
        fails(found.index(name), pairing="google", seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["balanced", "google"])
def test_a_full_disk_at_any_write_changes_nothing(writes, fails, pairing):
    for number in range(len(writes(pairing=pairing, seed=1))):
        fails(number, pairing=pairing, seed=1)


@pytest.mark.parametrize("pairing", ["balanced", "google"])
def test_a_file_size_limit_changes_nothing(rebuild, unchanged, tmp_path, pairing):
    """The system enforces this limit itself, unlike the full disk above."""
    too_large = os.strerror(errno.EFBIG)
    sizes = {path.stat().st_size for path in (tmp_path / "data").rglob("*") if path.is_file()}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 100, max(sizes) - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(OutputError) as error:
                rebuild(pairing=pairing)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert str(error.value) == f"cannot write {tmp_path / 'data'}: {too_large}"
        assert unchanged()


class Stopping(Progress):
    """Raises an exception when a bar is opened."""

    def __init__(self, description, unit, exception):
        super().__init__()
        self._stop_at = description, unit
        self._exception = exception

    def bar(self, description, *, unit, **options):
        if (description, unit) == self._stop_at:
            raise self._exception
        return super().bar(description, unit=unit, **options)


PHASES = [
    ("counting", "word"),
    ("learning", "word"),
    ("tokenizing", "sentence"),
    ("counting", "token"),
    ("pairing train", "document"),
    ("checksums of valid", "B"),
]


@pytest.mark.parametrize(
    ("phase", "exception"),
    [(phase, KeyboardInterrupt) for phase in PHASES] + [(PHASES[-2], SystemExit)],
)
def test_a_signal_in_any_phase_changes_nothing(rebuild, unchanged, phase, exception):
    with pytest.raises(exception):
        rebuild(Stopping(*phase, exception))
    assert unchanged()


def test_a_signal_while_files_are_synced_changes_nothing(rebuild, unchanged, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        rebuild()
    assert unchanged()


def test_learning_ends_when_interrupted(monkeypatch):
    """Though the library, once it is taking words in, would not notice."""
    taken = []

    def words(_):
        for number in range(10**9):
            taken.append(number)
            yield "word " * 1000, 1000

    def interrupted(*_):
        while len(taken) < 3:
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_repeated", words)
    monkeypatch.setattr(train, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train.learn(["a word"], TokenizerConfig(vocab_size=60))
    assert len(taken) < 10**6
