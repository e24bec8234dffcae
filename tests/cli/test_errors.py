"""Wrong calls: one line that names the value and the way out, the status, and nothing left."""

import bz2
import gzip
import hashlib
import json
import lzma
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n.\n"
TWO_DOCUMENTS = "a b c .\nd e f .\ng h a .\n\nb d f .\nc e g .\nh h a .\n"
NO_MODEL = "error: no such model folder: missing (download a Hub model first)"
HAS_QUIET = ("train-tokenizer", "build-data", "pretrain", "eval-mlm", "fill-mask", "encode")


# ------------------------------------------------------------------ a folder of things to get wrong


@pytest.fixture(scope="module")
def world(tmp_path_factory, corpus, data, trained):
    """A folder that the wrong calls are made in."""
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
    (folder / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "broken.json").write_text("{")


def _write_configs(folder):
    (folder / "not.toml").write_text("seq-len = [")
    (folder / "unknown.toml").write_text("seq-len = 32\nsequence-length = 32\n")
    (folder / "range.toml").write_text("seq-len = 4\n")
    (folder / "type.toml").write_text('seq-len = "many"\n')
    (folder / "inner.toml").write_text('config-file = "x"\n')
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
    config = damaged("new-run") / "config.json"
    stored = json.loads(config.read_text())
    stored["settings"]["colour"] = "red"
    config.write_text(json.dumps(stored))


@pytest.fixture
def wrong(run, world, monkeypatch):
    """Makes a wrong call in the world; gives the error line, having checked all but its words."""

    def call(command, status):
        monkeypatch.chdir(world)
        words = shlex.split(command)
        before = _contents(world)
        try:
            result = run(*words, *(["--quiet"] if words[0] in HAS_QUIET else []))
            assert _contents(world) == before
        finally:  # or the next call would stumble over it
            for left in set(world.iterdir()) - set(before):
                shutil.rmtree(left)
        assert result.exit_code == status, result.stderr
        assert result.stdout == ""
        assert re.fullmatch(r"error: .+\n", result.stderr), result.stderr
        return result.stderr.removesuffix("\n")

    return call


def _contents(folder):
    """Every folder, and every file with its time of change: nothing can be left or touched."""
    return {path: path.is_dir() or path.stat().st_mtime_ns for path in folder.rglob("*")}


# ------------------------------------------------------------------ the input or a file is at fault

