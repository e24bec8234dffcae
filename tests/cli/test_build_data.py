"""`bertpt build-data` from the outside."""

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import COMMAND, TWO_DOCUMENTS, digests, only_object, read_json, shards


def test_the_counts_equal_a_count_by_hand(done, two):
    result = done(
        *("build-data", two / "two.txt", "--out", two / "o", "--tokenizer", two / "vocab.txt"),
        *("--sentence-per-line", "--json"),
    )
    output = only_object(result)
    assert output["documents"] == {"train": 2, "valid": 0}
    assert output["sentences"] == {"train": 6, "valid": 0}
    assert output["tokens"] == {"train": 24, "valid": 0}
    assert output["vocab_size"] == 14
    assert output["unknown_tokens"] == 0
    assert set(output["label_counts"]) == {"train", "valid"}
    for split in ("train", "valid"):
        assert sum(output["label_counts"][split].values()) == output["examples"][split]
    assert output["examples"]["train"] > 0


def test_prose_is_split_into_its_sentences(done, data, documents):
    result = only_object(done("inspect", data, "--json"))
    assert sum(result["documents"].values()) == len(documents)
    assert sum(result["sentences"].values()) == sum(map(len, documents))
    assert result["documents"]["valid"] >= 2


def test_the_json_object_is_the_manifest(done, corpus, tmp_path):
    out = tmp_path / "data"
    output = only_object(done("build-data", corpus, "--out", out, "--vocab-size", 99, "--json"))
    assert output == {"out": str(out), **read_json(out / "manifest.json")}


def test_the_text_report_has_the_figures_of_the_manifest(done, corpus, tmp_path):
    out = tmp_path / "data"
    result = done("build-data", corpus, "--out", out, "--vocab-size", 99, "--seq-len", 32)
    manifest = read_json(out / "manifest.json")
    for key in ("documents", "sentences", "tokens", "examples"):
        counts = manifest[key]
        row = rf"^{key} +{counts['train']} +{counts['valid']}$"
        assert re.search(row, result.stdout, re.MULTILINE), key
    assert "vocabulary of 99, sequences of 32, seed 0" in result.stdout


def test_datasets_loads_the_shards(data):
    datasets = pytest.importorskip("datasets")
    manifest = read_json(data / "manifest.json")
    for split in ("train", "valid"):
        rows = datasets.load_from_disk(str(data / split))
        assert len(rows) == manifest["examples"][split]
        assert set(rows.column_names) == {
            "input_ids",
            "b_start",
            "next_sentence_label",
            "masked_positions",
            "masked_input_ids",
        }
        assert rows.features["input_ids"].feature.dtype == "uint16"
        labels = rows["next_sentence_label"][:]
        assert manifest["label_counts"][split] == {
            "is_next": labels.count(0),
            "random": labels.count(1),
        }


