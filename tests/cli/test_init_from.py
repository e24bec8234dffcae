"""`bertpt pretrain --init-from` and `build-data --tokenizer MODEL`, from the outside."""

import itertools
import json
import re
import shutil

import pytest
import safetensors.torch
import torch
import transformers
from helpers import read_json
from transformers import AutoTokenizer

from bertpt.training.trainer import Trainer

SEQ_LEN = 32  # of the data
SHAPE = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 35,
}
HARDLY = ("--learning-rate", 1e-12, "--muon-learning-rate", 1e-12)  # how weights move
CONTRADICTIONS = {
    "--model": "tiny",
    "--hidden-size": 12,
    "--num-hidden-layers": 1,
    "--num-attention-heads": 2,
    "--intermediate-size": 48,
    "--max-position-embeddings": 32,
    "--pooler": "cls",
    "--init": "mimetic",
}
LACKS = {
    "BertForPreTraining": (),
    "BertForMaskedLM": ("pooler", "NSP head"),
    "BertModel": ("MLM head", "NSP head"),
    "BertForSequenceClassification": ("MLM head", "NSP head"),
}


def metrics(out, split="train"):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [entry for entry in lines if entry["split"] == split]


def weights(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def assert_equal_weights(one, other):
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def contents(folder):
    """Every file and folder with its time of change."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture
def save(data, tmp_path):
    """Saves a model of transformers with the data's tokenizer; returns the folder."""

    def save_kind(kind="BertForPreTraining", **changes):
        vocab_size = read_json(data / "manifest.json")["vocab_size"]
        config = transformers.BertConfig(**{"vocab_size": vocab_size, **SHAPE, **changes})
        model = getattr(transformers, kind)(config)
        generator = torch.Generator().manual_seed(4)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3, generator=generator)
        model.save_pretrained(tmp_path / "theirs")
        AutoTokenizer.from_pretrained(data / "tokenizer").save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs"

    return save_kind


@pytest.fixture
def refused(run, data, tmp_path):
    """A pretraining that must fail with one line and leave nothing; gives the line."""

    def call(*options, status, data=data):
        before = contents(tmp_path)
        result = run("pretrain", data, "--out", tmp_path / "out", *options)
        assert contents(tmp_path) == before
        assert result.stdout == ""
        assert re.fullmatch(r"error: .+\n", result.stderr), result.stderr
        assert result.exit_code == status
        return result.stderr.removesuffix("\n").removeprefix("error: ")

    return call


@pytest.fixture
def pretrained(done, data, tmp_path):
    """Trains from a model into a folder of a name; returns the RUN folder and standard error."""

    def call(model, *options, name="out", data=data):
        out = tmp_path / name
        common = ("--steps", 3, "--warmup", 0, "--log-every", 1, "--batch-size", 5)
        result = done("pretrain", data, "--out", out, "--init-from", model, *common, *options)
        return out, result.stderr

    return call


@pytest.fixture
def built(done, corpus, tmp_path):
    """Builds the corpus with some options; returns the DATA folder."""
    numbers = itertools.count()

    def build(*options):
        out = tmp_path / f"data-{next(numbers)}"
        done("build-data", corpus, "--out", out, "--seq-len", SEQ_LEN, "--quiet", *options)
        return out

    return build


@pytest.fixture
def models(trained, save):
    """All that MODEL may be."""
    return {
        "run": trained,
        "checkpoint": trained / "checkpoints/step-2",
        "model": trained / "model",
        "theirs": save(hidden_act="relu", layer_norm_eps=0.01),
    }


# --------------------------------------------------------------------------------- where it starts


@pytest.mark.parametrize("source", ["run", "checkpoint", "model", "theirs"])
def test_the_loss_at_the_start_is_what_eval_mlm_says_of_the_model(
    done, pretrained, data, models, source
):
    model = models[source]
    output = json.loads(done("eval-mlm", model, data, "--split", "train", "--json").stdout)
    on_all = ("--batch-size", output["num_examples"], "--steps", 1, "--masking", "stored")
    out, stderr = pretrained(model, *on_all, "--precision", "float32")
    [first] = metrics(out)
    for key in ("mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"):
        assert first[key] == pytest.approx(output[key], abs=1e-5), key
    line = stderr.splitlines()[0]
    loss = re.search(rf"loss at the start (\d+\.\d\d), from {model}$", line)[1]
    assert float(loss) == pytest.approx(output["loss"], abs=0.006)