FAULTY_INPUT = {
    # there is nothing to read
    "build-data missing.txt --out out": "error: no such file or folder: missing.txt",
    "build-data two.txt missing.txt --out out": "error: no such file or folder: missing.txt",
    "build-data 'no-such-*.txt' --out out": "error: no file matches no-such-*.txt",
    "build-data theirs --out out": (
        "error: theirs contains no .txt, .jsonl (also .gz, .bz2, .xz, .zst) or .parquet"
    ),
    "build-data empty.txt --out out": "error: empty.txt: contains no text",
    "build-data empty.txt --out out --tokenizer vocab.txt": "error: empty.txt: contains no text",
    "build-data empty.txt.gz --out out": "error: empty.txt.gz: contains no text",
    "build-data blank.txt --out out": "error: blank.txt: contains no text",
    "build-data blank.txt --out out --tokenizer vocab.txt": "error: blank.txt: contains no text",
    "build-data blank.txt empty.txt --out out --tokenizer vocab.txt": (
        "error: blank.txt, empty.txt: contains no text"
    ),
    "build-data - --out out": "error: standard input: contains no text",
    "train-tokenizer missing.txt --out out": "error: no such file or folder: missing.txt",
    "train-tokenizer empty.txt --out out": "error: empty.txt: contains no text",
    "train-tokenizer blank.txt --out out": "error: blank.txt: contains no text",
    "build-data empty.txt --out out --tokenizer vocab.txt --shard 1/2": (
        "error: empty.txt: no document in part 1/2; make fewer parts"
    ),
    "build-data two.txt --out out --tokenizer vocab.txt --shard 3/3": (
        "error: two.txt: no document in part 3/3; make fewer parts"
    ),
    "build-data two.txt --out out --tokenizer vocab.txt --shard 1/2": (
        "error: two.txt: only one document in part 1/2, but random next sentences need a second "
        "one; make fewer parts, separate documents by blank lines, give more files, or use "
        "--objective sop or mlm"
    ),
    "build-data one.txt --out out": (
        "error: one.txt: only one document, but random next sentences need a second one; "
        "separate documents by blank lines, give more files, or use --objective sop or mlm"
    ),
    # it is no text
    "build-data paper.txt --out out": "error: paper.txt is a PDF; extract its text first",
    "build-data windows.txt --out out": (
        "error: windows.txt is UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)"
    ),
    "build-data lines.jsonl --out out": (
        "error: lines.jsonl: only one document, but random next sentences need a second one; "
        "separate documents by blank lines, give more files, or use --objective sop or mlm"
    ),
    "build-data lines.jsonl --text-field body --out out": (
        "error: lines.jsonl: line 1 has no field 'body', only 'text'; choose one with --text-field"
    ),
    "build-data hf:./missing --out out": "error: hf:./missing: no such folder: ./missing",
    "build-data archive.txt --out out": "error: archive.txt is a zip archive; unpack it first",
    # the vocabulary
    **{
        f"build-data two.txt --out out --tokenizer no-{name.lower()}.txt": (
            f"error: no-{name.lower()}.txt lacks [{name}]; a BERT vocabulary needs all five"
        )
        for name in ("PAD", "UNK", "CLS", "SEP", "MASK")
    },
    "build-data two.txt --out out --tokenizer no-special.txt": (
        "error: no-special.txt lacks [PAD], [UNK], [CLS], [SEP], [MASK]; "
        "a BERT vocabulary needs all five"
    ),
    "build-data missing.txt --out out --tokenizer no-mask.txt": (
        "error: no-mask.txt lacks [MASK]; a BERT vocabulary needs all five"
    ),
    "build-data two.txt --out out --tokenizer gap.txt": (
        "error: gap.txt: line 8 is empty; a token's id is its line number"
    ),
    "build-data two.txt --out out --tokenizer twice.txt": (
        "error: twice.txt: line 15 repeats line 6, 'a'"
    ),
    "build-data two.txt --out out --tokenizer missing": "error: no such tokenizer: missing",
    "build-data two.txt --out out --tokenizer theirs": (
        "error: theirs contains no tokenizer.json or vocab.txt; copy one there"
    ),
    # the output
    "build-data two.txt --out data": (
        "error: data exists; give another --out, or --overwrite to replace it"
    ),
    "build-data two.txt --out two.txt": (
        "error: two.txt exists, and was not made by this command; give another --out"
    ),
    "train-tokenizer two.txt --out tokenizer": (
        "error: tokenizer exists; give another --out, or --overwrite to replace it"
    ),
    "pretrain data --out run": (
        "error: run exists; give another --out, or --overwrite to replace it"
    ),
    "build-data two.txt --overwrite --out .": (
        "error: . cannot be replaced as a whole; give a new folder inside it"
    ),
    **{
        f"{command} --overwrite --out {place}": (
            f"error: {place} exists, and was not made by this command; give another --out"
        )
        for command, place in (
            ("build-data two.txt", "theirs"),
            ("build-data two.txt", "two.txt"),
            ("build-data two.txt", "run"),
            ("train-tokenizer two.txt", "theirs"),
            ("train-tokenizer two.txt", "data"),
            ("pretrain data", "theirs"),
            ("pretrain data", "data"),
            ("pretrain data", "run/model"),
        )
    },
    "build-data empty.txt --out data --overwrite --tokenizer vocab.txt": (
        "error: empty.txt: contains no text"
    ),
    # data and model do not fit
    "pretrain missing --out out": "error: no such data folder: missing",
    "pretrain corpus.txt --out out": "error: no such data folder: corpus.txt",
    "pretrain theirs --out out": (
        "error: theirs is not a data folder; make one with bertpt build-data"
    ),
    "pretrain data missing --out out": "error: no such data folder: missing",
    "eval-mlm run data theirs": (
        "error: theirs is not a data folder; make one with bertpt build-data"
    ),
    "inspect missing": "error: no such data folder: missing",
    "inspect run": "error: run is not a data folder; make one with bertpt build-data",
    "eval-mlm run theirs": "error: theirs is not a data folder; make one with bertpt build-data",
    "eval-mlm missing data": NO_MODEL,
    "eval-mlm theirs data": (
        "error: theirs has no config.json or model.safetensors, and no model/ folder with both"
    ),
    "fill-mask missing 'a [MASK].'": NO_MODEL,
    "fill-mask run 'the dog'": "error: no [MASK] to fill in the text 'the dog'",
    "fill-mask run 'the [mask]'": "error: no [MASK] to fill in the text 'the [mask]'",
    "fill-mask run ''": "error: no [MASK] to fill in the text ''",
    "fill-mask run 'the dog' --mask-word a": ("error: no 'a' to mask in the text 'the dog'"),
    "encode missing 'a b'": NO_MODEL,
    "encode theirs 'a b'": (
        "error: theirs has no config.json or model.safetensors, and no model/ folder with both"
    ),
    "encode run 'a b' --pair": (
        "error: --pair needs two texts separated by one tab, found 0 tabs: 'a b'"
    ),
    "encode run 'a b' --out data/token_counts.npy": (
        "error: data/token_counts.npy exists, and was not made by this command; give another --out"
    ),
    "encode run 'a b' --out run/model/model.safetensors --overwrite": (
        "error: run/model/model.safetensors exists, and was not made by this command; give another "
        "--out"
    ),
    "pretrain data --out out --max-position-embeddings 16": (
        "error: data has sequences of 32 tokens, but the model has 16 positions; give it more with "
        "--max-position-embeddings 32, or build the data with --seq-len 16"
    ),
    "pretrain data --out run --overwrite --max-position-embeddings 16": (
        "error: data has sequences of 32 tokens, but the model has 16 positions; give it more with "
        "--max-position-embeddings 32, or build the data with --seq-len 16"
    ),
    # resuming
    "pretrain data --out out --resume": (
        "error: no run to resume in out; start one without --resume"
    ),
    "pretrain data --out theirs --resume": (
        "error: no run to resume in theirs; start one without --resume"
    ),
    "pretrain data --out no-checkpoint --resume": (
        "error: no-checkpoint has no checkpoint yet; start again with --overwrite"
    ),
    # damage
    "inspect garbled": "error: garbled is not a data folder; make one with bertpt build-data",
    "inspect future": "error: future has format version 99, this bertpt reads 1; build it again",
    "pretrain future --out out": (
        "error: future has format version 99, this bertpt reads 1; build it again"
    ),
    "inspect no-tokenizer": "error: no such tokenizer: no-tokenizer/tokenizer",
    "eval-mlm no-weights data": (
        "error: no-weights has no model.safetensors, and no model/ folder with both"
    ),
}


