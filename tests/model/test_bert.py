"""The model against transformers' BERT, an implementation that shares no code with it."""

import dataclasses

import pytest
import torch
import transformers
from transformers.activations import ACT2FN

from bertpt.config import BertConfig
from bertpt.errors import InputError
from bertpt.model.bert import ACTIVATIONS, BertForPreTraining
from bertpt.model.losses import loss_sums, pretraining_loss

# Sizes that fit no other, so that swapped axes fail. 5 examples, up to 7 tokens.
CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=11,
)
WIDE = dataclasses.replace(CONFIG, hidden_size=24, num_attention_heads=2)
LENGTHS = torch.tensor([7, 5, 6, 3, 7])
TOKEN_TYPE_IDS = torch.tensor(
    [
        [0, 0, 0, 1, 1, 1, 1],
        [0, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]
)
PREDICTED = [(0, 1), (0, 6), (1, 4), (2, 2), (2, 5), (4, 3)]  # example, position
MASKED_POSITIONS = torch.tensor([example * 7 + position for example, position in PREDICTED])
MASKED_LM_LABELS = torch.tensor([98, 5, 0, 17, 5, 64])
NEXT_SENTENCE_LABELS = torch.tensor([0, 1, 1, 0, 1])
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def randomized(config):
    """A model in which no bias is 0 and no LayerNorm weight is 1."""
    generator = torch.Generator().manual_seed(4)
    model = BertForPreTraining(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3, generator=generator)
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1.0)
    return model.eval()


def oracle_for(model):
    config = {k: v for k, v in model.config.to_dict().items() if k != "pooler"}
    config = transformers.BertConfig(**config, attn_implementation="eager")
    oracle = transformers.BertForPreTraining(config)
    oracle.load_state_dict(model.state_dict(), strict=True)
    return oracle.eval()


def random_ids(*shape):
    return torch.randint(5, CONFIG.vocab_size, shape, generator=torch.Generator().manual_seed(1))


INPUT_IDS = random_ids(5, 7)


REAL = torch.arange(7) < LENGTHS[:, None]


def run(
    model,
    input_ids=INPUT_IDS,
    token_type_ids=TOKEN_TYPE_IDS,
    positions=MASKED_POSITIONS,
    **asked,
):
    return model(input_ids, token_type_ids, LENGTHS, positions, **asked)


def run_oracle(oracle):
    labels = torch.full((5, 7), -100)
    for (example, position), label in zip(PREDICTED, MASKED_LM_LABELS, strict=True):
        labels[example, position] = label
    return oracle(
        input_ids=INPUT_IDS,
        token_type_ids=TOKEN_TYPE_IDS,
        attention_mask=(torch.arange(7) < LENGTHS[:, None]).long(),
        labels=labels,
        next_sentence_label=NEXT_SENTENCE_LABELS,
        output_hidden_states=True,
        output_attentions=True,
    )


def total_loss(output):
    sums = loss_sums(output, MASKED_LM_LABELS, NEXT_SENTENCE_LABELS)
    return pretraining_loss(sums, num_targets=len(PREDICTED), num_pairs=5)


def padded(tensor, length, filling):
    wide = torch.full((5, length), filling)
    wide[:, :7] = tensor
    return wide


@pytest.fixture(params=[CONFIG, WIDE], ids=["12 wide, 3 heads", "24 wide, 2 heads"])
def model(request):
    return randomized(request.param)


def test_the_encoders_output_equals_transformers_at_every_real_token(model):
    ours, theirs = run(model), run_oracle(oracle_for(model))
    torch.testing.assert_close(
        ours.last_hidden_state[REAL], theirs.hidden_states[-1][REAL], **CLOSE
    )


@pytest.mark.parametrize("hidden_act", ACTIVATIONS)
def test_the_embeddings_and_every_layers_hidden_states_equal_transformers(hidden_act):
    model = randomized(dataclasses.replace(CONFIG, hidden_act=hidden_act))
    ours, theirs = run(model, output_hidden_states=True), run_oracle(oracle_for(model))
    assert len(ours.hidden_states) == 1 + 2
    for mine, other in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        torch.testing.assert_close(mine[REAL], other[REAL], **CLOSE)
    assert torch.equal(ours.hidden_states[0], model.bert.embeddings(INPUT_IDS, TOKEN_TYPE_IDS))
    assert torch.equal(ours.hidden_states[-1], ours.last_hidden_state)


