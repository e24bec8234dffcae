"""Masks, dropout, tied weights: faults that users of other tools met, and the right value."""

import json
import random
import shutil

import pytest
import safetensors.torch
import torch
import transformers

from bertpt.data import batches
from bertpt.training import step

FIGURES = ("loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")


@pytest.fixture(scope="module")
def data(build):
    """Examples of 7 to 16 tokens, some of them held out."""
    rng = random.Random(2)
    lines = [" ".join(rng.choices("abcdefgh.", k=rng.randint(1, 6))) for _ in range(48)]
    text = "\n\n".join("\n".join(lines[i : i + 4]) for i in range(0, 48, 4))
    return build(text, "--seq-len", 16, "--dupe-factor", 3, "--valid-fraction", 0.3)


@pytest.fixture(scope="module")
def trained(pretrain, data):
    """A run whose attention and dropout make a difference: its weights are large."""
    options = ("--steps", 20, "--dropout", 0.5, "--max-position-embeddings", 64)
    rates = ("--learning-rate", 0.03, "--muon-learning-rate", 0.1)
    return pretrain(data, *options, *rates, "--eval-every", 10, "--eval-examples", 0)


# ------------------------------------------------------------------------------------------ padding


def padded(length, fill):
    """Makes batches as `collate` does, with more padding, and other ids and segments under it."""
    collate = batches.collate

    def wide(examples, *, pad_id):
        batch = collate(examples, pad_id=pad_id, length=length)
        if fill:
            is_padding = torch.arange(length) >= batch.lengths[:, None]
            assert is_padding.any()
            noise = torch.randint(0, 14, is_padding.shape)
            batch.input_ids[is_padding] = noise[is_padding]
            batch.token_type_ids[is_padding] = 1
        return batch

    return wide


WIDTHS = {"to 16": (16, False), "to 64": (64, False), "with other ids": (64, True)}


@pytest.mark.parametrize(("length", "fill"), WIDTHS.values(), ids=list(WIDTHS))
def test_padding_changes_no_figure_of_an_evaluation(
    evaluate, trained, data, *, length, fill, monkeypatch
):
    """Attention went to the padding only, or to all of it, its mask being inverted or all ones.

    (nyu-mll/jiant#465, huggingface/transformers#1788)
    """
    lengths = [len(example.tokens) for example in data.examples()]
    assert 7 <= min(lengths) < max(lengths) == 16
    # one example at a time has no padding at all
    without = evaluate(trained.folder, data, "--batch-size", 1)
    monkeypatch.setattr(batches, "collate", padded(length, fill))
    found = evaluate(trained.folder, data)
    for key in FIGURES:
        assert found[key] == pytest.approx(without[key], abs=1e-5), key


@pytest.mark.parametrize(("length", "fill"), WIDTHS.values(), ids=list(WIDTHS))
def test_padding_changes_no_step_of_training(pretrain, trained, data, *, length, fill, monkeypatch):
    """The segments were handed to the model in the place of the attention mask.

    (huggingface/transformers#1790, yg211/bert_nli#3)
    """
    options = ("--init-from", trained.folder, "--steps", 3, "--batch-size", 8)
    without = pretrain(data, *options, "--micro-batch-size", 1, shape=()).logged()
    monkeypatch.setattr(step, "collate", padded(length, fill))
    found = pretrain(data, *options, shape=()).logged()
    assert [entry["step"] for entry in found] == [1, 2, 3]
    for entry, other in zip(found, without, strict=True):
        for key in FIGURES:
            assert entry[key] == pytest.approx(other[key], abs=1e-5), key


# ------------------------------------------------------------------------------------------ dropout


def test_no_dropout_when_evaluating_and_again_in_the_step_after(pretrain, evaluate, trained, data):
    """Dropout stayed on in evaluations, or off in the training after one.

    (codertimo/BERT-pytorch#92, pytorch/pytorch#124464)
    """
    found = evaluate(trained.folder, data, "--split", "valid")
    assert evaluate(trained.folder, data, "--split", "valid") == found
    last = trained.logged("valid")[-1]
    assert last["step"] == 20
    for key in FIGURES:
        assert found[key] == pytest.approx(last[key], rel=1e-6), key

    settings = ("--steps", 3, "--batch-size", 8, "--warmup", 0)
    seldom = pretrain(data, *settings, "--dropout", 0.5, "--eval-every", 0)
    often = pretrain(data, *settings, "--dropout", 0.5, "--eval-every", 1)
    without = pretrain(data, *settings, "--dropout", 0, "--eval-every", 1)
    losses = [[entry["loss"] for entry in run.logged()] for run in (seldom, often, without)]
    assert losses[0] == losses[1]
    assert all(abs(on - off) > 1e-4 for on, off in zip(losses[1], losses[2], strict=True))