@pytest.mark.parametrize(("command", "line"), FAULTY_INPUT.items(), ids=list(FAULTY_INPUT))
def test_a_faulty_input_is_one_line_and_status_1(wrong, command, line):
    assert wrong(command, 1) == line


# What a library says about a damaged file is its business, so only our part of the line is fixed.
DAMAGE = {
    "build-data cut.txt.gz --out out": r"error: cut\.txt\.gz cannot be read: .+",
    "build-data cut.txt.bz2 --out out": r"error: cut\.txt\.bz2 cannot be read: .+",
    "build-data cut.txt.xz --out out": r"error: cut\.txt\.xz cannot be read: .+",
    "train-tokenizer cut.txt.gz --out out": r"error: cut\.txt\.gz cannot be read: .+",
    "build-data two.txt cut.txt.gz --out out --tokenizer vocab.txt": (
        r"error: cut\.txt\.gz cannot be read: .+"
    ),
    "build-data packed.txt --out out": r"error: packed\.txt cannot be read: .+",
    "build-data table.txt --out out": r"error: table\.txt cannot be read: .+",
    "build-data table.parquet --out out": r"error: table\.parquet cannot be read: .+",
    "build-data two.txt --out out --tokenizer broken.json": (
        r"error: broken\.json is not a tokenizer: .+"
    ),
    "build-data two.txt --out out --tokenizer bytes.txt": (
        r"error: bytes\.txt is not a vocabulary: .+"
    ),
    "build-data two.txt --out two.txt/out": r"error: cannot write two\.txt/out: .+",
    # An unset shell variable, as in `bertpt build-data "$CORPUS"`, must not mean this folder.
    "build-data '' --out out": r"error: no such file or folder: .*",
    "inspect no-version": r"error: no-version.*format.version.*",
    "inspect no-settings": r"error: no-settings.*settings.*",
    "inspect new-setting": r"error: new-setting.*colour.*",
    "pretrain new-setting --out out": r"error: new-setting.*colour.*",
    **{
        f"{command.format(damaged)}": rf"error: {damaged}/train.+"
        for damaged in ("cut", "no-shard", "altered")
        for command in ("inspect {}", "pretrain {} --out out", "eval-mlm run {} --split train")
    },
    "inspect other-tokenizer": (
        "error: other-tokenizer/tokenizer has SHA-256 [0-9a-f]{12}, its manifest says "
        "[0-9a-f]{12}; it is damaged or was changed: build the data again"
    ),
    "eval-mlm run bad-counts": r"error: bad-counts/token_counts\.npy.+",
    "eval-mlm torn-model data": r"error: torn-model/model/model\.safetensors cannot be read: .+",
    "fill-mask torn-model 'a [MASK].'": (
        r"error: torn-model/model/model\.safetensors cannot be read: .+"
    ),
    "encode torn-model a": r"error: torn-model/model/model\.safetensors cannot be read: .+",
    "encode run a --out two.txt/v.npy": r"error: .*two\.txt.*",
    "pretrain data --out torn-optimizer --resume": (
        r"error: torn-optimizer/checkpoints/step-4/optimizer\.safetensors is damaged: .+; "
        r"no other checkpoint is intact, so start with --overwrite"
    ),
    "pretrain data --out old-run --resume": (
        r"error: old-run/checkpoints/step-4/trainer_state\.json has no checksums, so an earlier "
        r"bertpt wrote it; no other .+ --overwrite"
    ),
    "pretrain data --out torn-state --resume": (
        r"error: torn-state/checkpoints/step-4/trainer_state\.json cannot be read: .+"
    ),
    "pretrain data --out new-run --resume": r"error: new-run.*colour.*",
    "pretrain data --out torn-record --resume": r"error: torn-record/config\.json cannot be read.+",
}


