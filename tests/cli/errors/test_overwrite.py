"""What `--overwrite` replaces, and what it refuses to replace."""

import json
import shutil

import pytest
from helpers import TINY, digests, read_json

from bertpt import files


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


def refusal(folder, names):
    return (
        f"error: {folder} contains files that bertpt did not write: {names}; move them away, or "
        "give another --out\n"
    )


@pytest.mark.parametrize("name", ["notes.txt", "model/notes.txt", "checkpoints/step-4/a", ".git/x"])
def test_overwrite_refuses_a_run_with_files_of_others(run, tmp_path, data, trained, name):
    out = shutil.copytree(trained, tmp_path / "run")
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("keep")
    before = digests(out)
    result = run("pretrain", data, "--out", out, *TINY, "--steps", 1, "--overwrite")
    assert (result.exit_code, result.stderr) == (1, refusal(out, name))
    assert digests(out) == before


def test_overwrite_refuses_data_that_contains_its_own_input(run, tmp_path, data, corpus):
    out = shutil.copytree(data, tmp_path / "data")
    for name in ("d.txt", "c.txt", "b.txt", "a.txt"):
        shutil.copy(corpus, out / name)
    before = digests(out)
    result = run("build-data", out / "a.txt", "--out", out, "--overwrite")
    assert (result.exit_code, result.stderr) == (1, refusal(out, "a.txt, b.txt, c.txt and 1 more"))
    assert digests(out) == before


def test_overwrite_replaces_every_file_that_bertpt_writes(done, tmp_path, data, trained):
    """Checkpoints, best, a lock that was left, and what datasets caches."""
    out, copy = shutil.copytree(trained, tmp_path / "run"), tmp_path / "data"
    shutil.copytree(data, copy)
    (out / ".lock").touch()
    (copy / "train" / "cache-0123456789abcdef.arrow").touch()
    train = ("pretrain", copy, "--out", out, *TINY, "--steps", 1, "--overwrite", "--quiet")
    done(*train)
    assert (out / "best").is_dir()
    done(*train)


@pytest.fixture
def others_write(tmp_path, monkeypatch):
    """Another process writes to out/ while a command works, before it looks at it again."""
    real = files._sync

    def writing(path):
        (tmp_path / "out.npy").mkdir(exist_ok=True)
        (tmp_path / "out.npy" / "notes").write_text("keep")
        real(path)

    monkeypatch.setattr(files, "_sync", writing)


@pytest.mark.usefixtures("others_write")
@pytest.mark.parametrize("command", ["build-data", "train-tokenizer", "encode"])
def test_what_appears_at_out_during_the_work_is_not_replaced(
    run, tmp_path, corpus, trained, command
):
    out = tmp_path / "out.npy"
    first = (trained, "One.") if command == "encode" else (corpus, "--vocab-size", 99)
    result = run(command, *first, "--out", out, "--quiet")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {out} ")
    assert [path.name for path in out.iterdir()] == ["notes"]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_run_comes_back_if_the_one_that_replaces_it_fails_at_once(run, tmp_path, data, trained):
    out = shutil.copytree(trained, tmp_path / "run")
    before = digests(out)
    diverging = ("--learning-rate", 1e30, "--muon-learning-rate", 1e30, "--warmup", 0)
    result = run("pretrain", data, "--out", out, *TINY, *diverging, "--overwrite", "--quiet")
    assert result.exit_code == 1
    assert "loss nan" in result.stderr
    assert "--resume" not in result.stderr
    assert digests(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
