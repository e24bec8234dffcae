"""What a build takes on the disk against what is foretold."""

import gzip
import shutil
from types import SimpleNamespace

import pytest

from bertpt import files
from bertpt.build import build, disk
from bertpt.build.disk import DiskUse, disk_use, disk_use_of_text
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.progress import Progress

NUM_BYTES = 400_000


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Builds a folder; gives the most bytes that it took on the way, and those in the end.

    It is looked at when the tokens are written and the spooled text is still there, and when all
    shards are written and the tokens are still there.
    """
    sizes = []

    def watch(owner, name):
        original = getattr(owner, name)

        def watching(*arguments, **named):
            sizes.extend(files.size(work) for work in tmp_path.glob(".data.tmp-*"))
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, watching)

    watch(build, "split_documents")
    watch(build._TextSpool, "remove")
    watch(build, "derived_counts")

    def measured(text, tokenizer_path, config):
        (tmp_path / "text.txt").write_bytes(text)
        build.build_data(
            [str(tmp_path / "text.txt")],
            tmp_path / "data",
            tokenizer_path=tokenizer_path,
            config=config,
            tokenizer_config=None if tokenizer_path else TokenizerConfig(vocab_size=4000),
        )
        return max(sizes), files.size(tmp_path / "data")

    return measured


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("dupe_factor", [1, 5])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_forecast_is_within_half_as_much_again(shared, measured, language, dupe_factor, learns):
    source = "en.novels.valid" if language == "en" else "zh.d2l"
    text = gzip.decompress((shared / f"corpora/{source}.txt.gz").read_bytes())[:NUM_BYTES]
    name = "bert-base-uncased" if language == "en" else "bert-base-chinese"
    tokenizer_path = None if learns else shared / f"vocab/{name}.txt"
    config = BuildConfig(language=language, dupe_factor=dupe_factor)
    peak, final = measured(text, tokenizer_path, config)
    vocab_size = 4000 if learns else len(tokenizer_path.read_text().splitlines())
    told = disk_use_of_text(config, len(text), vocab_size=vocab_size, learns=learns)
    assert 1 / 1.5 < told.peak / peak < 1.5
    assert 1 / 1.5 < told.final / final < 1.5


def test_googles_pairs_and_longer_ids_take_more():
    plain = disk_use(BuildConfig(), num_tokens=1e9, vocab_size=30_000)
    google = disk_use(BuildConfig(pairing="google"), num_tokens=1e9, vocab_size=30_000)
    wide = disk_use(BuildConfig(), num_tokens=1e9, vocab_size=70_000)
    assert google.final == plain.final < wide.final
    assert google.peak > plain.peak + 1e9
    # 1e9 tokens of 2 more bytes, in the examples and beside them
    assert wide.peak > plain.peak + 4e9


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds a folder on a disk with so much left; gives the log lines."""
    told = []

    class Log(Progress):
        def log(self, message):
            if "disk" in message:
                told.append(message)

    def built(free, content=b"a b c.\nd e f.\n\nb d f.\nc e g.\n", name="a.txt"):
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
        return told

    return built


def test_the_disk_needed_is_told_before_the_work(built, tmp_path, monkeypatch):
    monkeypatch.setattr(
        disk, "disk_use_of_text", lambda *_, **__: DiskUse(peak=2_400_000, final=900_000)
    )
    assert built(40_200_000_000)[0] == (
        f"reading 29 bytes; about 2.4 MB of disk are needed in {tmp_path} while it works, 900.0 kB "
        "in the end; 40.2 GB are free"
    )


def test_too_little_disk_is_warned_of_before_and_after_tokenizing(built):
    told = built(100, b"a b c.\nd e f.\n\nb d f.\nc e g.\n\n" * 500)
    assert told[0].startswith("warning: reading 15.0 kB; about ")
    assert told[0].endswith("; 100 bytes are free")
    assert told[1].startswith("warning: about ")
    assert told[1].endswith(", and only 100 bytes are free")


def test_of_a_compressed_file_only_what_is_known_is_told(built):
    content = gzip.compress(b"a b c.\nd e f.\n\nb d f.\nc e g.\n")
    told = built(10**9, content, "a.txt.gz")
    size = len(content)
    assert told[0].startswith(f"reading {size} bytes; for every byte of unpacked text about ")
    assert len(told) == 1