def test_the_attentions_of_every_layer_equal_transformers(model):
    ours, theirs = run(model, output_attentions=True), run_oracle(oracle_for(model))
    assert len(ours.attentions) == 2
    for mine, other in zip(ours.attentions, theirs.attentions, strict=True):
        assert mine.shape == (5, model.config.num_attention_heads, 7, 7)
        torch.testing.assert_close(mine.transpose(1, 2)[REAL], other.transpose(1, 2)[REAL], **CLOSE)


def test_attentions_add_up_to_1_over_the_real_tokens_and_none_goes_to_padding(model):
    for attention in run(model, output_attentions=True).attentions:
        for example, length in enumerate(LENGTHS.tolist()):
            assert (attention[example, :, :, length:] == 0).all()
            over_real = attention[example, :, :, :length]
            assert (over_real > 0).all()
            torch.testing.assert_close(over_real.sum(dim=-1), torch.ones(over_real.shape[:-1]))


def test_hidden_states_and_attentions_are_returned_only_if_asked_for(model):
    plain = run(model)
    assert plain.hidden_states is None
    assert plain.attentions is None
    assert run(model, output_hidden_states=True).attentions is None
    assert run(model, output_attentions=True).hidden_states is None


def test_asking_for_more_outputs_does_not_change_the_others(model):
    model.double()  # attentions asked for are computed in another order
    plain = run(model)
    with_states = run(model, output_hidden_states=True)
    with_attentions = run(model, output_attentions=True)
    with_both = run(model, output_hidden_states=True, output_attentions=True)
    for output, distance in ((with_states, 0), (with_attentions, 1e-12), (with_both, 1e-12)):
        for mine, other in zip(output[:4], plain[:4], strict=True):
            torch.testing.assert_close(mine, other, atol=distance, rtol=0)
    for mine, other in zip(with_both.hidden_states, with_states.hidden_states, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-12, rtol=0)
    for mine, other in zip(with_both.attentions, with_attentions.attentions, strict=True):
        assert torch.equal(mine, other)


def test_the_encoder_alone_gives_the_outputs_of_the_full_model(model):
    asked = {"output_hidden_states": True, "output_attentions": True}
    whole, alone = run(model, **asked), model.bert(INPUT_IDS, TOKEN_TYPE_IDS, LENGTHS, **asked)
    for name in alone._fields:
        torch.testing.assert_close(getattr(alone, name), getattr(whole, name), atol=0, rtol=0)


def test_ids_alone_mean_one_segment_no_padding_and_every_position(model):
    spelled_out = model(
        INPUT_IDS, torch.zeros(5, 7, dtype=torch.int64), torch.full((5,), 7), torch.arange(35)
    )
    short = model(INPUT_IDS)
    assert short.prediction_logits.shape == (35, 99)
    for mine, other in zip(short[:4], spelled_out[:4], strict=True):
        assert torch.equal(mine, other)
    encoded = model.bert(INPUT_IDS)
    assert torch.equal(encoded.last_hidden_state, short.last_hidden_state)
    assert torch.equal(encoded.pooler_output, short.pooler_output)
    theirs = oracle_for(model)(input_ids=INPUT_IDS)
    torch.testing.assert_close(
        short.prediction_logits.view(5, 7, 99), theirs.prediction_logits, **CLOSE
    )
    torch.testing.assert_close(
        short.seq_relationship_logits, theirs.seq_relationship_logits, **CLOSE
    )


def test_every_activation_of_a_config_exists():
    declared = {field.name: field.metadata for field in dataclasses.fields(BertConfig)}
    assert set(ACTIVATIONS) == set(declared["hidden_act"]["choices"])


