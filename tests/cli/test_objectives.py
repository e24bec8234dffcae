"""From text to an evaluated model without next sentences: by sentence order, or by MLM alone."""

import json

import pytest
import transformers
from helpers import TINY

from bertpt.data.dataset import Dataset


@pytest.fixture(scope="module", params=["sop", "mlm"])
def objective(request):
    return request.param


@pytest.fixture(scope="module")
def built(done, corpus, tmp_path_factory, objective):
    """A DATA folder of the objective, and a run on it."""
    folder = tmp_path_factory.mktemp(objective)
    data, run = folder / "data", folder / "run"
    options = ("--vocab-size", 99, "--seq-len", 32, "--objective", objective)
    done("build-data", corpus, "--out", data, *options, "--quiet")
    length = ("--steps", 4, "--log-every", 1, "--batch-size", 3)
    done("pretrain", data, "--out", run, *TINY, *length, "--quiet")
    return data, run


def test_examples_have_the_segments_and_labels_of_the_objective(built, objective):
    examples = Dataset(built[0]).examples("train")
    assert len(examples) > 3
    vocab = Dataset(built[0]).tokenizer.vocab
    for example in examples.take(range(len(examples))):
        words = [vocab[i] for i in example.input_ids]
        if objective == "mlm":
            assert example.next_sentence_label == -100
            assert words.count("[SEP]") == 1
            assert example.b_start == len(words)
        else:
            assert example.next_sentence_label in (0, 1)
            assert words.count("[SEP]") == 2
            assert words[example.b_start - 1] == "[SEP]"


def test_a_run_without_pairs_has_no_figures_of_nsp(built, objective):
    _, run = built
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {entry["split"] for entry in entries} == {"train", "valid"}
    for entry in entries:
        assert (entry["nsp_loss"] is None) == (objective == "mlm")
        assert entry["loss"] == pytest.approx(entry["mlm_loss"] + (entry["nsp_loss"] or 0.0))


def test_eval_mlm_takes_data_and_model_of_the_objective(done, built, objective):
    output = json.loads(done("eval-mlm", built[1], built[0], "--json", "--quiet").stdout)
    assert output["num_targets"] > 0
    assert (output["num_pairs"] == 0) == (objective == "mlm")
    assert (output["baselines"]["nsp_majority"]["nsp_accuracy"] is None) == (objective == "mlm")
    assert "NSP" in done("eval-mlm", built[1], built[0], "--quiet").stdout


def test_a_head_for_another_objective_is_left_out_and_that_is_said(done, built, objective, data):
    tokenizer = built[0] / "tokenizer"
    assert (tokenizer / "vocab.txt").read_bytes() == (data / "tokenizer/vocab.txt").read_bytes()
    result = done("eval-mlm", built[1], data, "--json")
    assert json.loads(result.stdout)["num_pairs"] == 0
    has = {"sop": "a head for SOP", "mlm": "no trained NSP head"}[objective]
    assert f"skipping NSP: the model has {has}" in result.stderr


def test_transformers_opens_the_model_and_keeps_the_objective(built, objective, tmp_path):
    model = transformers.AutoModelForPreTraining.from_pretrained(built[1] / "model")
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["objective"] == objective


def test_one_document_is_enough(done, run, tmp_path, objective):
    text = tmp_path / "one.txt"
    text.write_text("A dog runs. It sees a cat.\nThe cat hides. The dog waits. Then it sleeps.\n")
    options = ("--out", tmp_path / "data", "--vocab-size", 60, "--seq-len", 16)
    refused = run("build-data", text, *options)
    assert refused.exit_code == 1
    assert "--objective sop or mlm" in refused.stderr
    done("build-data", text, *options, "--objective", objective)
