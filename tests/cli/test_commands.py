"""Each command from the outside: what it prints, and what it leaves on disk."""

import gzip
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertpt import progress
from bertpt.tokenizer.tokenizer import load_tokenizer
from bertpt.training import checkpoint, trainer

COMMAND = [sys.executable, "-m", "bertpt_cli"]
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TINY = ("--hidden-size", 12, "--num-hidden-layers", 1, "--num-attention-heads", 2)
# 14 entries, 2 documents of 3 sentences of 4 tokens
VOCABULARY = "".join(f"{word}\n" for word in [*SPECIAL_TOKENS, *"abcdefgh."])
TWO_DOCUMENTS = "a b c .\nd e f .\ng h a .\n\nb d f .\nc e g .\nh h a .\n"


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def only_object(result):
    """The one JSON object that is all of standard output."""
    assert result.stdout.endswith("\n")
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def digests(folder):
    """The SHA-256 of every file of a folder, by its path in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def shards(folder):
    return {name: digest for name, digest in digests(folder).items() if name.endswith(".arrow")}


@pytest.fixture
def two(tmp_path):
    """A folder with two.txt and vocab.txt, small enough to count by hand."""
    (tmp_path / "two.txt").write_text(TWO_DOCUMENTS)
    (tmp_path / "vocab.txt").write_text(VOCABULARY)
    return tmp_path


# ---------------------------------------------------------------------------------- train-tokenizer


def test_a_vocabulary_starts_with_the_special_tokens(done, corpus, tmp_path):
    out = tmp_path / "tokenizer"
    result = done("train-tokenizer", corpus, "--out", out, "--vocab-size", 99, "--json")
    assert only_object(result)["vocab_size"] == 99
    vocab = (out / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert vocab[:5] == SPECIAL_TOKENS
    assert len(set(vocab)) == 99
    assert {path.name for path in out.iterdir()} == {
        "tokenizer.json",
        "vocab.txt",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_transformers_gives_the_same_ids(done, corpus, tmp_path, lowercase, strip_accents):
    transformers = pytest.importorskip("transformers")
    options = [
        "--lowercase" if lowercase else "--no-lowercase",
        "--strip-accents" if strip_accents else "--no-strip-accents",
    ]
    done("train-tokenizer", corpus, "--out", tmp_path / "t", "--vocab-size", 99, *options)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    assert theirs.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    ours = load_tokenizer(tmp_path / "t")
    for text in ("The old dog sees a stône.", "OUR CAT 中文 hears,\tthe ríver!", "unseen"):
        [ids] = ours.encode_batch([text])
        assert theirs(text)["input_ids"] == [2, *ids, 3]


@pytest.mark.parametrize(
    ("options", "kept", "gone"),
    [
        (["--lowercase", "--strip-accents"], "ce", "CÉé"),
        (["--lowercase", "--no-strip-accents"], "cé", "CÉ"),
        (["--no-lowercase", "--strip-accents"], "CcEe", "Éé"),
        (["--no-lowercase", "--no-strip-accents"], "CcÉé", ""),
    ],
)
def test_lower_casing_and_accent_stripping_are_separate(done, tmp_path, options, kept, gone):
    (tmp_path / "text.txt").write_text("Café CAFÉ café\n" * 3, encoding="utf-8")
    done("train-tokenizer", tmp_path / "text.txt", "--out", tmp_path / "t", *options, "--quiet")
    words = (tmp_path / "t" / "vocab.txt").read_text(encoding="utf-8").splitlines()[5:]
    characters = set("".join(words))
    assert characters.issuperset(kept)
    assert characters.isdisjoint(gone)


# --------------------------------------------------------------------------------------- build-data


def test_the_counts_are_those_of_a_count_by_hand(done, two):
    result = done(
        *("build-data", two / "two.txt", "--out", two / "o", "--tokenizer", two / "vocab.txt"),
        *("--sentence-per-line", "--json"),
    )
    told = only_object(result)
    assert told["documents"] == {"train": 2, "valid": 0}
    assert told["sentences"] == {"train": 6, "valid": 0}
    assert told["tokens"] == {"train": 24, "valid": 0}
    assert told["vocab_size"] == 14
    assert told["unknown_tokens"] == 0
    assert set(told["label_counts"]) == {"train", "valid"}
    for split in ("train", "valid"):
        assert sum(told["label_counts"][split].values()) == told["examples"][split]
    assert told["examples"]["train"] > 0


def test_prose_is_split_into_the_sentences_it_has(done, data, documents):
    result = only_object(done("inspect", data, "--json"))
    assert sum(result["documents"].values()) == len(documents)
    assert sum(result["sentences"].values()) == sum(map(len, documents))
    assert result["documents"]["valid"] >= 2


def test_the_json_object_is_the_manifest(done, corpus, tmp_path):
    out = tmp_path / "data"
    told = only_object(done("build-data", corpus, "--out", out, "--vocab-size", 99, "--json"))
    assert told == {"out": str(out), **read_json(out / "manifest.json")}


def test_the_text_report_has_the_figures_of_the_manifest(done, corpus, tmp_path):
    out = tmp_path / "data"
    result = done("build-data", corpus, "--out", out, "--vocab-size", 99, "--seq-len", 32)
    manifest = read_json(out / "manifest.json")
    for key in ("documents", "sentences", "tokens", "examples"):
        counts = manifest[key]
        row = rf"^{key} +{counts['train']} +{counts['valid']}$"
        assert re.search(row, result.stdout, re.MULTILINE), key
    assert "vocabulary of 99, sequences of 32, seed 0" in result.stdout


def test_datasets_opens_the_shards(data):
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
    """The corpus in several forms, in the current folder: INPUT and standard input for each."""
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
    told = only_object(result)
    assert told["label_counts"]["train"]["is_next"] == 0
    assert told["label_counts"]["train"]["random"] == told["examples"]["train"] > 0
    assert "warning: 3 of 3 documents have one sentence" in result.stderr


def test_an_option_is_off_when_it_says_no(done, corpus, tmp_path):
    done("build-data", corpus, "--out", tmp_path / "o", "--no-lowercase", "--quiet")
    assert read_json(tmp_path / "o" / "manifest.json")["tokenizer"]["lowercase"] is False
    vocab = (tmp_path / "o" / "tokenizer" / "vocab.txt").read_text().splitlines()[5:]
    assert any(token != token.lower() for token in vocab)


# ------------------------------------------------------------------------------------------ inspect


def test_inspect_prints_the_figures_and_examples_with_their_masks(done, data):
    result = done("inspect", data, "--examples", 2)
    assert result.stderr == ""
    manifest = read_json(data / "manifest.json")
    documents = manifest["documents"]
    row = rf"^documents +{documents['train']} +{documents['valid']}$"
    assert re.search(row, result.stdout, re.MULTILINE)
    headings = re.findall(
        r"^train example \d+: B (?:follows A|is random), (\d+) tokens, (\d+) to predict",
        result.stdout,
        re.MULTILINE,
    )
    assert len(headings) == 2
    assert len(re.findall(r"^A  \S", result.stdout, re.MULTILINE)) == 2
    assert len(re.findall(r"^B  \S", result.stdout, re.MULTILINE)) == 2
    shown = result.stdout.split("train example")[1:]
    for (_, num_predictions), text in zip(headings, shown, strict=True):
        marks = re.findall(r"\[[^\s|]+\|[^\s|\]]+\]", text.replace("[seen|true]", ""))
        assert len(marks) == int(num_predictions) > 0


def test_inspect_gives_the_manifest_and_the_examples_as_json(done, data):
    told = only_object(done("inspect", data, "--split", "valid", "--examples", 3, "--json"))
    manifest = read_json(data / "manifest.json")
    assert {key: told[key] for key in manifest} == manifest
    assert told["split"] == "valid"
    assert len(told["shown"]) == 3
    for example in told["shown"]:
        assert (example["a"] + example["b"]).count("|") == example["num_predictions"]


# ----------------------------------------------------------------------------------------- pretrain


def test_a_run_folder_has_the_parts_that_the_readme_names(trained):
    assert {path.name for path in trained.iterdir()} == {
        "config.json",
        "checked_data.json",
        "metrics.jsonl",
        "checkpoints",
        "model",
        "best",
    }
    assert {path.name for path in (trained / "checkpoints").iterdir()} == {"step-2", "step-4"}
    for folder in (trained / "model", trained / "checkpoints" / "step-4"):
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
            path.name for path in folder.iterdir()
        }


def test_the_run_records_settings_versions_and_data(trained, data):
    config = read_json(trained / "config.json")
    assert config["settings"]["steps"] == 4
    assert config["settings"]["optimizer"] == "muon"  # as the recipe decides
    assert "torch" in config["packages"]
    manifest = hashlib.sha256((data / "manifest.json").read_bytes()).hexdigest()
    assert config["data"] == {"paths": [str(data)], "sha256": manifest}


def test_every_logged_step_has_its_metrics(trained):
    lines = (trained / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    steps = [entry for entry in entries if entry["split"] == "train"]
    assert [entry["step"] for entry in steps] == [1, 2, 3, 4]
    losses = {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    for entry in steps:
        assert losses | {"learning_rate", "tokens_per_second"} <= set(entry)
        assert math.isclose(entry["loss"], entry["mlm_loss"] + entry["nsp_loss"], rel_tol=1e-6)
    assert entries[-1]["split"] == "valid"
    assert losses | {"mlm_perplexity", "num_examples", "num_targets"} <= set(entries[-1])


def test_transformers_opens_the_model(trained):
    transformers = pytest.importorskip("transformers")
    model, info = transformers.AutoModelForPreTraining.from_pretrained(
        trained / "model", output_loading_info=True
    )
    assert type(model).__name__ == "BertForPreTraining"
    assert not any(info.values()), info
    assert model.config.hidden_size == 12
    assert model.num_parameters() > 0
    vocabulary = transformers.AutoTokenizer.from_pretrained(trained / "model")
    assert len(vocabulary) == model.config.vocab_size


def test_pretrain_tells_where_the_model_is_and_how_good(done, data, tmp_path):
    out = tmp_path / "run"
    result = done("pretrain", data, "--out", out, *TINY, "--steps", 2)
    assert result.stdout.startswith(f"{out}/model after 2 steps: held-out MLM loss ")
    first = result.stderr.splitlines()[0]
    assert re.match(r"[\d,]+ parameters \(1 layers, 12 wide\) on \w+, \w+; ", first)
    assert "ln(99) + ln 2 = 5.29" in first  # 4.595 + 0.693


def test_pretrain_gives_the_last_metrics_as_json(done, data, tmp_path):
    out = tmp_path / "run"
    told = only_object(done("pretrain", data, "--out", out, *TINY, "--steps", 2, "--json"))
    last = json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert told == {"out": str(out), **last}
    assert told["step"] == 2


def test_resume_needs_no_other_flag(done, data, trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    (out / "checkpoints" / "step-4").rename(tmp_path / "elsewhere")
    told = only_object(done("pretrain", data, "--out", out, "--resume", "--json"))
    assert told["step"] == 4
    before, after = (
        hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()
        for run in (trained, out)
    )
    assert before == after


def test_a_resumed_run_may_be_made_longer(done, data, trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    told = only_object(done("pretrain", data, "--out", out, "--resume", "--steps", 6, "--json"))
    assert told["step"] == 6
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    steps = [entry["step"] for entry in entries if entry["split"] == "train"]
    assert steps == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------------------------ parts of a corpus


def test_parts_of_a_corpus_are_built_trained_and_evaluated_on_together(done, corpus, tmp_path):
    out, tokenizer_path = tmp_path / "run", tmp_path / "tokenizer"
    done("train-tokenizer", corpus, "--out", tokenizer_path, "--vocab-size", 99, "--quiet")
    parts = [tmp_path / f"data-{i}" for i in (1, 2)]
    for i, part in enumerate(parts, start=1):
        options = ("--tokenizer", tokenizer_path, "--seq-len", 32, "--valid-fraction", 0.3)
        told = only_object(
            done("build-data", corpus, "--out", part, *options, "--shard", f"{i}/2", "--json")
        )
        assert told["settings"]["shard"] == f"{i}/2"
        assert told["documents"] == {"train": 2, "valid": 2}  # of 8
    done("pretrain", *parts, "--out", out, *TINY, "--steps", 2, "--quiet")
    told = only_object(done("eval-mlm", out, *parts, "--json", "--quiet"))
    manifests = [read_json(part / "manifest.json") for part in parts]
    assert told["num_examples"] == sum(m["examples"]["valid"] for m in manifests)
    assert told["num_targets"] == sum(m["masked_tokens"]["valid"] for m in manifests)
    resumed = ("pretrain", *parts, "--out", out, "--resume", "--steps", 3, "--json")
    assert only_object(done(*resumed))["step"] == 3


def test_a_config_file_may_give_the_part(done, two):
    (two / "c.toml").write_text('shard = "2/2"\nobjective = "mlm"\n')
    given = (two / "two.txt", "--tokenizer", two / "vocab.txt", "--config", two / "c.toml")
    told = only_object(done("build-data", *given, "--out", two / "o", "--json"))
    assert told["documents"] == {"train": 1, "valid": 0}


def test_a_part_of_standard_input_is_every_nth_document(done, two):
    options = ("--tokenizer", two / "vocab.txt", "--sentence-per-line", "--objective", "mlm")
    for i, sentences in enumerate(TWO_DOCUMENTS.split("\n\n"), start=1):
        out = two / f"o-{i}"
        build = ("build-data", "-", "--out", out, *options, "--shard", f"{i}/2", "--quiet")
        done(*build, stdin=TWO_DOCUMENTS)
        shown = only_object(done("inspect", out, "--examples", 1, "--json"))["shown"]
        words = re.sub(r"\[[^|]*\|(.*?)\]", r" \1 ", shown[0]["a"]).split()
        assert words == sentences.split()


# ----------------------------------------------------------------------------------------- eval-mlm


def test_eval_mlm_gives_the_figures_as_json(done, data, trained):
    told = only_object(done("eval-mlm", trained, data, "--json"))
    for key in ("mlm_accuracy", "nsp_accuracy", "mlm_top5_accuracy"):
        assert 0 <= told[key] <= 1
    assert math.isclose(told["mlm_perplexity"], math.exp(told["mlm_loss"]))
    assert math.isclose(told["loss"], told["mlm_loss"] + told["nsp_loss"])
    manifest = read_json(data / "manifest.json")
    assert told["num_examples"] == manifest["examples"]["valid"]
    assert told["num_targets"] == manifest["masked_tokens"]["valid"]
    assert set(told["baselines"]) == {"uniform", "unigram", "nsp_majority"}
    assert math.isclose(told["baselines"]["uniform"]["mlm_loss"], math.log(99))


def test_eval_mlm_gives_the_same_every_time_and_for_every_form_of_the_model(done, data, trained):
    models = (trained, trained, trained / "model", trained / "checkpoints" / "step-4")
    told = {done("eval-mlm", model, data, "--json", "--quiet").stdout for model in models}
    assert len(told) == 1


def test_eval_mlm_does_not_depend_on_the_batch_size(done, data, trained):
    one, seven = (
        only_object(done("eval-mlm", trained, data, "--batch-size", size, "--json"))
        for size in (1, 7)
    )
    for key in ("mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"):
        assert math.isclose(one[key], seven[key], rel_tol=1e-6), key
    assert one["num_targets"] == seven["num_targets"]


def test_eval_mlm_prints_a_table_beside_its_baselines(done, data, trained):
    told = only_object(done("eval-mlm", trained, data, "--json"))
    result = done("eval-mlm", trained, data)
    rows = {line[:39].strip(): line[39:].split() for line in result.stdout.splitlines()[1:]}
    assert result.stdout.splitlines()[0] == (
        f"{told['num_examples']} valid examples, {told['num_targets']} targets"
    )
    assert rows["MLM"][0] == f"{told['mlm_loss']:.3f}"
    assert rows["NSP"][0] == f"{told['nsp_loss']:.3f}"
    unigram = told["baselines"]["unigram"]
    assert rows["unigram baseline"] == [
        f"{unigram['mlm_loss']:.3f}",
        f"{100 * unigram['mlm_accuracy']:.1f}%",
    ]
    assert "majority baseline" in rows


def test_eval_mlm_takes_the_training_split(done, data, trained):
    told = only_object(done("eval-mlm", trained, data, "--split", "train", "--json"))
    assert told["split"] == "train"
    assert told["num_examples"] == read_json(data / "manifest.json")["examples"]["train"]


# ---------------------------------------------------------------------------------------- fill-mask


def test_fill_mask_gives_an_object_for_each_text(done, trained):
    texts = ["The old [MASK] sees a stone.", "[MASK] cat [MASK]"]
    result = done("fill-mask", trained, *texts, "--top-k", 3, "--json")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [entry["text"] for entry in told] == texts
    assert [len(entry["masks"]) for entry in told] == [1, 2]
    for candidates in (mask for entry in told for mask in entry["masks"]):
        scores = [candidate["score"] for candidate in candidates]
        assert len(scores) == 3
        assert 1 > scores[0] >= scores[1] >= scores[2] > 0
    best = told[0]["masks"][0][0]
    assert best["sequence"].startswith("the old")
    assert "[MASK]" not in best["sequence"]


def test_fill_mask_prints_a_line_for_each_candidate(done, trained):
    told = json.loads(done("fill-mask", trained, "a [MASK].", "--top-k", 4, "--json").stdout)
    lines = done("fill-mask", trained, "a [MASK].", "--top-k", 4).stdout.split("\n")
    assert lines[4:] == ["", ""]
    for line, candidate in zip(lines, told["masks"][0], strict=False):
        token, score, sequence = line.split(maxsplit=2)
        assert token == candidate["token"]
        assert score == f"{100 * candidate['score']:.1f}%"
        assert sequence == candidate["sequence"]


# ---------------------------------------------------------------- what all commands have in common


def test_a_config_file_fills_in_defaults_and_a_flag_beats_it(done, corpus, tmp_path):
    (tmp_path / "c.toml").write_text(
        'seq-len = 48\nvocab_size = 88\nshort-seq-prob = 0.5\nlowercase = false\nlanguage = "de"\n'
    )
    build = ("build-data", corpus, "--config", tmp_path / "c.toml", "--quiet")
    done(*build, "--out", tmp_path / "o", "--seq-len", 24)
    manifest = read_json(tmp_path / "o" / "manifest.json")
    assert manifest["settings"]["seq_len"] == 24  # the flag
    assert manifest["settings"]["short_seq_prob"] == 0.5  # the file
    assert manifest["settings"]["language"] == "de"
    assert manifest["tokenizer"]["vocab_size"] == manifest["vocab_size"] == 88
    assert manifest["tokenizer"]["lowercase"] is False
    assert manifest["settings"]["dupe_factor"] == 1  # the default


def test_a_config_file_may_give_what_must_be_given(done, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text('out = "from-file"\nvocab-size = 99\nquiet = true\n')
    result = done("build-data", corpus, "--config", "c.toml")
    assert (tmp_path / "from-file" / "manifest.json").is_file()
    assert result.stderr == ""


def test_a_config_file_drives_a_run(done, data, tmp_path):
    (tmp_path / "c.toml").write_text(
        "hidden-size = 12\nnum-hidden-layers = 1\nnum-attention-heads = 2\nsteps = 2\n"
        'optimizer = "adamw"\n'
    )
    run = tmp_path / "run"
    done("pretrain", data, "--out", run, "--config", tmp_path / "c.toml", "--steps", 1, "--quiet")
    settings = read_json(run / "config.json")["settings"]
    assert (settings["steps"], settings["optimizer"], settings["hidden_size"]) == (1, "adamw", 12)


@pytest.fixture(params=["train-tokenizer", "build-data", "pretrain", "eval-mlm"])
def stage(request, tmp_path, corpus):
    """A call of each command that tells its progress."""
    out = ("--out", tmp_path / "o")
    data, trained = request.getfixturevalue("data"), request.getfixturevalue("trained")
    return {
        "train-tokenizer": ("train-tokenizer", corpus, *out, "--vocab-size", 99),
        "build-data": ("build-data", corpus, *out, "--vocab-size", 99),
        "pretrain": ("pretrain", data, *out, *TINY, "--steps", 3, "--eval-every", 1),
        "eval-mlm": ("eval-mlm", trained, data, "--batch-size", 1),
    }[request.param]


def test_quiet_leaves_stderr_empty(done, stage):
    result = done(*stage, "--quiet")
    assert result.stderr == ""
    assert result.stdout != ""


def test_a_log_file_gets_whole_lines(done, stage, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    result = done(*stage)
    assert result.stderr_bytes.endswith(b"\n")
    for control in (b"\r", b"\x1b", b"\n\n"):
        assert control not in result.stderr_bytes


def start(*arguments, **options):
    """Starts the command, its standard streams being pipes unless told otherwise."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], text=True, **pipes)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_run_with_its_status_and_no_traceback(data, tmp_path, number, status):
    endless = ("--steps", 1_000_000, "--eval-every", 1)
    run = ("pretrain", data, "--out", tmp_path / "run", *TINY, *endless)
    # Under nohup, the tests and what they start would ignore SIGHUP.
    with start(*run, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as process:
        for line in process.stderr:
            if line.startswith("step 1: "):
                break
        process.send_signal(number)
        try:
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == status
    assert stdout == ""
    assert "Traceback" not in stderr
    assert not [path for path in tmp_path.rglob(".*") if ".tmp-" in path.name]


SIGNALLED_IN_AN_IMPORT = """
import os
import signal
import sys
signal.signal({number}, signal.SIG_DFL)  # nohup lets SIGHUP be ignored
from bertpt_cli.main import app
class Swallowing:
    def find_spec(self, name, *_):
        if name == "torch":
            try:
                os.kill(os.getpid(), {number})
                for _ in range(1000):
                    pass
            except BaseException:
                pass
sys.meta_path.insert(0, Swallowing())
app()
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_no_import_of_pretrain_swallows_a_signal(data, tmp_path, number, status):
    pretrain = ("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    script = SIGNALLED_IN_AN_IMPORT.format(number=int(number))
    command = [sys.executable, "-c", script, *map(str, pretrain)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (status, "", "")


def test_a_save_that_is_asked_for_before_training_ends_nothing(done, data, tmp_path, monkeypatch):
    dataset = trainer.Dataset

    def asked(*arguments, **named):
        os.kill(os.getpid(), signal.SIGUSR1)
        return dataset(*arguments, **named)

    def end(*_):
        raise AssertionError("what would have ended the process")

    monkeypatch.setattr(trainer, "Dataset", asked)
    before = signal.signal(signal.SIGUSR1, end)
    try:
        done("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    finally:
        signal.signal(signal.SIGUSR1, before)


SLOW_SECOND_SAVE = """
import time
from bertpt.training.checkpoint import Snapshot
from bertpt_cli.main import app
write = Snapshot.write_model
def slowly(snapshot, folder, card):
    write(snapshot, folder, card)
    if "step-2" in folder.name:
        print("saving", flush=True)
        time.sleep(600)
Snapshot.write_model = slowly
app()
"""


def test_a_second_ctrl_c_leaves_at_once_in_the_midst_of_a_save(done, data, tmp_path):
    run = tmp_path / "run"
    often = ("--steps", 3, "--save-every", 1, "--keep-last", 0, "--loader-workers", 1)
    command = [sys.executable, "-c", SLOW_SECOND_SAVE, "pretrain", data, "--out", run, *TINY]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*map(str, (*command, *often))], **pipes) as process:
        assert process.stdout.readline() == "saving\n"
        others = psutil.Process(process.pid).children(recursive=True)
        assert others
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # the first waits for it
            process.wait(timeout=1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        stderr = process.stderr.read()
    assert "quit without finishing the save; continue with --resume" in stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive
    resumed = done("pretrain", data, "--out", run, "--resume", "--loader-workers", 0)
    assert "which a killed process left unfinished" in resumed.stderr
    assert f"resuming {run} after step 1\n" in resumed.stderr
    assert not [path for path in run.rglob(".*") if ".tmp-" in path.name]


@pytest.fixture
def building(tmp_path):
    """A build-data that waits for more text, and the processes that work for it."""
    words = [f"{a}{b}" for a in "bdfgklmn" for b in ("a", "et", "ing", "or", "un")]
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]))
    text = "".join(f"{' '.join(words[i:])}.\n\n" for i in range(40)) * 200  # 0.7 MB
    options = ("--tokenizer", tmp_path / "vocab.txt", "--workers", 2, "--out", tmp_path / "data")
    with start("build-data", "-", *options, stdin=subprocess.PIPE, start_new_session=True) as main:
        # More than the pipe and the first tasks take, so this returns when the other process is at
        # work; then the command waits for more.
        for _ in range(8):
            main.stdin.write(text)
        main.stdin.flush()
        others = psutil.Process(main.pid).children(recursive=True)
        assert others, "a process of its own works on the text"
        assert len(list(tmp_path.iterdir())) == 2
        yield main, others


@pytest.mark.parametrize(
    ("number", "status", "send"),
    [
        (signal.SIGTERM, 143, os.kill),
        pytest.param(signal.SIGTERM, 143, os.killpg, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, os.kill, marks=pytest.mark.slow),
        (signal.SIGINT, 130, os.killpg),
    ],
)
def test_a_signal_leaves_nothing_of_an_unfinished_data_folder(
    building, tmp_path, number, status, send
):
    process, others = building
    send(process.pid, number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == status
    assert stdout == ""
    assert "Traceback" not in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive


def test_a_build_that_is_killed_leaves_no_process_and_the_next_one_no_file_of_it(
    building, done, corpus, tmp_path
):
    process, others = building
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive
    assert len(list(tmp_path.iterdir())) == 2
    done("build-data", corpus, "--vocab-size", 99, "--out", tmp_path / "data", "--quiet")
    assert {path.name for path in tmp_path.iterdir()} == {"vocab.txt", "data"}


def run_with_stdout_closed(*arguments):
    """What `bertpt ... | head -1` comes to: the reader has gone when the command prints."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with start(*arguments, stdout=writer) as process:
            _, stderr = process.communicate(timeout=60)
    finally:
        os.close(writer)
    return process.returncode, stderr


def test_a_reader_that_goes_away_is_no_error(data):
    status, stderr = run_with_stdout_closed("inspect", data)
    assert stderr == ""
    assert status in (0, 128 + signal.SIGPIPE)


@pytest.mark.slow
def test_a_run_is_finished_though_nobody_reads_its_result(data, tmp_path):
    out = tmp_path / "run"
    _, stderr = run_with_stdout_closed(
        "pretrain", data, "--out", out, *TINY, "--steps", 2, "--quiet"
    )
    assert stderr == ""
    assert (out / "model" / "model.safetensors").is_file()
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-2"]


@pytest.mark.slow
def test_a_closed_standard_error_changes_nothing_else(data, tmp_path):
    pretrain = ("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    shell = f"{shlex.join([*COMMAND, *map(str, pretrain)])} 2>&-"
    result = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 0
    assert "after 1 step: " in result.stdout


def test_the_first_line_comes_through_a_pipe_to_head(data):
    shell = f"{shlex.join([*COMMAND, 'inspect', str(data)])} | head -1"
    result = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["train", "valid"]
    assert result.stderr == ""


def test_paths_in_messages_are_those_that_were_given(run, data, tmp_path, monkeypatch):
    monkeypatch.chdir(data.parent)
    result = run("pretrain", "data", "--out", tmp_path / "run", *TINY, "--steps", 1, "--quiet")
    assert result.exit_code == 0
    assert read_json(tmp_path / "run" / "config.json")["data"]["paths"] == ["data"]


# ------------------------------------------------------------------- whether resuming works here


def test_verify_resume_says_so_and_writes_nothing(done, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verify = ("pretrain", data, *TINY, "--verify-resume", 4, "--quiet")
    result = done(*verify)
    assert result.stdout == (
        "4 steps, saved and loaded after 2: losses and weights agree bit for bit\n"
    )
    assert json.loads(done(*verify, "--json").stdout)["identical"] is True
    assert list(tmp_path.iterdir()) == []


def test_verify_resume_fails_by_how_much(run, data, monkeypatch):
    monkeypatch.setattr(checkpoint, "load_optimizer_state", lambda *_: None)
    result = run("pretrain", data, *TINY, "--verify-resume", 4, "--quiet")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"4 steps, saved and loaded after 2: losses differ by at most [\d.e-]+, weights by at most "
        r"[\d.e-]+; the first at step 4\n",
        result.stdout,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--resume", "--verify-resume", 4), "--verify-resume and --resume exclude each other"),
        (("--verify-resume", 1), "--verify-resume 1 must be at least 2"),
        ((), "Missing option '--out'."),
    ],
)
def test_what_verify_resume_and_out_need_is_one_line(run, data, options, message):
    result = run("pretrain", data, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"error: {message}"


def test_verify_resume_is_refused_in_several_processes(run, data, monkeypatch):
    ours = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    result = run("pretrain", data, *TINY, "--verify-resume", 4)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: --verify-resume is for one process; start it without torchrun\n"


def test_variables_of_torchrun_that_are_incomplete_are_named(run, data, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    result = run("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: WORLD_SIZE is not set")
    assert not (tmp_path / "run").exists()
