"""`bertpt pretrain` from the outside."""

import hashlib
import json
import math
import re
import shutil

import pytest
from helpers import TINY, digests, only_object, read_json


def test_a_run_folder_has_the_documented_files(trained):
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


def test_transformers_loads_the_model(trained):
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


def test_pretrain_prints_the_model_path_and_its_loss(done, data, tmp_path):
    out = tmp_path / "run"
    result = done("pretrain", data, "--out", out, *TINY, "--steps", 2)
    assert result.stdout.startswith(f"{out}/model after 2 steps: held-out MLM loss ")
    first = result.stderr.splitlines()[0]
    assert re.match(r"[\d,]+ parameters \(1 layers, 12 wide\) on \w+, \w+; ", first)
    assert "ln(99) + ln 2 = 5.29" in first  # 4.595 + 0.693


def test_pretrain_gives_the_last_metrics_as_json(done, data, tmp_path):
    out = tmp_path / "run"
    output = only_object(done("pretrain", data, "--out", out, *TINY, "--steps", 2, "--json"))
    last = json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert output == {"out": str(out), **last}
    assert output["step"] == 2


def test_resume_needs_no_other_flag(done, data, trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    (out / "checkpoints" / "step-4").rename(tmp_path / "elsewhere")
    output = only_object(done("pretrain", data, "--out", out, "--resume", "--json"))
    assert output["step"] == 4
    before, after = (digests(run / "model")["model.safetensors"] for run in (trained, out))
    assert before == after


def test_resuming_a_finished_run_says_so_and_keeps_its_model(done, data, trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    result = done("pretrain", data, "--out", out, "--resume", "--json")
    assert "--steps 4 was reached at step 4; nothing is left to train\n" in result.stderr
    assert only_object(result)["step"] == 4
    before, after = (digests(run / "model")["model.safetensors"] for run in (trained, out))
    assert before == after


def test_a_resumed_run_may_be_made_longer(done, data, trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    output = only_object(done("pretrain", data, "--out", out, "--resume", "--steps", 6, "--json"))
    assert output["step"] == 6
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    steps = [entry["step"] for entry in entries if entry["split"] == "train"]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_shards_of_a_corpus_are_built_apart_and_used_together(done, corpus, tmp_path):
    out, tokenizer_path = tmp_path / "run", tmp_path / "tokenizer"
    done("train-tokenizer", corpus, "--out", tokenizer_path, "--vocab-size", 99, "--quiet")
    parts = [tmp_path / f"data-{i}" for i in (1, 2)]
    for i, part in enumerate(parts, start=1):
        options = ("--tokenizer", tokenizer_path, "--seq-len", 32, "--valid-fraction", 0.3)
        output = only_object(
            done("build-data", corpus, "--out", part, *options, "--shard", f"{i}/2", "--json")
        )
        assert output["settings"]["shard"] == f"{i}/2"
        assert output["documents"] == {"train": 2, "valid": 2}  # of 8
    done("pretrain", *parts, "--out", out, *TINY, "--steps", 2, "--quiet")
    output = only_object(done("eval-mlm", out, *parts, "--json", "--quiet"))
    manifests = [read_json(part / "manifest.json") for part in parts]
    assert output["num_examples"] == sum(m["examples"]["valid"] for m in manifests)
    assert output["num_targets"] == sum(m["masked_tokens"]["valid"] for m in manifests)
    resumed = ("pretrain", *parts, "--out", out, "--resume", "--steps", 3, "--json")
    assert only_object(done(*resumed))["step"] == 3


def test_variables_of_torchrun_that_are_incomplete_are_named(run, data, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    result = run("pretrain", data, "--out", tmp_path / "run", *TINY, "--steps", 1)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: WORLD_SIZE is not set")
    assert not (tmp_path / "run").exists()


def test_the_run_records_the_data_path_as_given(run, data, tmp_path, monkeypatch):
    monkeypatch.chdir(data.parent)
    result = run("pretrain", "data", "--out", tmp_path / "run", *TINY, "--steps", 1, "--quiet")
    assert result.exit_code == 0
    assert read_json(tmp_path / "run" / "config.json")["data"]["paths"] == ["data"]
