"""Both losses against sums done by hand, and over any way to cut a step into micro-batches."""

import math

import pytest
import torch

from bertpt.config import BertConfig
from bertpt.model.bert import BertForPreTraining, BertOutput
from bertpt.model.initialization import initialize
from bertpt.model.losses import loss_sums, pretraining_loss

CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=11,
)
NO_LABELS = torch.zeros(0, dtype=torch.int64)


def output_of(mlm_logits, nsp_logits):
    """A model's output in which only the logits matter."""
    nothing = torch.zeros(0)
    return BertOutput(nothing, nothing, torch.tensor(mlm_logits), torch.tensor(nsp_logits))


def logits_of(*probabilities):
    """Logits whose softmax is these probabilities."""
    return [math.log(p) + 3.0 for p in probabilities]


@pytest.fixture
def model():
    model = BertForPreTraining(CONFIG)
    initialize(model, "published", torch.Generator().manual_seed(0))
    return model.eval()


def step_inputs():
    """8 examples of 7 tokens, of which 1, 3, 0, 2, 1, 4, 0 and 5 are predicted."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 99, (8, 7), generator=generator)
    places = [
        (row, column)
        for row, n in enumerate((1, 3, 0, 2, 1, 4, 0, 5))
        for column in range(1, n + 1)
    ]
    labels = torch.randint(5, 99, (len(places),), generator=generator)
    return ids, places, labels, torch.tensor([0, 1, 1, -100, 0, 1, 0, 1])


def sums_of_rows(model, rows):
    """What a micro-batch of some rows gives."""
    ids, places, labels, pairs = step_inputs()
    mine = [number for number, (row, _) in enumerate(places) if row in rows]
    positions = [(places[n][0] - rows.start) * 7 + places[n][1] for n in mine]
    part = ids[rows.start : rows.stop]
    lengths = torch.full((len(part),), 7)
    output = model(
        part, torch.zeros_like(part), lengths, torch.tensor(positions, dtype=torch.int64)
    )
    return loss_sums(output, labels[mine], pairs[rows.start : rows.stop])


def gradients_of_step(model, size):
    """The loss and all gradients of a step taken in micro-batches of a size."""
    model.zero_grad()
    total = 0.0
    for start in range(0, 8, size):
        sums = sums_of_rows(model, range(start, min(8, start + size)))
        loss = pretraining_loss(sums, num_targets=16, num_pairs=7)
        loss.backward()
        total += loss.item()
    return total, {name: p.grad.clone() for name, p in model.named_parameters()}


def test_the_mlm_loss_is_the_mean_over_all_targets_of_all_examples():
    # Example 1 has one target, p = 1/2; example 2 has three, p = 1/4, 1/8 and 1/8.
    mlm = [
        logits_of(0.5, 0.3, 0.2),
        logits_of(0.25, 0.5, 0.25),
        logits_of(0.5, 0.375, 0.125),
        logits_of(0.125, 0.8, 0.075),
    ]
    nsp = [logits_of(0.5, 0.5), logits_of(0.75, 0.25)]
    sums = loss_sums(output_of(mlm, nsp), torch.tensor([0, 0, 2, 0]), torch.tensor([1, 1]))
    assert sums.num_targets == 4
    assert sums.num_pairs == 2
    assert sums.mlm.item() == pytest.approx((1 + 2 + 3 + 3) * math.log(2), rel=1e-6)
    assert sums.nsp.item() == pytest.approx((1 + 2) * math.log(2), rel=1e-6)
    loss = pretraining_loss(sums, num_targets=4, num_pairs=2)
    assert loss.item() == pytest.approx((9 / 4 + 3 / 2) * math.log(2), rel=1e-6)


def test_a_micro_batch_with_few_targets_weighs_little():
    """Mean losses 4 over one target and 2 over nine make 2.2, not 3."""

    def sums(loss, number):
        p = math.exp(-loss)
        return loss_sums(
            output_of([logits_of(p, 1 - p)] * number, [logits_of(0.5, 0.5)]),
            torch.zeros(number, dtype=torch.int64),
            torch.tensor([-100]),
        )

    parts = [sums(4.0, 1), sums(2.0, 9)]
    total = sum(pretraining_loss(part, num_targets=10, num_pairs=0).item() for part in parts)
    assert total == pytest.approx(2.2, rel=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_micro_batches_add_up_to_the_full_step(model, size):
    whole_loss, whole = gradients_of_step(model, 8)
    loss, gradients = gradients_of_step(model, size)
    assert loss == pytest.approx(whole_loss, abs=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, whole[name], atol=1e-6, rtol=1e-5)


def test_no_targets_give_an_mlm_loss_of_zero(model):
    sums = sums_of_rows(model, range(2, 3))
    assert sums.num_targets == 0
    assert sums.mlm.item() == 0.0
    loss = pretraining_loss(sums, num_targets=0, num_pairs=1)
    assert loss.item() == pytest.approx(math.log(2), rel=0.05)
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert model.cls.seq_relationship.weight.grad.abs().max() > 0


def test_no_targets_and_no_pairs_give_a_loss_of_zero_that_can_be_trained_on(model):
    ids = torch.tensor([[2, 9, 3]])
    output = model(ids, torch.zeros_like(ids), torch.tensor([3]), NO_LABELS)
    sums = loss_sums(output, NO_LABELS, torch.tensor([-100]))
    loss = pretraining_loss(sums, num_targets=0, num_pairs=0)
    assert loss.item() == 0.0
    assert sums.num_pairs == 0
    loss.backward()
    assert model.cls.predictions.decoder.weight.grad.abs().max() == 0


@pytest.mark.parametrize("label", [0, 1])
def test_an_untrained_model_has_an_nsp_loss_of_ln_2_for_either_label(model, label):
    ids = step_inputs()[0]
    output = model(ids, torch.zeros_like(ids), torch.full((8,), 7), NO_LABELS)
    sums = loss_sums(output, NO_LABELS, torch.full((8,), label))
    loss = pretraining_loss(sums, num_targets=0, num_pairs=8)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2), rel=0.05)
    bias = model.cls.seq_relationship.bias.grad
    assert bias[label] < -0.4  # p - 1, with p near 1/2
    assert bias[1 - label] > 0.4
    assert model.cls.seq_relationship.weight.grad.abs().max() > 1e-3


def test_an_untrained_model_has_an_mlm_loss_of_ln_of_the_vocabulary(model):
    sums = sums_of_rows(model, range(8))
    assert sums.num_targets == 16
    assert sums.mlm.item() / 16 == pytest.approx(math.log(99), rel=0.05)


def test_an_example_without_a_next_sentence_label_is_ignored():
    nsp = [logits_of(0.5, 0.5), logits_of(0.001, 0.999), logits_of(0.25, 0.75)]
    output = output_of([logits_of(0.5, 0.5)], nsp)
    sums = loss_sums(output, torch.tensor([0]), torch.tensor([0, -100, 0]))
    assert sums.num_pairs == 2
    assert sums.nsp.item() == pytest.approx(3 * math.log(2), rel=1e-6)


def test_a_label_of_0_counts_as_much_as_any_other():
    """[PAD] is id 0 and "B follows A" is label 0: neither may be taken for "nothing to do"."""
    output = output_of([logits_of(0.25, 0.75)], [logits_of(0.25, 0.75)])
    sums = loss_sums(output, torch.tensor([0]), torch.tensor([0]))
    assert sums.mlm.item() == pytest.approx(2 * math.log(2), rel=1e-6)
    assert sums.nsp.item() == pytest.approx(2 * math.log(2), rel=1e-6)


def test_losses_are_summed_in_float32_whatever_the_logits_are_in():
    output = output_of([logits_of(0.5, 0.5)], [logits_of(0.5, 0.5)])
    half = BertOutput(*(tensor.bfloat16() for tensor in output[:4]))
    sums = loss_sums(half, torch.tensor([0]), torch.tensor([0]))
    assert sums.mlm.dtype == sums.nsp.dtype == torch.float32
    assert sums.mlm.item() == pytest.approx(math.log(2), rel=1e-6)
