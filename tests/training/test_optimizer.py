"""How each parameter is treated, and Muon compared with torch's own."""

import math
import re

import pytest
import torch
from torch import nn

from bertpt.config import BertConfig, PretrainConfig
from bertpt.model.bert import BertForPreTraining
from bertpt.training.optimizer import (
    Muon,
    describe_groups,
    load_optimizer_state,
    make_optimizers,
    newton_schulz,
    optimizer_state,
    parameter_groups,
    set_learning_rate,
)

PRECISIONS = (torch.float32, torch.bfloat16)
SHAPES = {"wide": (6, 22), "tall": (22, 6), "square": (10, 10)}
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan et al.


def randomized():
    config = BertConfig(
        vocab_size=99,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=11,
    )
    generator = torch.Generator().manual_seed(0)
    model = BertForPreTraining(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith("LayerNorm.weight"):
                parameter.normal_(std=0.3, generator=generator)
    return model


def settings(**values):
    return PretrainConfig(steps=10, **values).resolve()


def optimizers_of(model, precision=torch.float32, **values):
    return make_optimizers(model, settings(**values), precision)


def set_gradients(model, seed=None):
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
        if generator is not None:
            parameter.grad.normal_(generator=generator)


def take_step(optimizers):
    for optimizer in optimizers:
        optimizer.step()


def groups_of(optimizers):
    return [group for optimizer in optimizers for group in optimizer.param_groups]


def well_conditioned(rows, columns, *, largest, smallest, seed=0):
    """A matrix whose singular values lie evenly between two bounds."""
    generator = torch.Generator().manual_seed(seed)
    rank = min(rows, columns)
    left, _ = torch.linalg.qr(torch.randn(rows, rank, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(columns, rank, generator=generator))
    return (left * torch.linspace(largest, smallest, rank)) @ right.T


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_parameter_is_in_exactly_one_group(kind):
    model = randomized()
    found = [p for group in groups_of(optimizers_of(model, optimizer=kind))
             for p in group["params"]]  # fmt: skip
    assert len(found) == len(set(found))
    assert set(found) == set(model.parameters())


def test_muon_gets_the_encoders_matrices_only():
    model = randomized()
    groups = parameter_groups(model, muon=True)
    encoder = [p for p in model.bert.encoder.parameters() if p.ndim == 2]
    assert len(encoder) == 2 * 6
    assert set(groups["encoder matrices"]) == set(encoder)
    assert {p.ndim for p in groups["vectors"]} == {1}
    assert any(p is model.bert.embeddings.word_embeddings.weight for p in groups["matrices"])
    assert any(p is model.cls.seq_relationship.weight for p in groups["matrices"])


def test_without_muon_there_is_one_optimizer():
    optimizers = optimizers_of(randomized(), optimizer="adamw")
    assert [type(optimizer) for optimizer in optimizers] == [torch.optim.AdamW]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_muon_iterates_in_the_precision_of_training(precision):
    """A product of bfloat16 has 8 significant bits, and so has all that Muon adds to zeros."""
    model = randomized()
    _, muon = optimizers_of(model, precision, optimizer="muon", weight_decay=0.0)
    for group in muon.param_groups:
        group["lr"] = 1.0
    matrices = muon.param_groups[0]["params"]
    with torch.no_grad():
        for matrix in matrices:
            matrix.zero_()
    set_gradients(model, seed=1)
    muon.step()
    squares = [matrix for matrix in matrices if matrix.shape == (12, 12)]
    in_bfloat16 = [torch.equal(m, m.bfloat16().float()) for m in squares]
    assert set(in_bfloat16) == {precision == torch.bfloat16}


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_decay_shrinks_matrices_once_and_leaves_biases_and_layer_norms(kind, precision):
    model = randomized()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizers = optimizers_of(
        model,
        precision,
        optimizer=kind,
        learning_rate=1.0,
        muon_learning_rate=1.0,
        weight_decay=0.1,
    )
    set_gradients(model)
    take_step(optimizers)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:  # the tied embedding is one of them
            torch.testing.assert_close(parameter, before[name] * 0.9, msg=name)
        else:
            assert torch.equal(parameter, before[name]), name
        if name.endswith("LayerNorm.weight"):
            assert torch.equal(parameter, torch.ones_like(parameter)), name


def test_the_learning_rate_is_a_share_of_each_groups_own_peak():
    config = settings(optimizer="muon", learning_rate=0.3, muon_learning_rate=0.5)
    optimizers = make_optimizers(randomized(), config, torch.float32)
    for scale in (1.0, 0.25, 0.5):
        set_learning_rate(optimizers, scale)
        rates = [group["lr"] for group in groups_of(optimizers)]
        assert rates == pytest.approx([0.3 * scale, 0.3 * scale, 0.5 * scale])


def test_adamw_moves_every_weight_by_the_learning_rate_at_first():
    """Adam's first step is g / |g|, whatever the size of the gradient."""
    model = randomized()
    optimizers = optimizers_of(model, optimizer="adamw", learning_rate=0.01, weight_decay=0.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    set_gradients(model, seed=2)
    take_step(optimizers)
    for name, parameter in model.named_parameters():
        moved = parameter.detach() - before[name]
        clear = parameter.grad.abs() > 0.01
        torch.testing.assert_close(
            moved[clear], -0.01 * parameter.grad.sign()[clear], atol=1e-5, rtol=1e-3
        )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_muon_equals_torchs(precision):
    def trained(kind, **options):
        generator = torch.Generator().manual_seed(7)
        weights = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES.values()]
        optimizer = kind(weights, lr=0.1, weight_decay=0.1, **options)
        steps = []
        for _ in range(3):
            before = [weight.detach().clone() for weight in weights]
            for weight in weights:
                weight.grad = torch.randn(weight.shape, generator=generator)
            optimizer.step()
            steps.append([w.detach() - b for w, b in zip(weights, before, strict=True)])
        buffers = [optimizer.state[weight]["momentum_buffer"] for weight in weights]
        return [step for taken in steps for step in taken], buffers

    ours, our_momentum = trained(Muon, precision=precision)
    theirs, their_momentum = trained(torch.optim.Muon)
    for our, their in zip(ours, theirs, strict=True):
        cosine = torch.cosine_similarity(our.flatten(), their.flatten(), dim=0)
        assert cosine > 0.99
        assert our.norm().item() == pytest.approx(their.norm().item(), rel=0.05)
    for our, their in zip(our_momentum, their_momentum, strict=True):
        torch.testing.assert_close(our, their)


def test_muon_does_not_change_a_weight_without_a_gradient():
    weights = [nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))]
    weights[1].grad = torch.eye(4)
    Muon(weights, lr=0.1, weight_decay=0.1, precision=torch.float32).step()
    assert torch.equal(weights[0], torch.ones(4, 4))
    assert not torch.equal(weights[1], torch.ones(4, 4))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_newton_schulz_brings_all_singular_values_near_1_and_keeps_the_directions(shape):
    matrices = torch.stack(
        [well_conditioned(*shape, largest=3.0, smallest=0.1, seed=seed) for seed in range(3)]
    )
    result = newton_schulz(matrices, coefficients=COEFFICIENTS, steps=5, eps=1e-7)
    assert result.shape == matrices.shape
    singular = torch.linalg.svdvals(result)
    assert singular.min() > 0.6
    assert singular.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inner = left.mT @ result @ right.mT  # diagonal where the singular vectors are kept
    rest = inner - torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))
    assert rest.abs().max() < 1e-3
    assert inner.diagonal(dim1=-2, dim2=-1).min() > 0.6