# ------------------------------------------------------------------------------------- tied weights


def test_the_decoder_is_the_embedding_with_a_bias_of_its_own_also_after_resuming(
    pretrain, evaluate, data
):
    """The decoder came untied or its bias zero out of a saved model, and the loss jumped.

    (huggingface/transformers#2834, huggingface/transformers#11666)
    """
    embedding = "bert.embeddings.word_embeddings.weight"
    length = ("--learning-rate", 1e-2, "--eval-every", 20, "--schedule", "constant")
    run, biases = pretrain(data, "--steps", 20, *length), []
    for num_steps in (20, 21):
        if num_steps == 21:
            run = pretrain(data, "--steps", 21, out=run.folder)
        found = evaluate(run.folder, data, "--split", "valid")
        in_memory = run.logged("valid")[-1]
        assert in_memory["step"] == num_steps
        for key in FIGURES:
            assert found[key] == pytest.approx(in_memory[key], rel=1e-6), key
        tensors = run.tensors()
        assert not [name for name in tensors if "decoder" in name]
        biases.append(tensors["cls.predictions.bias"])
        theirs = transformers.BertForPreTraining.from_pretrained(run.folder / "model")
        decoder = theirs.cls.predictions.decoder
        assert torch.equal(decoder.weight, tensors[embedding])
        assert torch.equal(decoder.bias, biases[-1])
        assert (biases[-1] != 0).all()
    # it went on from where it was, by about the learning rate
    assert 0 < (biases[0] - biases[1]).abs().max() < 0.03
    assert biases[0].abs().max() > 0.06
    trained, resumed = run.logged()[-2:]
    assert abs(resumed["loss"] - trained["loss"]) < 0.5  # a lost decoder would cost more


# -------------------------------------------------------------------------------------------- names

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
TOKENS = "bert.embeddings.word_embeddings.weight"
FIRST = "bert.embeddings.LayerNorm.bias"  # in the order of their names


def of_a_wrapper(tensors):
    return {f"_orig_mod.{name}": tensor for name, tensor in tensors.items()}


def without(tensors):
    return {name: tensor for name, tensor in tensors.items() if name != QUERY}


def renamed(tensors):
    return {**without(tensors), "bert.query": tensors[QUERY]}


def reshaped(tensors):
    return {**tensors, TOKENS: tensors[TOKENS][:-1].contiguous()}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (of_a_wrapper, [f"unknown _orig_mod.{FIRST}", f"missing {FIRST}"]),
        (without, [QUERY]),
        (renamed, [QUERY, "bert.query"]),
        (reshaped, [TOKENS, "13", "14"]),
    ],
)
@pytest.mark.parametrize("command", ["eval-mlm", "fill-mask", "encode"])
def test_weights_that_do_not_fit_are_refused_and_named(
    run, trained, data, tmp_path, *, change, names, command
):
    """What was missing or misnamed stayed random, and its figures were reported as a result.

    (DLLXW/baby-llama2-chinese#34, google-research/bert#698)
    """
    folder = shutil.copytree(trained.folder / "model", tmp_path / "model")
    path = folder / "model.safetensors"
    changed = change(safetensors.torch.load_file(path))
    safetensors.torch.save_file(changed, path, metadata={"format": "pt"})
    on = {"eval-mlm": data.folder, "fill-mask": "a [MASK] .", "encode": "a b ."}[command]
    result = run(command, folder, on, "--quiet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {folder}")
    assert result.stderr.count("\n") == 1
    for name in names:
        assert name in result.stderr


def test_a_model_of_our_own_has_the_names_of_transformers(trained):
    """A model that is trained inside a wrapper must be saved without it.

    (huggingface/transformers#217)
    """
    config = json.loads((trained.folder / "model/config.json").read_text())
    oracle = transformers.BertForPreTraining(transformers.BertConfig(**config))
    expected = {name for name, _ in oracle.named_parameters()}
    assert trained.tensors().keys() == expected
    for path in trained.checkpoints().values():
        assert safetensors.torch.load_file(path / "model.safetensors").keys() == expected