@pytest.mark.parametrize(("command", "pattern"), DAMAGE.items(), ids=list(DAMAGE))
def test_a_damaged_file_is_named_in_one_line(wrong, command, pattern):
    line = wrong(command, 1)
    assert re.fullmatch(pattern, line), line
    # What a library offers its own caller is no way out for ours.
    assert "pickle" not in line


def test_data_of_another_vocabulary_is_refused_and_both_are_named(run, trained, corpus, tmp_path):
    words = (trained / "model" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    other_order = [*words[:5], *reversed(words[5:])]
    (tmp_path / "vocab.txt").write_text("\n".join(other_order) + "\n", encoding="utf-8")
    other = tmp_path / "other"
    build = ("build-data", corpus, "--out", other, "--seq-len", 32, "--quiet")
    assert run(*build, "--tokenizer", tmp_path / "vocab.txt").exit_code == 0
    result = run("eval-mlm", trained, other)
    started = _manifest_of(trained)["tokenizer_sha256"][:12]
    given = _read(other / "manifest.json")["tokenizer_sha256"][:12]
    assert started != given
    assert result.stderr == (
        f"error: {trained}/model has tokenizer {started}, {other} was built with {given}; "
        f"build the data with --tokenizer {trained}/model\n"
    )
    assert (result.exit_code, result.stdout) == (1, "")


def _read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def _manifest_of(run_folder):
    """The manifest of the data that a run was trained on."""
    return _read(Path(_read(run_folder / "config.json")["data"]["paths"][0]) / "manifest.json")


def test_resuming_on_other_data_is_refused_and_both_are_named(run, trained, corpus, tmp_path):
    other = tmp_path / "other"
    tokenizer = ("--tokenizer", trained / "model")
    build = ("build-data", corpus, "--out", other, "--seq-len", 32, "--seed", 1, "--quiet")
    assert run(*build, *tokenizer).exit_code == 0
    result = run("pretrain", other, "--out", trained, "--resume")
    started = _read(trained / "config.json")["data"]
    given = hashlib.sha256((other / "manifest.json").read_bytes()).hexdigest()
    assert result.stderr == (
        f"error: {trained} was trained on {started['paths'][0]} ({started['sha256'][:12]}), and "
        f"{other} is {given[:12]}; resume with the same data, or start another run\n"
    )
    assert (result.exit_code, result.stdout) == (1, "")


def test_eval_mlm_refuses_sequences_above_the_positions(run, trained, corpus, tmp_path):
    longer = tmp_path / "longer"
    build = ("build-data", corpus, "--out", longer, "--seq-len", 33, "--quiet")
    assert run(*build, "--tokenizer", trained / "model").exit_code == 0
    result = run("eval-mlm", trained, longer)
    assert result.stderr == (
        f"error: {longer} has sequences of 33 tokens, but the model has 32 positions; give it "
        "more with pretrain --init-from and --extend-positions, or build the data with "
        "--seq-len 32\n"
    )
    assert (result.exit_code, result.stdout) == (1, "")


def test_sequences_as_long_as_the_positions_are_fine(run, trained, data):
    # `trained` has 32 positions and was trained on sequences of 32.
    result = run("eval-mlm", trained, data, "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")


def test_the_same_data_twice_is_refused_and_both_names_are_told(run, trained, data, tmp_path):
    copy = shutil.copytree(data, tmp_path / "copy")
    given = hashlib.sha256((data / "manifest.json").read_bytes()).hexdigest()
    for command in (
        ("pretrain", data, copy, "--out", tmp_path / "o"),
        ("eval-mlm", trained, data, copy),
    ):
        result = run(*command)
        assert result.stderr == (
            f"error: {data} and {copy} contain the same data (manifest {given[:12]}); "
            "give it once\n"
        )
        assert (result.exit_code, result.stdout) == (1, "")
    assert not (tmp_path / "o").exists()


# -------------------------------------------------------------------- the command line is at fault

BUILD = "build-data two.txt --out out"
PRETRAIN = "pretrain data --out out"
FAULTY_CALL = {
    # numbers out of range
    f"{BUILD} --masked-lm-prob 0": "error: --masked-lm-prob 0.0 must be above 0 and at most 1",
    f"{BUILD} --masked-lm-prob 1.5": "error: --masked-lm-prob 1.5 must be above 0 and at most 1",
    f"{BUILD} --masked-lm-prob -0.1": "error: --masked-lm-prob -0.1 must be above 0 and at most 1",
    f"{BUILD} --masked-lm-prob nan": "error: --masked-lm-prob nan is not a finite number",
    f"{BUILD} --masked-lm-prob inf": "error: --masked-lm-prob inf is not a finite number",
    f"{BUILD} --max-predictions-per-seq 0": "error: --max-predictions-per-seq 0 must be at least 1",
    f"{BUILD} --dupe-factor 0": "error: --dupe-factor 0 must be at least 1",
    f"{BUILD} --workers 0": "error: --workers 0 must be at least 1",
    **{
        f"{BUILD} --tokenizer vocab.txt --shard {shard}": (
            f"error: --shard {shard} must be one of 1/4 to 4/4"
        )
        for shard in ("0/4", "5/4")
    },
    f"{BUILD} --tokenizer vocab.txt --shard /4": (
        "error: --shard '/4' is not I/N, such as 3/16 (is a variable unset?)"
    ),
    "build-data missing.txt --out data --shard 1/2": (
        "error: --shard 1/2 needs --tokenizer, or each part would learn a different vocabulary; "
        "make one with bertpt train-tokenizer"
    ),
    f"{BUILD} --objective maybe": "error: --objective maybe is not one of nsp, sop, mlm",
    f"{BUILD} --pairing google --span": (
        "error: --span and --pairing google exclude each other: google-research/bert has no spans"
    ),
    f"{BUILD} --pairing google --objective sop": (
        "error: --objective sop and --pairing google exclude each other"
    ),
    f"{BUILD} --short-seq-prob 2": "error: --short-seq-prob 2.0 must be at least 0 and at most 1",
    f"{BUILD} --short-seq-prob -1": "error: --short-seq-prob -1.0 must be at least 0 and at most 1",
    f"{BUILD} --seq-len 4": "error: --seq-len 4 must be at least 5 and at most 65535",
    f"{BUILD} --seq-len 65536": "error: --seq-len 65536 must be at least 5 and at most 65535",
    f"{BUILD} --valid-fraction 1": "error: --valid-fraction 1.0 must be at least 0 and below 1",
    f"{BUILD} --valid-fraction -1": "error: --valid-fraction -1.0 must be at least 0 and below 1",
    f"{BUILD} --vocab-size 3": "error: --vocab-size 3 must be at least 6",
    f"{BUILD} --min-frequency 0": "error: --min-frequency 0 must be at least 1",
    f"{BUILD} --seed -1": "error: --seed -1 must be at least 0",
    f"{BUILD} --language english": (
        "error: --language english is not an ISO 639 code such as en, de or zh"
    ),
    "train-tokenizer two.txt --out out --vocab-size 3": "error: --vocab-size 3 must be at least 6",
    f"{PRETRAIN} --batch-size 0": "error: --batch-size 0 must be at least 1",
    f"{PRETRAIN} --micro-batch-size 0": "error: --micro-batch-size 0 must be at least 1",
    f"{PRETRAIN} --batch-size 3 --micro-batch-size 4": (
        "error: --micro-batch-size 4 exceeds --batch-size 3"
    ),
    f"{PRETRAIN} --learning-rate nan": "error: --learning-rate nan is not a finite number",
    f"{PRETRAIN} --learning-rate -1": "error: --learning-rate -1.0 must be above 0",
    f"{PRETRAIN} --learning-rate 0": "error: --learning-rate 0.0 must be above 0",
    f"{PRETRAIN} --muon-learning-rate 0": "error: --muon-learning-rate 0.0 must be above 0",
    f"{PRETRAIN} --weight-decay -1": "error: --weight-decay -1.0 must be at least 0",
    f"{PRETRAIN} --max-grad-norm 0": "error: --max-grad-norm 0.0 must be above 0",
    f"{PRETRAIN} --epochs 0": "error: --epochs 0 must be at least 1",
    f"{PRETRAIN} --steps 0": "error: --steps 0 must be at least 1",
    f"{PRETRAIN} --max-minutes 0": "error: --max-minutes 0.0 must be above 0",
    f"{PRETRAIN} --warmup -1": "error: --warmup -1.0 must be at least 0",
    f"{PRETRAIN} --steps 5 --warmup 6": "error: --warmup 6 exceeds --steps 5",
    f"{PRETRAIN} --max-minutes 1 --warmup 6": (
        "error: --warmup 6 is a number of steps; with --max-minutes, give a fraction"
    ),
    f"{PRETRAIN} --schedule google --max-minutes 1": (
        "error: --schedule google needs a number of steps; use --steps or --epochs instead of "
        "--max-minutes"
    ),
    f"{PRETRAIN} --decay 0.1": "error: --decay 0.1 requires --schedule wsd",
    f"{PRETRAIN} --schedule wsd --decay -1": "error: --decay -1.0 must be at least 0",
    f"{PRETRAIN} --schedule wsd --steps 5 --decay 6": "error: --decay 6 exceeds --steps 5",
    f"{PRETRAIN} --schedule wsd --max-minutes 1 --decay 6": (
        "error: --decay 6 is a number of steps; with --max-minutes, give a fraction"
    ),
    f"{PRETRAIN} --schedule wsd --steps 9 --warmup 6 --decay 4": (
        "error: --decay 4 and --warmup 6 together exceed --steps 9"
    ),
    f"{PRETRAIN} --schedule wsd --decay 0.96": (
        "error: --decay 0.96 and --warmup 0.05 together exceed --epochs 10"
    ),
    f"{PRETRAIN} --schedule step": (
        "error: --schedule step is not one of linear, cosine, constant, wsd, google"
    ),
    f"{PRETRAIN} --keep-last -1": "error: --keep-last -1 must be at least 0",
    f"{PRETRAIN} --save-every -1": "error: --save-every -1 must be at least 0",
    f"{PRETRAIN} --eval-every -1": "error: --eval-every -1 must be at least 0",
    f"{PRETRAIN} --log-every 0": "error: --log-every 0 must be at least 1",
    f"{PRETRAIN} --dropout 1": "error: --dropout 1.0 must be at least 0 and below 1",
    f"{PRETRAIN} --hidden-size 0": "error: --hidden-size 0 must be at least 1",
    "eval-mlm run data --batch-size 0": "error: --batch-size 0 must be at least 1",
    "fill-mask run 'a [MASK].' --top-k 0": "error: --top-k 0 must be at least 1",
    "encode run a --batch-size 0": "error: --batch-size 0 must be at least 1",
    "encode run a --layer -1": "error: --layer -1 must be at least 0",
    "inspect data --examples -1": "error: --examples -1 must be at least 0",
    # settings that do not go together
    f"{PRETRAIN} --steps 5 --epochs 1": "error: --steps and --epochs exclude each other",
    f"{PRETRAIN} --steps 5 --max-minutes 1": "error: --steps and --max-minutes exclude each other",
    f"{PRETRAIN} --epochs 1 --max-minutes 1": (
        "error: --epochs and --max-minutes exclude each other"
    ),
    "pretrain data --out run --resume --overwrite": (
        "error: --resume and --overwrite exclude each other"
    ),
    "encode run a --layer 1 --pooling pooler": (
        "error: --layer and --pooling pooler exclude each other: the pooler reads the last layer"
    ),
    "encode run a --out v.npy --pooling tokens": (
        "error: --out v.npy cannot store vectors by token; use .safetensors instead of .npy"
    ),
    "encode run a --out v.txt": "error: --out v.txt must end in .npy or .safetensors",
    "fill-mask run 'a [MASK].' --mask-word zebra": (
        "error: --mask-word 'zebra' is not in the vocabulary"
    ),
    f"{PRETRAIN} --hidden-size 12 --num-attention-heads 5": (
        "error: --num-attention-heads 5 does not divide --hidden-size 12; choose a divisor, "
        "for example hidden size / 64"
    ),
    f"{PRETRAIN} --hidden-size 13 --num-attention-heads 2": (
        "error: --num-attention-heads 2 does not divide --hidden-size 13; choose a divisor, "
        "for example hidden size / 64"
    ),
    # 5 special tokens; a to h and the full stop, none of which is inside a word
    f"{BUILD} --vocab-size 8": (
        "error: --vocab-size 8 is too small: special tokens and the characters of this text "
        "need 14; raise it, or keep fewer characters with --limit-alphabet"
    ),
    "train-tokenizer two.txt --out out --vocab-size 8": (
        "error: --vocab-size 8 is too small: special tokens and the characters of this text "
        "need 14; raise it, or keep fewer characters with --limit-alphabet"
    ),
    "pretrain data --out run --resume --hidden-size 24": (
        "error: --hidden-size 24 is not what run was started with, 12; leave it out, or start "
        "another run"
    ),
    "pretrain data --out run --resume --batch-size 5": (
        "error: --batch-size 5 is not what run was started with, 3; leave it out, or start "
        "another run"
    ),
    "pretrain data --out run --resume --recipe published": (
        "error: --recipe published is not what run was started with, fast; leave it out, or "
        "start another run"
    ),
    # unknown choices
    f"{PRETRAIN} --recipe x": "error: --recipe x is not one of fast, published",
    f"{PRETRAIN} --optimizer x": "error: --optimizer x is not one of muon, adamw",
    f"{PRETRAIN} --init x": "error: --init x is not one of mimetic, published",
    f"{PRETRAIN} --masking x": "error: --masking x is not one of fresh, stored",
    f"{PRETRAIN} --pooler x": "error: --pooler x is not one of cls, mean",
    f"{PRETRAIN} --device x": "error: --device x is not one of auto, cpu, cuda",
    f"{PRETRAIN} --precision x": "error: --precision x is not one of auto, float32, bfloat16",
    "encode run a --pooling x": "error: --pooling x is not one of mean, cls, pooler, tokens",
    "encode run a --precision x": "error: --precision x is not one of auto, float32, bfloat16",
    f"{PRETRAIN} --model x": (
        "error: --model x is not one of tiny, mini, small, medium, base, large"
    ),
    # a value from a file is checked like one from the command line
    f"{BUILD} --config range.toml": "error: --seq-len 4 must be at least 5 and at most 65535",
}


@pytest.mark.parametrize(("command", "line"), FAULTY_CALL.items(), ids=list(FAULTY_CALL))
def test_a_faulty_call_is_one_line_and_status_2(wrong, command, line):
    assert wrong(command, 2) == line


# Typer finds these and words them, so only what the line must name is fixed.
FOUND_BY_TYPER = {
    "build-dat two.txt --out out": ["build-dat"],
    "--nonsense": ["--nonsense"],
    f"{BUILD} --nonsense": ["--nonsense"],
    f"{BUILD} --seqlen 32": ["--seqlen"],
    "build-data --out out": ["INPUT"],
    "build-data two.txt": ["--out"],
    "train-tokenizer": ["INPUT"],
    "pretrain --out out": ["DATA"],
    "inspect": ["DATA"],
    "inspect data theirs": ["theirs"],
    "eval-mlm run": ["DATA"],
    "fill-mask run": ["TEXT"],
    "fill-mask run 'a [MASK].' --mask-word": ["--mask-word"],
    "encode run": ["TEXT"],
    "encode run a --layer top": ["--layer", "top"],
    "encode run a --out": ["--out"],
    f"{BUILD} --seq-len": ["--seq-len"],
    f"{BUILD} --seq-len abc": ["--seq-len", "abc"],
    f"{BUILD} --seq-len 12.5": ["--seq-len", "12.5"],
    f"{BUILD} --masked-lm-prob much": ["--masked-lm-prob", "much"],
    f"{PRETRAIN} --learning-rate fast": ["--learning-rate", "fast"],
    f"{PRETRAIN} --steps 1e3": ["--steps", "1e3"],
    f"{BUILD} --lowercase=false": ["--lowercase"],
    f"{BUILD} --config missing.toml": ["--config", "missing.toml"],
    f"{BUILD} --config theirs": ["--config", "theirs"],
    f"{BUILD} --config not.toml": ["--config", "not.toml", "TOML"],
    f"{BUILD} --config unknown.toml": ["--config", "unknown.toml", "sequence", "length"],
    f"{BUILD} --config type.toml": ["--seq-len", "many"],
    f"{BUILD} --config inner.toml": ["--config", "config-file"],
    f"{BUILD} --config both.toml": ["--config", "both.toml"],
    "inspect data --split test": ["--split", "test", "train", "valid"],
    "eval-mlm run data --split test": ["--split", "test", "train", "valid"],
    "eval-mlm run data --device tpu": ["--device", "tpu", "auto", "cpu", "cuda"],
}


@pytest.mark.parametrize(("command", "names"), FOUND_BY_TYPER.items(), ids=list(FOUND_BY_TYPER))
def test_a_call_that_cannot_be_parsed_names_what_is_wrong(wrong, command, names):
    line = wrong(command, 2)
    for name in names:
        assert name in line


def test_warmup_above_the_steps_that_epochs_give_is_refused(wrong):
    line = wrong(f"{PRETRAIN} --hidden-size 12 --epochs 1 --warmup 999", 2)
    assert line.startswith("error: --warmup 999 exceeds --epochs 1 (")


def test_cuda_is_refused_where_there_is_none(wrong):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    line = "error: --device cuda is not available here; use cpu or auto"
    assert wrong(f"{PRETRAIN} --device cuda", 2) == line
    assert wrong("eval-mlm run data --device cuda", 2) == line
    assert wrong("fill-mask run 'a [MASK].' --device cuda", 2) == line
    assert wrong("encode run a --device cuda", 2) == line


def test_no_command_at_all_shows_the_help_on_stderr(run):
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: bertpt" in result.stderr
    assert "build-data" in result.stderr


# ---------------------------------------------------------------------------------- on/off options


@pytest.mark.parametrize("spelling", ["--lowercase False", "--sentence-per-line no"])
def test_a_value_after_an_on_off_option_is_never_silently_on(wrong, spelling):
    # The value is taken for another INPUT, and there is none of that name.
    assert wrong(f"{BUILD} {spelling}", 1).endswith(spelling.split()[1])


def test_a_case_option_that_contradicts_the_tokenizer_is_refused(wrong):
    # The folder's tokenizer.json lower-cases, whatever is asked for here.
    line = wrong("build-data corpus.txt --out out --tokenizer tokenizer --no-lowercase", 2)
    assert "lowercase" in line
    assert "tokenizer" in line


# --------------------------------------------------------------------------------------- overwrite


def test_overwrite_leaves_what_others_made_as_it_was(run, tmp_path, corpus):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "manifest.json").write_text('{"name": "an extension"}')
    (theirs / "letter.md").write_text("dear")
    result = run("build-data", corpus, "--out", theirs, "--overwrite")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {theirs} exists, and was not made by this command; give another --out\n"
    )
    assert (theirs / "manifest.json").read_text() == '{"name": "an extension"}'
    assert (theirs / "letter.md").read_text() == "dear"
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_overwrite_replaces_a_data_folder_whole(done, tmp_path, corpus):
    out = tmp_path / "data"
    build = ("build-data", corpus, "--out", out, "--seq-len", 32, "--quiet")
    done(*build, "--vocab-size", 99)
    (out / "train" / "data-00001.arrow").write_text("left over")
    done(*build, "--vocab-size", 88, "--overwrite")
    manifest = _read(out / "manifest.json")
    assert manifest["vocab_size"] == 88
    assert len((out / "tokenizer" / "vocab.txt").read_text().splitlines()) == 88
    assert not (out / "train" / "data-00001.arrow").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_overwrite_replaces_a_tokenizer_folder_whole(done, tmp_path, corpus):
    out = tmp_path / "tokenizer"
    done("train-tokenizer", corpus, "--out", out, "--vocab-size", 99, "--quiet")
    done("train-tokenizer", corpus, "--out", out, "--vocab-size", 88, "--overwrite", "--quiet")
    assert len((out / "vocab.txt").read_text().splitlines()) == 88
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]