@pytest.mark.parametrize("hidden_act", ACTIVATIONS)
def test_an_activation_equals_transformers(hidden_act):
    x = torch.linspace(-6, 6, 241, dtype=torch.float64)
    theirs = ACT2FN[hidden_act](x)
    torch.testing.assert_close(ACTIVATIONS[hidden_act](x), theirs, atol=1e-9, rtol=0)


def test_the_pooled_vectors_equal_transformers(model):
    oracle = oracle_for(model)
    theirs = oracle.bert.pooler(run_oracle(oracle).hidden_states[-1])
    torch.testing.assert_close(run(model).pooler_output, theirs, **CLOSE)


def test_the_logits_of_both_heads_equal_transformers(model):
    ours, theirs = run(model), run_oracle(oracle_for(model))
    at_targets = torch.stack([theirs.prediction_logits[place] for place in PREDICTED])
    torch.testing.assert_close(ours.prediction_logits, at_targets, **CLOSE)
    torch.testing.assert_close(
        ours.seq_relationship_logits, theirs.seq_relationship_logits, **CLOSE
    )


def test_the_loss_equals_transformers(model):
    torch.testing.assert_close(total_loss(run(model)), run_oracle(oracle_for(model)).loss, **CLOSE)


def test_the_gradient_of_every_parameter_equals_transformers(model):
    oracle = oracle_for(model)
    total_loss(run(model)).backward()
    run_oracle(oracle).loss.backward()
    theirs = {name: parameter.grad for name, parameter in oracle.named_parameters()}
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(
            gradient, theirs[name], **CLOSE, msg=lambda m, name=name: f"{name}: {m}"
        )
        if not name.endswith("key.bias"):  # softmax does not see what all keys share
            assert gradient.abs().max() > 1e-4, name


def test_a_state_dict_of_transformers_loads_unchanged():
    model, other = randomized(CONFIG), BertForPreTraining(CONFIG)
    other.load_state_dict(oracle_for(model).state_dict(), strict=True)
    for name, parameter in other.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name


