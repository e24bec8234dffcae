"""What `--overwrite` replaces, and what it refuses to replace."""

import json
import shutil

from helpers import read_json


def test_overwrite_refuses_a_folder_of_another_program(run, tmp_path, corpus):
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


def test_overwrite_replaces_all_of_a_data_folder(done, tmp_path, corpus):
    out = tmp_path / "data"
    build = ("build-data", corpus, "--out", out, "--seq-len", 32, "--quiet")
    done(*build, "--vocab-size", 99)
    (out / "train" / "data-00001.arrow").write_text("left over")
    done(*build, "--vocab-size", 88, "--overwrite")
    manifest = read_json(out / "manifest.json")
    assert manifest["vocab_size"] == 88
    assert len((out / "tokenizer" / "vocab.txt").read_text().splitlines()) == 88
    assert not (out / "train" / "data-00001.arrow").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_overwrite_replaces_all_of_a_tokenizer_folder(done, tmp_path, corpus):
    out = tmp_path / "tokenizer"
    done("train-tokenizer", corpus, "--out", out, "--vocab-size", 99, "--quiet")
    done("train-tokenizer", corpus, "--out", out, "--vocab-size", 88, "--overwrite", "--quiet")
    assert len((out / "vocab.txt").read_text().splitlines()) == 88
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]


def test_overwrite_replaces_all_of_a_run(done, tmp_path, data, trained):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    shape = ("--hidden-size", 8, "--num-hidden-layers", 1, "--num-attention-heads", 2)
    done("pretrain", data, "--out", out, *shape, "--steps", 1, "--overwrite", "--quiet")
    assert read_json(out / "model" / "config.json")["hidden_size"] == 8
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-1"]
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["step"] for line in lines} == {1}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_may_be_filled(done, tmp_path, corpus):
    out = tmp_path / "data"
    out.mkdir()
    done("build-data", corpus, "--out", out, "--vocab-size", 99, "--quiet")
    assert (out / "manifest.json").is_file()