def test_a_run_and_its_model_start_the_same_run(pretrained, trained):
    from_run, _ = pretrained(trained, name="one")
    from_model, _ = pretrained(trained / "model", name="other")
    assert_equal_weights(from_run / "model", from_model / "model")


@pytest.mark.parametrize("kind", LACKS)
def test_a_newly_initialized_head_is_named_on_stderr(pretrained, save, kind):
    folder = save(kind)
    _, stderr = pretrained(folder)
    named = [line for line in stderr.splitlines() if line.startswith(f"{folder}: ")]
    assert len(named) == (kind != "BertForPreTraining")
    for part in ("pooler", "MLM head", "NSP head"):
        assert (f"no {part}" in "".join(named)) == (part in LACKS[kind])
    assert ("ignored classifier.bias, classifier.weight" in "".join(named)) == (
        kind == "BertForSequenceClassification"
    )


def test_quiet_silences_that_too(pretrained, save):
    _, stderr = pretrained(save("BertModel"), "--quiet")
    assert stderr == ""


def test_learning_rates_default_to_a_tenth_and_can_be_given(pretrained, trained):
    options = ("--learning-rate", 0.003, "--muon-learning-rate", 0.004)
    given, _ = pretrained(trained, *options, name="given")
    plain, _ = pretrained(trained, name="plain")
    for out, rates in ((plain, (1e-4, 2e-3)), (given, (0.003, 0.004))):
        settings = read_json(out / "config.json")["settings"]
        assert (settings["learning_rate"], settings["muon_learning_rate"]) == rates
        assert metrics(out)[0]["learning_rate"] == rates[0]


def test_config_json_records_the_model_as_given(run, data, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(trained.parent)
    result = run("pretrain", data, "--out", tmp_path / "out", "--init-from", "run", "--steps", 1)
    assert result.exit_code == 0, result.stderr
    assert read_json(tmp_path / "out/config.json")["settings"]["init_from"] == "run"


def test_a_config_file_may_name_the_model(done, data, trained, tmp_path):
    (tmp_path / "c.toml").write_text(f"init-from = {json.dumps(str(trained))}\nsteps = 1\n")
    out = tmp_path / "out"
    result = done("pretrain", data, "--out", out, "--config", tmp_path / "c.toml")
    assert f"from {trained}\n" in result.stderr
    assert read_json(out / "config.json")["settings"]["init_from"] == str(trained)


def test_a_run_may_replace_the_run_it_starts_from(pretrained, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "out")
    expected, _ = pretrained(trained, name="expected")
    out, _ = pretrained(tmp_path / "out", "--overwrite")
    assert_equal_weights(out / "model", expected / "model")


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("option", "value"), CONTRADICTIONS.items())
def test_options_that_the_model_decides_are_refused(refused, trained, option, value):
    line = refused("--init-from", trained, option, value, status=2)
    assert line == f"{option} and --init-from exclude each other: it is that of {trained}"


def test_a_config_file_that_gives_a_shape_is_refused(refused, trained, tmp_path):
    (tmp_path / "c.toml").write_text("hidden-size = 12\n")
    line = refused("--init-from", trained, "--config", tmp_path / "c.toml", status=2)
    assert line == f"--hidden-size and --init-from exclude each other: it is that of {trained}"


def test_positions_cannot_be_extended_of_a_model_that_is_drawn(refused):
    line = refused("--extend-positions", status=2)
    assert line == "--extend-positions requires --init-from"


def test_a_model_that_is_not_there_is_refused(refused, tmp_path):
    line = refused("--init-from", tmp_path / "nowhere", status=1)
    assert line.startswith(f"no such model folder: {tmp_path / 'nowhere'} (download ")


def test_data_with_another_vocabulary_is_refused_by_both_fingerprints(
    built, refused, trained, data
):
    other = built("--vocab-size", 98)
    mine, theirs = (
        read_json(folder / "manifest.json")["tokenizer_sha256"][:12] for folder in (data, other)
    )
    assert mine != theirs
    line = refused("--init-from", trained, data=other, status=1)
    assert line == (
        f"{trained / 'model'} has tokenizer {mine}, {other} was built with {theirs}; build the "
        f"data with --tokenizer {trained / 'model'}"
    )