def test_padding_to_16_or_64_changes_nothing():
    model = randomized(dataclasses.replace(CONFIG, max_position_embeddings=64))
    narrow = run(model)
    for length in (16, 64):
        positions = torch.tensor([example * length + position for example, position in PREDICTED])
        wide = run(
            model, padded(INPUT_IDS, length, 0), padded(TOKEN_TYPE_IDS, length, 0), positions
        )
        for example, real in enumerate(LENGTHS.tolist()):
            torch.testing.assert_close(
                wide.last_hidden_state[example, :real],
                narrow.last_hidden_state[example, :real],
                **CLOSE,
            )
        for ours, theirs in zip(wide[1:4], narrow[1:4], strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("pooler", ["cls", "mean"])
def test_ids_under_the_padding_do_not_matter(pooler):
    model = randomized(dataclasses.replace(CONFIG, pooler=pooler))
    is_padding = torch.arange(7) >= LENGTHS[:, None]
    assert is_padding.sum() == 7
    noisy = run(
        model,
        torch.where(is_padding, 93, INPUT_IDS),
        torch.where(is_padding, 1, TOKEN_TYPE_IDS),
    )
    clean = run(model)
    assert torch.equal(noisy.last_hidden_state[~is_padding], clean.last_hidden_state[~is_padding])
    for ours, theirs in zip(noisy[1:4], clean[1:4], strict=True):
        assert torch.equal(ours, theirs)


def test_a_pad_token_inside_the_text_is_attended_to():
    model = randomized(CONFIG)
    ids = INPUT_IDS.clone()
    ids[0, 3] = CONFIG.pad_token_id
    same_length = run(model, ids)
    ids[0, 3] = 8
    assert not torch.allclose(run(model, ids).pooler_output[0], same_length.pooler_output[0])


@pytest.mark.parametrize("where", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_is_off_in_eval_and_on_in_train(where):
    model = randomized(dataclasses.replace(CONFIG, **{where: 0.5}))
    without = run(randomized(CONFIG)).last_hidden_state
    assert torch.equal(run(model).last_hidden_state, without)
    model.train()
    first, second = run(model).last_hidden_state, run(model).last_hidden_state
    assert not torch.allclose(first, second)
    assert torch.equal(run(model.eval()).last_hidden_state, without)


def test_attention_dropout_is_on_in_train_if_attentions_are_asked_for():
    model = randomized(dataclasses.replace(CONFIG, attention_probs_dropout_prob=0.5))
    still = run(model, output_attentions=True)
    model.train()
    first, second = (run(model, output_attentions=True) for _ in range(2))
    assert not torch.allclose(first.last_hidden_state, second.last_hidden_state)
    assert torch.equal(first.attentions[0], still.attentions[0])  # they are as before dropout


@pytest.mark.parametrize("output_attentions", [False, True])
def test_attention_dropout_changes_no_mean(output_attentions):
    model = randomized(dataclasses.replace(CONFIG, attention_probs_dropout_prob=0.25))
    attention = model.bert.encoder.layer[0].attention.self
    hidden, mask = model.bert.embeddings(INPUT_IDS, TOKEN_TYPE_IDS), REAL[:, None, None, :]
    kept, _ = attention(hidden, mask, output_attentions=output_attentions)
    torch.manual_seed(0)
    dropped, _ = attention.train()(
        hidden.repeat(4000, 1, 1), mask.repeat(4000, 1, 1, 1), output_attentions=output_attentions
    )
    dropped = dropped.view(4000, 5, 7, 12)
    error = dropped.std(dim=0) / 4000**0.5
    assert (error > 0).all()
    assert ((dropped.mean(dim=0) - kept).abs() < 5 * error).all()


def test_dropout_keeps_the_expected_residual():
    model = randomized(dataclasses.replace(CONFIG, hidden_dropout_prob=0.25)).train()
    embeddings = model.bert.embeddings
    torch.manual_seed(0)
    dropped = embeddings(INPUT_IDS.repeat(400, 1), TOKEN_TYPE_IDS.repeat(400, 1))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    kept = embeddings.eval()(INPUT_IDS, TOKEN_TYPE_IDS)
    survivors = dropped.view(400, 5, 7, 12)
    expected = (kept / 0.75).expand_as(survivors)
    torch.testing.assert_close(survivors[survivors != 0], expected[survivors != 0], **CLOSE)


def test_the_mean_pooler_averages_the_real_tokens():
    model = randomized(dataclasses.replace(CONFIG, pooler="mean"))
    output = run(model)
    dense = model.bert.pooler.dense
    for example, length in enumerate(LENGTHS.tolist()):
        tokens = [output.last_hidden_state[example, i] for i in range(length)]
        by_hand = torch.tanh(dense.weight @ (sum(tokens) / length) + dense.bias)
        torch.testing.assert_close(output.pooler_output[example], by_hand, **CLOSE)


def test_the_decoder_shares_the_word_embeddings_and_has_one_bias():
    model = BertForPreTraining(CONFIG)
    names = [name for name, _ in model.named_parameters()]
    head = model.cls.predictions
    assert head.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert head.decoder.bias is head.bias
    assert "cls.predictions.decoder.weight" not in names
    assert [n for n in names if n in ("cls.predictions.bias", "cls.predictions.decoder.bias")] == [
        "cls.predictions.bias"
    ]
    assert names.count("bert.embeddings.word_embeddings.weight") == 1


def test_bert_base_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = BertForPreTraining(BertConfig())
        oracle = transformers.BertForPreTraining(transformers.BertConfig())
    ours = sum(parameter.numel() for parameter in model.parameters())
    assert ours == oracle.num_parameters()


def test_an_input_longer_than_the_positions_is_refused_with_both_numbers():
    for positions in (1, 6):
        model = randomized(dataclasses.replace(CONFIG, max_position_embeddings=positions))
        with pytest.raises(InputError, match=f"7 tokens; the model reads at most {positions}"):
            run(model)


def test_no_predicted_position_gives_empty_logits():
    output = run(randomized(CONFIG), positions=torch.zeros(0, dtype=torch.int64))
    assert output.prediction_logits.shape == (0, 99)
    assert output.seq_relationship_logits.shape == (5, 2)