@pytest.fixture
def same_text(tmp_path, text, monkeypatch):
    """Writes the corpus in several forms; returns INPUT and standard input for each."""
    monkeypatch.chdir(tmp_path)
    packed = gzip.compress(text.encode())
    half = text.index("\n\n", len(text) // 2)
    first, second = text[:half], text[half:].lstrip("\n")  # so the end of a file ends a document
    for name, content in {
        "whole": text,
        "my corpus.txt": text,
        "1.txt": first,
        "2.txt": second,
        "parts/a.txt": first,
        "parts/sub/b.txt": second,
        "parts/notes.md": "no text",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (tmp_path / "whole.txt.gz").write_bytes(packed)
    (tmp_path / "packed.txt").write_bytes(packed)
    with pa.CompressedOutputStream(tmp_path / "whole.txt.zst", "zstd") as stream:
        stream.write(text.encode())
    rows = [document for document in text.split("\n\n") if document]
    jsonl = "".join(json.dumps({"text": row}) + "\n" for row in rows)
    (tmp_path / "whole.jsonl").write_text(jsonl)
    pq.write_table(pa.table({"text": rows}), tmp_path / "whole.parquet")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text(jsonl)
    return {
        "a file": (["whole"], None),
        "two files": (["1.txt", "2.txt"], None),
        "a folder": (["parts"], None),
        "a glob": (["[12].txt"], None),
        "gzip": (["whole.txt.gz"], None),
        "gzip by its content": (["packed.txt"], None),
        "standard input": (["-"], text),
        "gzip on standard input": (["-"], packed),
        "a path with a space": (["my corpus.txt"], None),
        "zstd": (["whole.txt.zst"], None),
        "JSONL": (["whole.jsonl"], None),
        "JSONL on standard input": (["jsonl:-"], jsonl),
        "Parquet": (["whole.parquet"], None),
        "a data set": (["hf:./set"], None),
    }


@pytest.mark.parametrize(
    "form",
    [
        *("a file", "two files", "a folder", "a glob", "gzip", "gzip by its content"),
        *("standard input", "gzip on standard input", "a path with a space"),
        *("zstd", "JSONL", "JSONL on standard input", "Parquet", "a data set"),
    ],
)
def test_the_same_text_gives_the_same_examples_in_every_form(done, data, same_text, form):
    given, stdin = same_text[form]
    build = ("build-data", *given, "--out", "o", "--vocab-size", 99, "--seq-len", 32)
    done(*build, stdin=stdin)
    assert read_json(Path("o/manifest.json"))["inputs"] == given
    assert shards(Path("o")) == shards(data)


def test_the_same_command_gives_the_same_bytes_under_any_hash_seed(corpus, tmp_path):
    def build(name, hash_seed):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(corpus, folder / "corpus.txt")
        arguments = ["build-data", "corpus.txt", "--out", "data", "--vocab-size", "99", "--quiet"]
        subprocess.run(
            [*COMMAND, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        )
        return digests(folder / "data")

    first, second = build("here", "0"), build("there", "4321")
    assert {"manifest.json", "tokenizer/tokenizer.json", "train/data-00000.arrow"} <= set(first)
    assert first == second


def test_another_seed_gives_other_examples(done, data, corpus, tmp_path):
    build = ("build-data", corpus, "--vocab-size", 99, "--seq-len", 32, "--quiet")
    done(*build, "--out", tmp_path / "o", "--seed", 1)
    assert shards(tmp_path / "o") != shards(data)
    assert digests(tmp_path / "o" / "tokenizer") == digests(data / "tokenizer")


def test_one_sentence_documents_give_random_pairs_and_a_warning(done, two):
    (two / "single.txt").write_text("a b .\n\nc d .\n\ne f .\n")
    result = done(
        *("build-data", two / "single.txt", "--out", two / "o"),
        *("--tokenizer", two / "vocab.txt", "--json"),
    )
    output = only_object(result)
    assert output["label_counts"]["train"]["is_next"] == 0
    assert output["label_counts"]["train"]["random"] == output["examples"]["train"] > 0
    assert "warning: 3 of 3 documents have one sentence" in result.stderr


def test_a_no_option_turns_its_setting_off(done, corpus, tmp_path):
    done("build-data", corpus, "--out", tmp_path / "o", "--no-lowercase", "--quiet")
    assert read_json(tmp_path / "o" / "manifest.json")["tokenizer"]["lowercase"] is False
    vocab = (tmp_path / "o" / "tokenizer" / "vocab.txt").read_text().splitlines()[5:]
    assert any(token != token.lower() for token in vocab)


def test_a_file_name_may_be_invalid_utf8(run, tmp_path, text):
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_text(text)
    result = run("build-data", path, "--out", tmp_path / "data", "--vocab-size", 99, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["inputs"] == [str(tmp_path / "caf\ufffd.txt")]


def test_the_case_of_a_vocab_txt_can_be_set(done, corpus, tmp_path, data):
    vocab = shutil.copy(data / "tokenizer" / "vocab.txt", tmp_path / "vocab.txt")
    for flag, expected in (("--no-lowercase", False), ("--lowercase", True)):
        out = tmp_path / flag
        done("build-data", corpus, "--out", out, "--tokenizer", vocab, flag)
        stored = json.loads((out / "tokenizer" / "tokenizer_config.json").read_text())
        assert stored["do_lower_case"] is stored["strip_accents"] is expected


def test_a_config_file_may_set_the_shard(done, two):
    (two / "c.toml").write_text('shard = "2/2"\nobjective = "mlm"\n')
    given = (two / "two.txt", "--tokenizer", two / "vocab.txt", "--config", two / "c.toml")
    output = only_object(done("build-data", *given, "--out", two / "o", "--json"))
    assert output["documents"] == {"train": 1, "valid": 0}


def test_a_shard_of_standard_input_is_every_nth_document(done, two):
    options = ("--tokenizer", two / "vocab.txt", "--sentence-per-line", "--objective", "mlm")
    for i, sentences in enumerate(TWO_DOCUMENTS.split("\n\n"), start=1):
        out = two / f"o-{i}"
        build = ("build-data", "-", "--out", out, *options, "--shard", f"{i}/2", "--quiet")
        done(*build, stdin=TWO_DOCUMENTS)
        shown = only_object(done("inspect", out, "--examples", 1, "--json"))["shown"]
        words = re.sub(r"\[[^|]*\|(.*?)\]", r" \1 ", shown[0]["a"]).split()
        assert words == sentences.split()