def test_newton_schulz_of_one_matrix_does_not_depend_on_the_others():
    small, large = torch.eye(4) * 1e-3, torch.ones(4, 4) * 1e3
    together = newton_schulz(torch.stack([small, large]), coefficients=COEFFICIENTS, steps=5, eps=0)
    alone = newton_schulz(small[None], coefficients=COEFFICIENTS, steps=5, eps=0)
    torch.testing.assert_close(together[:1], alone)


def test_newton_schulz_of_zero_is_zero():
    zeros = torch.zeros(2, 3, 5)
    assert torch.equal(newton_schulz(zeros, coefficients=COEFFICIENTS, steps=5, eps=1e-7), zeros)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_saved_state_resumes_bit_for_bit(kind, precision):
    config = settings(optimizer=kind, weight_decay=0.1)
    model = randomized()
    optimizers = make_optimizers(model, config, precision)
    for seed in (1, 2):
        set_gradients(model, seed)
        take_step(optimizers)

    restored = randomized()
    restored.load_state_dict(model.state_dict())
    new = make_optimizers(restored, config, precision)
    saved = {name: t.clone() for name, t in optimizer_state(optimizers, model).items()}
    load_optimizer_state(new, restored, saved)
    for seed in (3, 4):
        for each, its in ((model, optimizers), (restored, new)):
            set_gradients(each, seed)
            take_step(its)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, restored.get_parameter(name)), name
    again = optimizer_state(new, restored)
    for name, tensor in optimizer_state(optimizers, model).items():
        assert torch.equal(tensor, again[name]), name


def test_a_run_without_its_state_diverges():
    """Else the test above could not fail."""
    model, config = randomized(), settings(optimizer="muon")
    optimizers = make_optimizers(model, config, torch.float32)
    set_gradients(model, 1)
    take_step(optimizers)
    restored = randomized()
    restored.load_state_dict(model.state_dict())
    new = make_optimizers(restored, config, torch.float32)
    for each, its in ((model, optimizers), (restored, new)):
        set_gradients(each, 2)
        take_step(its)
    moved = [
        not torch.equal(p, restored.get_parameter(name)) for name, p in model.named_parameters()
    ]
    assert all(moved)


def test_the_names_of_the_state_are_those_of_the_parameters():
    model = randomized()
    optimizers = optimizers_of(model, optimizer="muon")
    set_gradients(model, 1)
    take_step(optimizers)
    state = optimizer_state(optimizers, model)
    names = {name for name, _ in model.named_parameters()}
    assert {key.rpartition("/")[0] for key in state} == names
    query = "bert.encoder.layer.1.attention.self.query.weight"
    assert [key for key in state if key.startswith(query)] == [f"{query}/momentum_buffer"]
    assert math.prod(state["bert.pooler.dense.bias/exp_avg"].shape) == 12


def test_the_reported_group_sizes_match_a_count_by_hand():
    model = randomized()
    # Of each of 2 layers: 4 matrices of attention, 12 x 12, and 2 of 12 x 20.
    muon = "Muon on 12 tensors (2,112 parameters), weight decay 0.1"
    # Word, position and segment embeddings; pooler, the transform of MLM, and the NSP head.
    decayed = 12 * (99 + 11 + 2) + 12 * 12 + 12 * 12 + 2 * 12
    adamw = f"AdamW on 6 tensors ({decayed:,} parameters), weight decay 0.1"
    rest = sum(p.numel() for p in model.parameters()) - 2112 - decayed
    description = describe_groups(optimizers_of(model, optimizer="muon", weight_decay=0.1))
    first, second, third = description.split("; ")
    assert (first, third) == (adamw, muon)
    assert re.fullmatch(rf"AdamW on \d+ tensors \({rest:,} parameters\), weight decay 0", second)