def test_overwrite_replaces_a_run_whole(done, tmp_path, data, trained):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    shape = ("--hidden-size", 8, "--num-hidden-layers", 1, "--num-attention-heads", 2)
    done("pretrain", data, "--out", out, *shape, "--steps", 1, "--overwrite", "--quiet")
    assert _read(out / "model" / "config.json")["hidden_size"] == 8
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-1"]
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["step"] for line in lines} == {1}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_may_be_filled(done, tmp_path, corpus):
    out = tmp_path / "data"
    out.mkdir()
    done("build-data", corpus, "--out", out, "--vocab-size", 99, "--quiet")
    assert (out / "manifest.json").is_file()


# ------------------------------------------------------------------------- what the machine lacks


@pytest.mark.parametrize(
    ("command", "function", "advice"),
    [
        (
            "pretrain {data} --out {out}",
            "bertpt.training.pretrain.pretrain",
            "; try a smaller --micro-batch-size, or a smaller model",
        ),
        (
            "eval-mlm {trained} {data}",
            "bertpt.evaluation.mlm.eval_mlm",
            "; try a smaller --batch-size",
        ),
        (
            "build-data {corpus} --out {out}",
            "bertpt.build.build.build_data",
            "; try fewer --workers",
        ),
        ("inspect {data}", "bertpt.build.describe.describe", ""),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        MemoryError(),
    ],
    ids=["torch", "python"],
)
def test_too_little_memory_is_one_line_with_what_the_command_can_do(  # noqa: PLR0917
    run, data, trained, corpus, tmp_path, monkeypatch, command, function, advice, error
):
    def allocate(*_, **__):
        raise error

    monkeypatch.setattr(function, allocate)
    words = command.format(data=data, trained=trained, corpus=corpus, out=tmp_path / "out").split()
    result = run(*words)
    assert result.stderr.splitlines()[-1] == f"error: out of memory{advice}"
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_our_own_is_not_made_pretty(run, data, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("bertpt.training.pretrain.pretrain", fail)
    with pytest.raises(RuntimeError, match="shapes differ"):
        run("pretrain", data, "--out", tmp_path / "run")


@pytest.mark.slow
def test_a_disk_that_is_full_while_saving_is_one_line_and_leaves_no_torso(data, tmp_path):
    """A limit on the size of files stands for the disk."""
    command = [sys.executable, "-m", "bertpt_cli", "pretrain", str(data), "--out", "run"]
    result = subprocess.run(
        [*command, "--model", "tiny", "--steps", "2", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    assert result.returncode == 1
    assert re.fullmatch(r"error: cannot write \S+: .*too large.*\n", result.stderr), result.stderr
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert not (tmp_path / "run" / "model").exists()


def test_a_closed_standard_input_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    from bertpt.corpus.corpus import Corpus
    from bertpt.errors import InputError

    with pytest.raises(InputError, match="standard input is closed"):
        list(Corpus(["-"]))


def test_a_file_name_that_is_no_utf8_is_no_error(run, tmp_path, text):
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_text(text)
    result = run("build-data", path, "--out", tmp_path / "data", "--vocab-size", 99, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["inputs"] == [str(tmp_path / "caf\ufffd.txt")]


def test_vocabulary_options_beside_a_tokenizer_are_refused(run, corpus, tmp_path, data):
    result = run(
        *("build-data", corpus, "--out", tmp_path / "out", "--vocab-size", 50),
        *("--tokenizer", data / "tokenizer"),
    )
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --vocab-size is for learning a vocabulary; with --tokenizer "
        f"{data / 'tokenizer'}, none is learned\n"
    )


def test_a_cased_vocabulary_can_be_read_as_such(done, corpus, tmp_path, data):
    vocab = shutil.copy(data / "tokenizer" / "vocab.txt", tmp_path / "vocab.txt")
    for flag, expected in (("--no-lowercase", False), ("--lowercase", True)):
        out = tmp_path / flag
        done("build-data", corpus, "--out", out, "--tokenizer", vocab, flag)
        stored = json.loads((out / "tokenizer" / "tokenizer_config.json").read_text())
        assert stored["do_lower_case"] is stored["strip_accents"] is expected
