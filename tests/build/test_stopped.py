"""A build that is stopped, by a full disk or a signal, leaves everything as it was."""

import errno
import hashlib
import os
import re
import resource
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from bertpt import files
from bertpt.build import build, google
from bertpt.build.build import build_data
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.errors import OutputError
from bertpt.tokenizer import train

TEXT = "the cat sat .\nthe dog ran .\nit was late .\n\na cat ran .\nthe end .\nit sat .\n\n" * 3
FULL = os.strerror(errno.ENOSPC)


@pytest.fixture
def rebuild(tmp_path):
    """Builds a folder where a finished one stands."""
    (tmp_path / "text.txt").write_text(TEXT)

    def rebuild(**settings):
        return build_data(
            [str(tmp_path / "text.txt")],
            tmp_path / "data",
            tokenizer_path=None,
            config=BuildConfig(**settings),
            tokenizer_config=TokenizerConfig(vocab_size=60),
            overwrite=True,
        )

    rebuild()
    return rebuild


@pytest.fixture
def unchanged(rebuild, tmp_path):  # noqa: ARG001  which comes first
    """Checks that all is as it was."""

    def digests():
        return {
            path: path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest()
            for path in tmp_path.rglob("*")
        }

    before = digests()
    return lambda: digests() == before


class Disk:
    """Lets so many writes to files succeed and all others fail, as on a disk that is full."""

    def __init__(self, monkeypatch, left):
        self.left = left
        path_open, new_stream = Path.open, pa.ipc.new_stream

        def opened(path, mode="r", *arguments, **options):
            file = path_open(path, mode, *arguments, **options)
            return File(file, self) if "w" in mode else file

        monkeypatch.setattr(Path, "open", opened)
        monkeypatch.setattr(pa.ipc, "new_stream", lambda *a: File(new_stream(*a), self))
        temporary = tempfile.TemporaryFile
        monkeypatch.setattr(google, "TemporaryFile", lambda **o: File(temporary(**o), self))

    def write(self):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, FULL)


class File:
    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content):
        self._disk.write()
        return self._file.write(content)

    def write_batch(self, batch):
        self._disk.write()
        return self._file.write_batch(batch)


@pytest.mark.parametrize("pairing", ["balanced", "google"])
def test_whichever_write_finds_the_disk_full_it_is_one_line(
    rebuild, unchanged, tmp_path, monkeypatch, pairing
):
    expected = f"^cannot write {re.escape(str(tmp_path / 'data'))}: {FULL}$"
    writes = 10_000
    with monkeypatch.context() as patch:
        disk = Disk(patch, left=writes)
        rebuild(pairing=pairing, seed=1)
        writes -= disk.left
    assert writes > 30
    rebuild()
    assert unchanged()
    # Every stage has its first write among them: text, tokenizer, tokens, counts, shards, manifest.
    for number in sorted({*range(0, writes, 3), writes - 1}):
        with monkeypatch.context() as patch:
            Disk(patch, left=number)
            with pytest.raises(OutputError, match=expected):
                rebuild(pairing=pairing, seed=1)
        assert unchanged()


@pytest.mark.parametrize("pairing", ["balanced", "google"])
def test_a_file_that_cannot_grow_is_one_line(rebuild, unchanged, tmp_path, pairing):
    """A limit on the size of files, which the system itself enforces, stands for the disk."""
    too_large = os.strerror(errno.EFBIG)
    sizes = {path.stat().st_size for path in (tmp_path / "data").rglob("*") if path.is_file()}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 100, *(size - 1 for size in sorted(sizes))):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(OutputError) as error:
                rebuild(pairing=pairing)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert str(error.value) == f"cannot write {tmp_path / 'data'}: {too_large}"
        assert unchanged()


PHASES = {
    "counting words": (train, "count_words"),
    "learning": (train, "_train"),
    "tokenizing": (build, "tokenize"),
    "counting tokens": (build, "split_documents"),
    "pairing": (build, "make_rows"),
    "checksums": (files, "sha256"),
    "figures": (build, "derived_counts"),
    "writing": (files, "_flush"),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("stopping", [KeyboardInterrupt, SystemExit])
def test_a_signal_in_any_phase_leaves_everything_as_it_was(
    rebuild, unchanged, monkeypatch, phase, stopping
):
    def stop(*_, **__):
        raise stopping

    monkeypatch.setattr(*PHASES[phase], stop)
    with pytest.raises(stopping):
        rebuild()
    assert unchanged()


def test_learning_ends_when_it_is_told_to(monkeypatch):
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