def test_a_model_without_a_tokenizer_is_refused(refused, save):
    folder = save()
    for path in folder.glob("*"):
        if "token" in path.name or path.name == "vocab.txt":
            path.unlink()
    line = refused("--init-from", folder, status=1)
    assert line.startswith(f"{folder} contains no tokenizer.json or vocab.txt")


def test_a_vocabulary_larger_than_the_embedding_is_refused_with_both_numbers(refused, save):
    folder = save(vocab_size=97)
    line = refused("--init-from", folder, status=1)
    assert line.startswith(f"{folder}: the tokenizer has 99 entries, the model embeds 97")


def test_sequences_longer_than_the_positions_are_refused_with_the_way_out(refused, save, data):
    line = refused("--init-from", save(max_position_embeddings=29), status=1)
    assert line == (
        f"{data} has sequences of 32 tokens, but the model has 29 positions; give it more with "
        "--extend-positions, or build the data with --seq-len 29"
    )


@pytest.mark.parametrize("extended", [(), ("--extend-positions",)])
def test_a_model_of_one_segment_kind_is_refused(refused, save, data, extended):
    line = refused("--init-from", save(type_vocab_size=1), *extended, status=1)
    assert line == f"{data} has pairs of 2 segments, but the model has type_vocab_size 1"


def test_a_model_of_another_kind_is_refused(refused, save):
    folder = save()
    config = read_json(folder / "config.json")
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}))
    line = refused("--init-from", folder, status=1)
    assert line == f"{folder / 'config.json'} has model type roberta; bertpt reads bert"


def test_a_model_with_a_weight_missing_is_refused(refused, save):
    folder = save()
    tensors = weights(folder)
    del tensors["bert.encoder.layer.1.attention.self.query.weight"]
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    line = refused("--init-from", folder, status=1)
    assert line.startswith(f"{folder} ")
    assert "missing bert.encoder.layer.1.attention.self.query.weight" in line


def test_a_model_whose_file_was_cut_short_is_refused(refused, trained, tmp_path):
    path = shutil.copytree(trained / "model", tmp_path / "cut") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    assert str(path) in refused("--init-from", tmp_path / "cut", status=1)


def test_a_refused_call_does_not_change_out(refused, save, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "out")
    refused("--init-from", save(vocab_size=97), "--overwrite", status=1)
    refused("--init-from", save(), status=1)  # there is a run already
    assert_equal_weights(tmp_path / "out/model", trained / "model")


# ------------------------------------------------------------------------------ more positions


