"""Faulty inputs, and a fixture that checks what all errors have in common."""

import bz2
import gzip
import json
import lzma
import re
import shlex
import shutil

import pytest
from helpers import TWO_DOCUMENTS, VOCABULARY

DEEP = '{"format":' + "[" * 200_000 + "]" * 200_000 + "}"
HAS_QUIET = ("train-tokenizer", "build-data", "pretrain", "eval-mlm", "fill-mask", "encode")


@pytest.fixture(scope="session")
def world(tmp_path_factory, corpus, data, trained):
    """Returns the folder in which wrong calls are run."""
    folder = tmp_path_factory.mktemp("wrong")
    _write_inputs(folder, corpus.read_bytes())
    _write_vocabularies(folder)
    _write_configs(folder)
    (folder / "theirs").mkdir()
    (folder / "theirs" / "letter.md").write_text("not ours")
    shutil.copytree(data, folder / "data")
    shutil.copytree(data / "tokenizer", folder / "tokenizer")
    shutil.copytree(trained, folder / "run")
    _write_damaged_data(folder)
    _write_damaged_runs(folder)
    return folder


def _write_inputs(folder, text):
    files = {
        "corpus.txt": text,
        "two.txt": TWO_DOCUMENTS.encode(),
        "empty.txt": b"",
        "empty.txt.gz": gzip.compress(b""),
        "blank.txt": b"\n \n\t\n",
        "one.txt": b"a b c .\nd e f .\ng h a .\n",
        "cut.txt.gz": gzip.compress(text)[:-20],
        "cut.txt.bz2": bz2.compress(text)[:-20],
        "cut.txt.xz": lzma.compress(text)[:-20],
        "paper.txt": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
        "windows.txt": "a b c.\n\nd e f.\n".encode("utf-16"),
        "table.txt": b"PAR1\x15\x04",
        "table.parquet": b"PAR1\x15\x04",
        "lines.jsonl": b'{"text": "a b c."}\n',
        "deep.jsonl": DEEP.encode(),
        "deep.json": b"[" * 200_000,
        "archive.txt": b"PK\x03\x04\x14\x00",
        "packed.txt": b"\x28\xb5\x2f\xfd\x04\x00",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _write_vocabularies(folder):
    lines = VOCABULARY.splitlines()
    for token in lines[:5]:
        kept = [line for line in lines if line != token]
        (folder / f"no-{token[1:-1].lower()}.txt").write_text("\n".join(kept) + "\n")
    (folder / "vocab.txt").write_text(VOCABULARY)
    (folder / "no-special.txt").write_text("a\nb\nc\n")
    (folder / "gap.txt").write_text("\n".join([*lines[:7], "", *lines[7:]]) + "\n")
    (folder / "twice.txt").write_text(VOCABULARY + "a\nz\n")
    (folder / "spaces.txt").write_text(
        "\n".join([*lines[:5], *(f"{x} " for x in lines[5:])]) + "\n"
    )
    (folder / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "broken.json").write_text("{")


def _write_configs(folder):
    (folder / "not.toml").write_text("seq-len = [")
    (folder / "unknown.toml").write_text("seq-len = 32\nsequence-length = 32\n")
    (folder / "range.toml").write_text("seq-len = 4\n")
    (folder / "type.toml").write_text('seq-len = "many"\n')
    (folder / "inner.toml").write_text('config-file = "x"\n')
    (folder / "deep.toml").write_text("seed = " + "[" * 5000 + "]" * 5000)
    (folder / "both.toml").write_text("seq-len = 32\nseq_len = 64\n")


def _write_damaged_data(folder):
    def damaged(name):
        return shutil.copytree(folder / "data", folder / name)

    def change_manifest(name, change):
        path = damaged(name) / "manifest.json"
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    (damaged("garbled") / "manifest.json").write_text('{"format": "bertpt-d')
    change_manifest("future", lambda manifest: manifest.update(format_version=99))
    change_manifest("no-version", lambda manifest: manifest.pop("format_version"))
    change_manifest("no-settings", lambda manifest: manifest.pop("settings"))
    for name, file in (("escapes", "../../etc/passwd"), ("unnamed", "train/other.arrow")):
        change_manifest(name, lambda manifest, file=file: manifest["shards"][0].update(file=file))
    change_manifest("no-shards", lambda manifest: manifest.update(shards=7))
    change_manifest("fewer-shards", lambda manifest: manifest["shards"].pop(0))
    (damaged("deep") / "manifest.json").write_text(DEEP)
    (damaged("deep-state") / "train" / "state.json").write_text(DEEP)
    (damaged("deep-info") / "train" / "dataset_info.json").write_text(DEEP)
    change_manifest("new-setting", lambda manifest: manifest["settings"].update(colour="red"))
    shard = damaged("cut") / "train" / "data-00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-10])
    shard = damaged("altered") / "train" / "data-00000.arrow"
    content = bytearray(shard.read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 40)
    content[middle] = bytes(byte ^ 0xFF for byte in content[middle])
    shard.write_bytes(content)
    (damaged("no-shard") / "train" / "data-00000.arrow").unlink()
    shutil.rmtree(damaged("no-tokenizer") / "tokenizer")
    (damaged("bad-counts") / "token_counts.npy").write_bytes(b"xx")
    shutil.copy(folder / "vocab.txt", damaged("other-tokenizer") / "tokenizer" / "vocab.txt")
    (folder / "other-tokenizer" / "tokenizer" / "tokenizer.json").unlink()


def _write_damaged_runs(folder):
    def damaged(name):
        return shutil.copytree(folder / "run", folder / name)

    for torn in damaged("torn-optimizer").glob("checkpoints/*/optimizer.safetensors"):
        torn.write_bytes(b"123")
    for torn in damaged("torn-state").glob("checkpoints/*/trainer_state.json"):
        torn.write_text("{")
    for old in damaged("old-run").glob("checkpoints/*/trainer_state.json"):
        old.write_text('{"step": 4, "elapsed_seconds": 1.5}')
    weights = damaged("torn-model") / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    (damaged("no-weights") / "model/model.safetensors").unlink()
    shutil.rmtree(damaged("no-checkpoint") / "checkpoints")
    (damaged("torn-record") / "config.json").write_text('{"format": "bertpt-r')
    (damaged("deep-run") / "config.json").write_text(DEEP)
    (damaged("deep-model") / "model/config.json").write_text(DEEP)
    for deep in damaged("deep-state-run").glob("checkpoints/*/trainer_state.json"):
        deep.write_text(DEEP)
    config = damaged("new-run") / "config.json"
    stored = json.loads(config.read_text())
    stored["settings"]["colour"] = "red"
    config.write_text(json.dumps(stored))


@pytest.fixture
def wrong(run, world, monkeypatch):
    """Runs a wrong call in `world`, checks that nothing changed, and returns the error line."""

    def call(command, status):
        monkeypatch.chdir(world)
        words = shlex.split(command)
        before = _contents(world)
        try:
            result = run(*words, *(["--quiet"] if words[0] in HAS_QUIET else []))
            assert _contents(world) == before
        finally:  # so the next call starts clean
            for left in set(world.iterdir()) - set(before):
                shutil.rmtree(left)
        assert result.exit_code == status, result.stderr
        assert result.stdout == ""
        assert re.fullmatch(r"error: .+\n", result.stderr), result.stderr
        return result.stderr.removesuffix("\n")

    return call


def _contents(folder):
    """Returns all folders, and all files with their modification times."""
    return {path: path.is_dir() or path.stat().st_mtime_ns for path in folder.rglob("*")}
