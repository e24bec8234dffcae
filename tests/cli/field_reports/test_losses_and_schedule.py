"""Losses, steps, rates: faults that users of other tools met, and the right value."""

import itertools
import math
import re

import pytest
import safetensors.torch
import torch
import transformers

from bertpt.data.dataset import Dataset
from bertpt.data.hf_view import transformers_view

# -------------------------------------------------------------------------- nothing to be predicted

TWO_PIECES = "xy xy\nxy xy\nxy\n\nxy\nxy xy xy\nxy xy\n"


@pytest.fixture(scope="module")
def build_unpredictable(build):
    """Builds so that a word of two pieces, "xy", is never predicted, and letters are."""

    def build_unpredictable(text, *options):
        google = ("--pairing", "google", "--whole-word", "--max-predictions-per-seq", 1)
        words = ("x", "##y", *"abcdefgh.")
        return build(text, *google, "--seq-len", 32, *options, words=words)

    return build_unpredictable


def test_steps_without_anything_to_predict_train_on_the_pairs(
    build_unpredictable, pretrain, evaluate, done
):
    """A batch without a masked token divided by zero, and the weights became NaN.

    (huggingface/transformers#16711, pytorch/pytorch#75181)
    """
    data = build_unpredictable(f"{TWO_PIECES}\n{TWO_PIECES}", "--valid-fraction", 0.5)
    for split in ("train", "valid"):
        assert {len(example.targets) for example in data.examples(split)} == {0}
    masks = ("--masking", "stored", "--batch-size", 1, "--warmup", 0)
    run = pretrain(data, *masks, "--steps", 3, "--learning-rate", 1e-3)
    assert [entry["mlm_loss"] for entry in run.logged()] == [0, 0, 0]
    for entry in run.logged():
        assert entry["loss"] == entry["nsp_loss"] == pytest.approx(math.log(2), abs=0.1)
    tensors = run.tensors()
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert (tensors["cls.seq_relationship.bias"] != 0).all()

    found = evaluate(run.folder, data, "--split", "valid")
    assert (found["num_targets"], found["mlm_loss"], found["mlm_accuracy"]) == (0, None, None)
    assert found["baselines"]["unigram"] == {"mlm_loss": None, "mlm_accuracy": None}
    assert found["loss"] == found["nsp_loss"] == pytest.approx(math.log(2), abs=0.1)
    assert f"step 3: held out, NSP loss {found['nsp_loss']:.3f}, accuracy" in run.log
    table = done("eval-mlm", run.folder, data.folder, "--quiet").stdout
    rows = {line[:39].strip(): line[39:].split() for line in table.splitlines()[1:]}
    assert rows["MLM"] == [*"----"]
    assert rows["unigram baseline"] == [*"--"]


def test_micro_batches_without_anything_to_predict_weigh_nothing(build_unpredictable, pretrain):
    """The same where only some of the accumulated micro-batches are empty.

    (huggingface/transformers#16711, meta-pytorch/torchtune#2341)
    """
    data = build_unpredictable(f"{TWO_PIECES}\na b .\nc d .\ne f .\n\na .\nb d .\n")
    counts = [len(example.targets) for example in data.examples()]
    assert 0 < counts.count(0) < len(counts)
    masks = ("--masking", "stored", "--batch-size", len(counts), "--warmup", 0)
    whole, cut = (
        pretrain(data, *masks, "--steps", 3, "--micro-batch-size", size).logged()
        for size in (len(counts), 1)
    )
    for entry, other in zip(whole, cut, strict=True):
        assert math.isfinite(entry["grad_norm"])
        for key in ("loss", "mlm_loss", "nsp_loss", "grad_norm"):
            assert entry[key] == pytest.approx(other[key], rel=1e-4), key


# -------------------------------------------------------------------------- targets that are uneven


@pytest.fixture(scope="module")
def build_uneven(build):
    """Builds two examples, one with a target and one with several, of 15% of its tokens."""

    def build_uneven(num_words, *options):
        text = f"a b\nc .\n\n{'d e f g h ' * (num_words // 10)}\n{'h a c ' * (num_words // 6)}\n"
        return build(text, "--objective", "sop", "--seq-len", 80, *options)

    return build_uneven


@pytest.fixture(scope="module")
def uneven(build_uneven):
    """One target of 7 tokens, nine of 63."""
    data = build_uneven(60)
    assert sorted(len(example.targets) for example in data.examples()) == [1, 9]
    return data


@pytest.fixture(scope="module")
def model(pretrain, uneven):
    """A model whose losses differ from target to target."""
    rates = ("--learning-rate", 0.03, "--muon-learning-rate", 0.1)
    return pretrain(uneven, "--steps", 10, *rates).folder / "model"


def losses_by_hand(model, data):
    """-ln p of every target of each example, and of each label, of transformers' model."""
    oracle = transformers.BertForPreTraining.from_pretrained(model).double().eval()
    targets, pairs = [], []
    view = transformers_view(Dataset(data.folder))
    for number in range(len(view)):
        row = {name: tensor[None] for name, tensor in view[number].items()}
        labels, label = row.pop("labels")[0], row.pop("next_sentence_label")
        with torch.no_grad():
            output = oracle(**row)
        logs = output.prediction_logits[0].log_softmax(dim=-1)
        targets.append([-float(logs[i, labels[i]]) for i in (labels >= 0).nonzero().flatten()])
        logs = output.seq_relationship_logits[0].log_softmax(dim=-1)
        pairs.append(-float(logs[label.flatten()[0]]))
    return targets, pairs