@pytest.mark.parametrize("positions", [29, 13])
def test_a_model_with_more_positions_trains_and_encodes_short_texts_as_before(
    done, pretrained, save, positions
):
    folder = save(max_position_embeddings=positions)
    out, _ = pretrained(folder, "--extend-positions", *HARDLY)
    assert read_json(out / "model/config.json")["max_position_embeddings"] == SEQ_LEN
    assert AutoTokenizer.from_pretrained(out / "model").model_max_length == SEQ_LEN
    assert [entry["step"] for entry in metrics(out)] == [1, 2, 3]
    texts = ("The old dog.", "Our cat sees", "a")
    before, after = (
        [json.loads(line)["embedding"] for line in done("encode", m, *texts).stdout.splitlines()]
        for m in (folder, out)
    )
    for mine, theirs in zip(after, before, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


def test_extending_positions_that_are_long_enough_changes_nothing(pretrained, save):
    folder = save()
    plain, _ = pretrained(folder, name="plain")
    extended, _ = pretrained(folder, "--extend-positions", name="extended")
    assert_equal_weights(plain / "model", extended / "model")
    assert read_json(plain / "model/config.json") == read_json(extended / "model/config.json")


# ---------------------------------------------------------------------------------------- resume


@pytest.fixture
def stopped(run, data, save, tmp_path, monkeypatch):
    """A run from a model that lacks heads and positions, stopped by Ctrl-C in its fourth step.

    Gives the RUN folder, the model's and a run by the same command that was not stopped.
    """
    model = save("BertForMaskedLM", max_position_embeddings=29)
    options = ("--init-from", model, "--extend-positions", "--dropout", 0.1, "--seed", 3)
    length = ("--steps", 5, "--save-every", 2, "--log-every", 1, "--batch-size", 5)
    take_step = Trainer.take_step

    def interrupted(trainer, examples):
        if trainer.budget.step + 1 == 4:
            raise KeyboardInterrupt
        return take_step(trainer, examples)

    out, whole = tmp_path / "out", tmp_path / "whole"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", interrupted)
        assert run("pretrain", data, "--out", out, *options, *length).exit_code == 130
    assert run("pretrain", data, "--out", whole, *options, *length).exit_code == 0
    return out, model, whole


def test_resuming_needs_neither_the_model_nor_another_flag(done, data, stopped):
    out, model, whole = stopped
    shutil.rmtree(model)
    done("pretrain", data, "--out", out, "--resume")
    assert_equal_weights(out / "model", whole / "model")
    mine, theirs = metrics(out), metrics(whole)
    assert [(e["step"], e["loss"]) for e in mine] == [(e["step"], e["loss"]) for e in theirs]
    assert read_json(out / "config.json") == read_json(whole / "config.json")


def test_the_same_options_may_be_repeated_when_resuming(done, data, stopped):
    out, model, whole = stopped
    options = ("--init-from", model, "--extend-positions", "--dropout", 0.1)
    done("pretrain", data, "--out", out, "--resume", *options)
    assert_equal_weights(out / "model", whole / "model")


def test_a_single_option_may_be_repeated_when_resuming(done, data, stopped):
    out, _, whole = stopped
    done("pretrain", data, "--out", out, "--resume", "--extend-positions")
    assert_equal_weights(out / "model", whole / "model")


def test_options_for_a_resumed_run_are_judged_by_what_it_was_started_with(
    done, data, pretrained, trained
):
    out, _ = pretrained(trained, "--batch-size", 40)
    done("pretrain", data, "--out", out, "--resume", "--micro-batch-size", 40, "--steps", 4)
    assert read_json(out / "config.json")["settings"]["micro_batch_size"] == 40


def test_another_model_is_refused_when_resuming(run, data, trained, stopped):
    out, model, _ = stopped
    before = contents(out)
    result = run("pretrain", data, "--out", out, "--resume", "--init-from", trained)
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: --init-from {trained} is not what {out} was started with, {model}; leave it "
        "out, or start another run\n"
    )
    assert contents(out) == before


# ------------------------------------------------------ the tokenizer of a model; there and back


def test_build_data_takes_the_tokenizer_of_a_run_a_model_and_a_data_folder(built, data, models):
    expected = read_json(data / "manifest.json")
    for place in (*models.values(), data):
        manifest = read_json(built("--tokenizer", place) / "manifest.json")
        for key in ("tokenizer_sha256", "vocab_size", "tokens", "examples", "shards"):
            assert manifest[key] == expected[key], (place, key)


def test_data_built_with_a_models_tokenizer_is_what_it_goes_on_with(
    done, pretrained, save, documents, tmp_path
):
    folder = save(max_position_embeddings=23)
    text = "\n\n".join(" ".join(reversed(sentences)) for sentences in documents)
    (tmp_path / "other.txt").write_text(text)
    other = tmp_path / "other"
    done(
        *("build-data", tmp_path / "other.txt", "--out", other, "--tokenizer", folder),
        *("--seq-len", 23, "--quiet"),
    )
    out, stderr = pretrained(folder, data=other)
    assert f"from {folder}\n" in stderr
    assert (out / "model/model.safetensors").is_file()


def test_a_run_goes_through_transformers_and_back(pretrained, trained, tmp_path):
    model = transformers.BertForPreTraining.from_pretrained(trained / "model")
    model.save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(trained / "model").save_pretrained(tmp_path / "theirs")
    from_ours, _ = pretrained(trained, name="ours")
    from_theirs, stderr = pretrained(tmp_path / "theirs", name="back")
    assert_equal_weights(from_ours / "model", from_theirs / "model")
    assert f"from {tmp_path / 'theirs'}\n" in stderr
    assert not [line for line in stderr.splitlines() if line.startswith(f"{tmp_path / 'theirs'}:")]
    configs = [read_json(out / "model/config.json") for out in (from_ours, from_theirs)]
    assert configs[0] == configs[1]
