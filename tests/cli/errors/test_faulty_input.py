"""Faulty inputs and files: one line that names the value and the way out, and status 1."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest
from helpers import read_json

NO_MODEL = "error: no such model folder: missing (download a Hub model first)"
FAULTY_INPUT = {
    # nothing to read
    "build-data missing.txt --out out": "error: no such file or folder: missing.txt",
    "build-data two.txt missing.txt --out out": "error: no such file or folder: missing.txt",
    "build-data 'no-such-*.txt' --out out": "error: no file matches no-such-*.txt",
    "build-data theirs --out out": (
        "error: theirs contains no .txt, .jsonl, .csv, .tsv (also .gz, .bz2, .xz, .zst) or "
        ".parquet; it has 1 file with the ending .md, such as letter.md: give them by name or a "
        "glob"
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
    # not text
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
    # data that does not fit the model
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
    **{
        f"{command} escapes": (
            "error: escapes/manifest.json names a shard '../../etc/passwd', which is not a file of "
            "train/ or valid/; build the data again"
        )
        for command in ("inspect --examples 1", "pretrain --out out", "eval-mlm run")
    },
    "inspect --examples 1 unnamed": (
        "error: unnamed/train/state.json lists train/data-00000.arrow, the manifest "
        "train/other.arrow; build the data again"
    ),
    "inspect --examples 1 fewer-shards": (
        "error: fewer-shards/train/state.json lists train/data-00000.arrow, the manifest none; "
        "build the data again"
    ),
    "inspect --examples 1 no-shards": (
        "error: no-shards: the list of its shards is damaged; build the data again"
    ),
    "inspect deep": "error: deep is not a data folder; make one with bertpt build-data",
    "inspect --examples 1 deep-state": (
        "error: deep-state/train/state.json cannot be read: its JSON is nested too deeply"
    ),
    "pretrain data --out deep-run --resume": (
        "error: deep-run/config.json cannot be read: its JSON is nested too deeply"
    ),
    "eval-mlm deep-model data": (
        "error: deep-model/model/config.json cannot be read: its JSON is nested too deeply"
    ),
    "pretrain data --out deep-state-run --resume": (
        "error: deep-state-run/checkpoints/step-4/trainer_state.json cannot be read: its JSON is "
        "nested too deeply; no other checkpoint is intact, so start with --overwrite"
    ),
    "build-data two.txt --tokenizer spaces.txt --out out": (
        "error: spaces.txt: line 6, 'a ', begins or ends with white space, so it would never "
        "match; remove it (sed 's/^[ \\t]*//; s/[ \\t]*$//')"
    ),
    "build-data deep.jsonl --out out": (
        "error: deep.jsonl: line 1 is not a JSON object: '{\"format\":[[...]]]]]]]]]]]]}'"
    ),
    "build-data deep.json --out out": (
        "error: deep.json: item 1 is not valid JSON, or is longer than 64 MB"
    ),
    "inspect no-tokenizer": "error: no such tokenizer: no-tokenizer/tokenizer",
    "eval-mlm no-weights data": (
        "error: no-weights has no model.safetensors, and no model/ folder with both"
    ),
}


@pytest.mark.parametrize(("command", "line"), FAULTY_INPUT.items(), ids=list(FAULTY_INPUT))
def test_a_faulty_input_is_one_line_and_status_1(wrong, command, line):
    assert wrong(command, 1) == line


# Libraries describe the damage in their own words, so only our part of the line is checked.
DAMAGE = {
    "inspect --examples 1 deep-info": r"error: deep-info/train cannot be read: .+",
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
    # Advice that a library gives to its caller does not help our user.
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
    given = read_json(other / "manifest.json")["tokenizer_sha256"][:12]
    assert started != given
    assert result.stderr == (
        f"error: {trained}/model has tokenizer {started}, {other} was built with {given}; "
        f"build the data with --tokenizer {trained}/model\n"
    )
    assert (result.exit_code, result.stdout) == (1, "")


def _manifest_of(run_folder):
    """Returns the manifest of the data that a run was trained on."""
    return read_json(
        Path(read_json(run_folder / "config.json")["data"]["paths"][0]) / "manifest.json"
    )


def test_resuming_on_other_data_is_refused_and_both_are_named(run, trained, corpus, tmp_path):
    other = tmp_path / "other"
    tokenizer = ("--tokenizer", trained / "model")
    build = ("build-data", corpus, "--out", other, "--seq-len", 32, "--seed", 1, "--quiet")
    assert run(*build, *tokenizer).exit_code == 0
    result = run("pretrain", other, "--out", trained, "--resume")
    started = read_json(trained / "config.json")["data"]
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


def test_the_same_data_twice_is_refused_with_both_names(run, trained, data, tmp_path):
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
