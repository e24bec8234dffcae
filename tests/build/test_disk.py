"""The disk space of a build against its estimate."""

import gzip
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from bertpt.build import build, disk
from bertpt.build.disk import DiskUse, disk_use, disk_use_of_text, folder_size
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.progress import Progress

NUM_BYTES = 400_000


class Watching(Progress):
    """Records the size of the unfinished folder whenever a bar opens or closes."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder
        self.sizes = []

    def measure(self):
        self.sizes += [folder_size(work) for work in self._folder.glob(".data.tmp-*")]

    @contextmanager
    def bar(self, description, **options):
        self.measure()
        with super().bar(description, **options) as bar:
            yield bar
            self.measure()


FAST = [("en", 1, True), ("en", 5, False), ("zh", 5, True), ("zh", 1, False)]
SLOW = [("en", 5, True), ("en", 1, False), ("zh", 1, True), ("zh", 5, False)]


@pytest.mark.parametrize(
    ("language", "dupe_factor", "learns"),
    [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_the_estimate_is_within_a_factor_of_one_and_a_half(
    shared, tmp_path, language, dupe_factor, learns
):
    source = "en.novels.valid" if language == "en" else "zh.d2l"
    text = gzip.decompress((shared / f"corpora/{source}.txt.gz").read_bytes())[:NUM_BYTES]
    (tmp_path / "text.txt").write_bytes(text)
    name = "bert-base-uncased" if language == "en" else "bert-base-chinese"
    tokenizer_path = None if learns else shared / f"vocab/{name}.txt"
    config = BuildConfig(language=language, dupe_factor=dupe_factor)
    progress = Watching(tmp_path)
    build.build_data(
        [str(tmp_path / "text.txt")],
        tmp_path / "data",
        tokenizer_path=tokenizer_path,
        config=config,
        tokenizer_config=TokenizerConfig(vocab_size=4000) if learns else None,
        progress=progress,
    )
    vocab_size = 4000 if learns else len(tokenizer_path.read_text().splitlines())
    estimate = disk_use_of_text(config, len(text), vocab_size=vocab_size, learns=learns)
    assert 1 / 1.5 < estimate.peak / max(progress.sizes) < 1.5
    assert 1 / 1.5 < estimate.final / folder_size(tmp_path / "data") < 1.5


def test_googles_pairs_and_longer_ids_take_more():
    plain = disk_use(BuildConfig(), num_tokens=1e9, vocab_size=30_000)
    google = disk_use(BuildConfig(pairing="google"), num_tokens=1e9, vocab_size=30_000)
    wide = disk_use(BuildConfig(), num_tokens=1e9, vocab_size=70_000)
    assert google.final == plain.final < wide.final
    assert google.peak > plain.peak + 1e9
    # 1e9 tokens of 2 more bytes, in the documents and in the examples
    assert wide.peak > plain.peak + 4e9


@pytest.fixture
def messages(tmp_path, monkeypatch):
    """Build a folder on a disk with `free` bytes left; return the messages about disk space."""
    found = []

    class Log(Progress):
        def log(self, message):
            if "disk space" in message:
                found.append(message)

    def messages(free, content=b"a b c.\nd e f.\n\nb d f.\nc e g.\n", name="a.txt"):
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        (tmp_path / name).write_bytes(content)
        build.build_data(
            [str(tmp_path / name)],
            tmp_path / "data",
            tokenizer_path=None,
            config=BuildConfig(),
            tokenizer_config=TokenizerConfig(vocab_size=60),
            progress=Log(),
        )
        return found

    return messages


def test_the_disk_space_is_reported_before_the_build(messages, tmp_path, monkeypatch):
    monkeypatch.setattr(
        disk, "disk_use_of_text", lambda *_, **__: DiskUse(peak=2_400_000, final=900_000)
    )
    (message,) = messages(40_200_000_000)
    assert message == (
        f"reading 29 bytes; disk space needed in {tmp_path}: about 2.4 MB during the build, "
        "900.0 kB after it; 40.2 GB free"
    )


def test_too_little_disk_space_gives_a_warning_before_and_after_tokenizing(messages):
    before, after = messages(100, b"a b c.\nd e f.\n\nb d f.\nc e g.\n\n" * 500)
    assert before.startswith("warning: reading 15.0 kB; disk space needed in ")
    assert before.endswith("; 100 bytes free")
    assert after.startswith("warning: the build needs about ")
    assert after.endswith(", but only 100 bytes are free")


def test_for_a_compressed_file_the_disk_space_is_reported_per_byte(messages):
    content = gzip.compress(b"a b c.\nd e f.\n\nb d f.\nc e g.\n")
    (message,) = messages(10**9, content, "a.txt.gz")
    assert message.startswith(f"reading {len(content)} bytes; disk space needed in ")
    assert " per byte of uncompressed text: about " in message