def test_a_loss_is_the_mean_over_the_targets_alone(pretrain, evaluate, uneven, model):
    """Places without a target counted as well, or each batch as much as any other.

    (d2l-ai/d2l-en#2582, huggingface/transformers#2759)
    """
    targets, pairs = losses_by_hand(model, uneven)
    every = [loss for example in targets for loss in example]
    assert len(every) == 10
    mlm, nsp = sum(every) / 10, sum(pairs) / 2
    means = sum(sum(example) / len(example) for example in targets) / 2
    assert abs(means - mlm) > 0.01  # so that the fault would show
    options = ("--init-from", model, "--steps", 1, "--batch-size", 2, "--masking", "stored")
    [taken] = pretrain(uneven, *options, shape=()).logged()
    for found in (taken, *(evaluate(model, uneven, "--batch-size", size) for size in (1, 2))):
        assert found["mlm_loss"] == pytest.approx(mlm, rel=1e-6)
        assert found["nsp_loss"] == pytest.approx(nsp, rel=1e-6)


def test_room_for_more_targets_changes_nothing(build_uneven, model, evaluate):
    """Empty slots for targets were averaged over, as if [PAD] were to be predicted there.

    (d2l-ai/d2l-en#2582, dhlee347/pytorchic-bert#24)
    """
    few, many = (build_uneven(18, "--max-predictions-per-seq", slots) for slots in (8, 80))
    assert sorted(len(example.targets) for example in few.examples()) == [1, 3]
    assert list(few.examples()) == list(many.examples())
    assert evaluate(model, few) == evaluate(model, many)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_accumulated_micro_batches_take_the_step_of_the_full_batch(
    pretrain, uneven, model, optimizer
):
    """A micro-batch with one target weighed as much as one with nine.

    (huggingface/transformers#34191, allenai/open-instruct#1161)
    """
    options = ("--init-from", model, "--steps", 1, "--batch-size", 2, "--warmup", 0)
    whole, cut = (
        pretrain(
            *(uneven, *options, "--micro-batch-size", size, "--optimizer", optimizer),
            *("--masking", "stored", "--max-grad-norm", 0.5),
            shape=(),
        )
        for size in (2, 1)
    )
    [entry], [other] = whole.logged(), cut.logged()
    assert entry["grad_norm"] > 0.5  # so it is clipped, and the logged norm is the one before
    for key in ("loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy", "grad_norm"):
        assert entry[key] == pytest.approx(other[key], rel=1e-5), key
    theirs = cut.tensors()
    for name, tensor in whole.tensors().items():
        if not name.endswith("key.bias"):  # its gradient is rounding, which Adam magnifies
            torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=0, msg=name)


# ---------------------------------------------------------------------------------------- the rates


@pytest.mark.parametrize(
    ("num_steps", "warmup", "shares"),
    [
        (1, 0, [1]),
        (1, 1, [1]),
        (5, 5, [0.2, 0.4, 0.6, 0.8, 1]),
        (5, 0, [1, 0.8, 0.6, 0.4, 0.2]),
    ],
)
def test_no_step_is_wasted_at_the_edges_of_a_schedule(
    pretrain, uneven, model, *, num_steps, warmup, shares
):
    """The first step had a learning rate of zero, the last a negative one, or both divided by it.

    (google-research/bert#1293, huggingface/transformers#34754)
    """
    length = ("--steps", num_steps, "--warmup", warmup, "--save-every", 1, "--keep-last", 0)
    run = pretrain(uneven, *length, "--init-from", model, shape=())
    rates = [entry["learning_rate"] for entry in run.logged()]
    assert rates == pytest.approx([1e-4 * share for share in shares])
    places = [model, *(path for _, path in sorted(run.checkpoints().items()))]
    assert len(places) == num_steps + 1
    stages = [run.tensors(place / "model.safetensors") for place in places]
    for before, after in itertools.pairwise(stages):
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert before.keys() - changed <= {"bert.encoder.layer.0.attention.self.key.bias"}


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_run_ends_at_its_first_bad_step_and_only_finite_weights_are_saved(
    run, uneven, tmp_path, quiet
):
    """NaN was hidden in the log by a running mean, and saved over good weights.

    (huggingface/transformers#13619, huggingface/transformers#13758)
    """
    out = tmp_path / "run"
    how = ("--optimizer", "adamw", "--learning-rate", 1e37, "--warmup", 0, "--device", "cpu")
    length = ("--steps", 50, "--save-every", 1, "--keep-last", 0, "--log-every", 1)
    shape = ("--hidden-size", 12, "--num-hidden-layers", 1, "--num-attention-heads", 2)
    result = run("pretrain", uneven.folder, "--out", out, *shape, *how, *length, *quiet)
    assert (result.exit_code, result.stdout) == (1, "")
    line = result.stderr.splitlines()[-1]
    match = re.match(
        r"error: step (\d+): loss (\S+), gradient norm (\S+); the step was skipped", line
    )
    assert "nan" in match.group(2, 3) or "inf" in match.group(2, 3)
    if quiet:
        assert result.stderr == f"{line}\n"
    saved = {path.name for path in (out / "checkpoints").iterdir()}
    assert saved == {f"step-{step}" for step in range(1, int(match[1]))}
    for path in (*(out / "checkpoints").iterdir(), out / "model"):
        for name in path.glob("*.safetensors"):
            tensors = safetensors.torch.load_file(name).values()
            assert all(tensor.isfinite().all() for tensor in tensors)
