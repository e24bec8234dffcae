"""Starting values: as published, and mimetic."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from bertpt.config import BertConfig
from bertpt.model.bert import BertForPreTraining
from bertpt.model.initialization import initialize

MIMETIC_WEIGHTS = (
    "position_embeddings.weight",
    "attention.self.query.weight",
    "attention.self.key.weight",
    "attention.self.value.weight",
    "attention.output.dense.weight",
)


def started(init, *, heads=1, hidden_size=96, seed=0):
    config = BertConfig(
        vocab_size=301,
        hidden_size=hidden_size,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=200,
        max_position_embeddings=70,
    )
    model = BertForPreTraining(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)  # whatever is not initialised shows
    initialize(model, init, torch.Generator().manual_seed(seed))
    return model


def attentions(model):
    return [layer.attention for layer in model.bert.encoder.layer]


def query_key_products(model):
    """W_q^T W_k of every head of every layer."""
    for attention in attentions(model):
        heads = model.config.num_attention_heads
        query, key = attention.self.query.weight, attention.self.key.weight
        for q, k in zip(query.chunk(heads), key.chunk(heads), strict=True):
            yield (q.T @ k).detach().numpy()


def diagonal_and_rest(matrix):
    rest = matrix[~np.eye(len(matrix), dtype=bool)]
    return np.diagonal(matrix).mean(), rest.mean(), rest.std()


@pytest.mark.parametrize("init", ["published", "mimetic"])
def test_every_bias_is_0_and_every_layer_norm_1(init):
    model = started(init)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), name
        elif name.endswith("LayerNorm.weight"):
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        else:
            assert parameter.isfinite().all(), name


def test_published_weights_are_normal_cut_off_at_two_standard_deviations():
    # The standard deviation of a normal distribution cut off at +-2 sigma, in sigmas:
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    left = math.sqrt(1 - 2 * 2 * density / math.erf(math.sqrt(2)))
    assert left == pytest.approx(0.88, abs=0.001)
    for name, parameter in started("published").named_parameters():
        if parameter.ndim == 2:
            assert parameter.abs().max() <= 0.04, name
            if parameter.numel() > 1000:
                assert parameter.std().item() == pytest.approx(0.02 * left, rel=0.04), name
                assert abs(parameter.mean().item()) < 0.02 * 4 / math.sqrt(parameter.numel()), name
                assert parameter.abs().max() > 0.036, name


def test_initializer_range_sets_the_width():
    config = BertConfig(
        vocab_size=301,
        hidden_size=48,
        num_hidden_layers=1,
        num_attention_heads=1,
        initializer_range=0.1,
    )
    model = BertForPreTraining(config)
    initialize(model, "published", torch.Generator().manual_seed(0))
    largest = model.bert.embeddings.word_embeddings.weight.abs().max().item()
    assert 0.18 < largest <= 0.2


@pytest.mark.parametrize("init", ["published", "mimetic"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(init):
    first, again, other = (started(init, heads=3, seed=seed) for seed in (5, 5, 6))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name)), name
        if parameter.ndim == 2 and "position" not in name:
            assert not torch.equal(parameter, other.get_parameter(name)), name


def test_global_random_state_is_neither_used_nor_changed():
    torch.manual_seed(1)
    first = started("mimetic")
    torch.manual_seed(2)
    model = BertForPreTraining(first.config)
    before = torch.get_rng_state()
    initialize(model, "mimetic", torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, first.get_parameter(name)), name


def test_mimetic_with_one_head_has_query_key_products_of_the_stated_size():
    for product in query_key_products(started("mimetic")):
        diagonal, mean, noise = diagonal_and_rest(product)
        assert diagonal == pytest.approx(0.7, abs=4 * 0.7 / 96)  # 4 standard errors
        assert abs(mean) < 4 * 0.7 / math.sqrt(96) / 96
        assert noise == pytest.approx(0.7 / math.sqrt(96), rel=0.04)


@pytest.mark.parametrize("heads", [1, 4])
def test_mimetic_has_output_value_products_of_the_stated_size(heads):
    for attention in attentions(started("mimetic", heads=heads)):
        product = attention.output.dense.weight @ attention.self.value.weight
        diagonal, mean, noise = diagonal_and_rest(product.detach().numpy())
        assert diagonal == pytest.approx(-0.4, abs=4 * 0.4 / 96)
        assert abs(mean) < 4 * 0.4 / math.sqrt(96) / 96
        assert noise == pytest.approx(0.4 / math.sqrt(96), rel=0.04)


def test_a_mimetic_head_has_full_rank_and_attends_to_similar_tokens():
    products = list(query_key_products(started("mimetic", heads=4)))
    assert len(products) == 8
    for product in products:
        singular = np.linalg.svd(product, compute_uv=False)
        assert singular[23] > 0.1
        assert singular[24] < 1e-5
        diagonal, mean, _ = diagonal_and_rest(product)
        assert diagonal > 10 * abs(mean)
        assert diagonal > 0.2
    for one, other in itertools.combinations(products, 2):
        assert not np.allclose(one, other, atol=0.01)


def test_a_mimetic_heads_singular_values_are_the_largest_of_0_7_z_plus_0_7_i():
    """Singular values of large random matrices hardly vary, so another draw has the same."""
    size, heads = 128, 4
    z = np.random.default_rng(8).standard_normal((size, size)) / math.sqrt(size)
    expected = np.linalg.svd(0.7 * z + 0.7 * np.eye(size), compute_uv=False)
    products = query_key_products(started("mimetic", heads=heads, hidden_size=size))
    for product in itertools.islice(products, 3):
        singular = np.linalg.svd(product, compute_uv=False)[: size // heads]
        np.testing.assert_allclose(singular, expected[: size // heads], rtol=0.08)
        assert singular[-1] > 2 * expected[-(size // heads)]  # the smallest ones are others


def test_query_and_key_of_a_mimetic_head_share_the_singular_values_evenly():
    for attention in attentions(started("mimetic", heads=4)):
        query, key = attention.self.query.weight, attention.self.key.weight
        for q, k in zip(query.chunk(4), key.chunk(4), strict=True):
            torch.testing.assert_close(q @ q.T, k @ k.T, atol=1e-5, rtol=1e-5)
            singular = torch.linalg.svdvals(q.T @ k)[:24]
            torch.testing.assert_close(torch.linalg.svdvals(q) ** 2, singular)
        output, value = attention.output.dense.weight, attention.self.value.weight
        torch.testing.assert_close(output.T @ output, value @ value.T, atol=1e-5, rtol=1e-5)


def test_mimetic_positions_are_the_sinusoids_of_vaswani_et_al():
    positions = started("mimetic").bert.embeddings.position_embeddings.weight
    for position, column in [(0, 0), (0, 1), (1, 0), (1, 1), (7, 10), (69, 95), (33, 50)]:
        angle = position / 10_000 ** (2 * (column // 2) / 96)
        wave = math.cos(angle) if column % 2 else math.sin(angle)
        scale = 0.04 * math.sqrt(2)  # a wave of amplitude sqrt(2) has a mean square of 1
        assert positions[position, column].item() == pytest.approx(scale * wave, abs=1e-7)


def test_mimetic_positions_have_a_root_mean_square_of_0_04():
    positions = started("mimetic").bert.embeddings.position_embeddings.weight
    norms = positions.square().mean(dim=1).sqrt()
    torch.testing.assert_close(norms, torch.full((70,), 0.04), atol=1e-6, rtol=1e-5)


def test_mimetic_positions_fit_an_odd_width():
    positions = started("mimetic", hidden_size=15).bert.embeddings.position_embeddings.weight
    assert positions.shape == (70, 15)
    assert positions[1, 14].item() == pytest.approx(
        0.04 * math.sqrt(2) * math.sin(10_000 ** (-14 / 15)), abs=1e-7
    )


def test_mimetic_keeps_the_rest_as_published():
    published, mimetic = started("published", heads=3), started("mimetic", heads=3)
    assert list(published.state_dict()) == list(mimetic.state_dict())
    for name, parameter in published.named_parameters():
        other = mimetic.get_parameter(name)
        assert isinstance(other, nn.Parameter)
        assert other.requires_grad
        assert other.dtype == torch.float32
        assert other.shape == parameter.shape
        assert torch.equal(parameter, other) != name.endswith(MIMETIC_WEIGHTS), name


@pytest.mark.parametrize("init", ["published", "mimetic"])
def test_the_decoder_stays_tied(init):
    model = started(init)
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
