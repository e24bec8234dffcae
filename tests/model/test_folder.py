"""Model folders: exchanged with transformers in both directions, and refused when damaged."""

import json

import pytest
import safetensors
import safetensors.torch
import torch
import transformers

from bertpt.config import BertConfig
from bertpt.errors import InputError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.folder import find_model, read_config
from bertpt.model.losses import loss_sums, pretraining_loss

CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=11,
    layer_norm_eps=1e-7,
)
EMBEDDING = "bert.embeddings.word_embeddings.weight"
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
IDS = torch.tensor([[2, 7, 98, 4, 3], [2, 55, 4, 3, 0]])
TOKEN_TYPE_IDS = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]])
LENGTHS = torch.tensor([5, 4])


def randomized(config=CONFIG):
    generator = torch.Generator().manual_seed(4)
    model = BertForPreTraining(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model.eval()


def run(model):
    return model(IDS, TOKEN_TYPE_IDS, LENGTHS, torch.arange(10))


def run_oracle(oracle):
    mask = (torch.arange(5) < LENGTHS[:, None]).long()
    return oracle(input_ids=IDS, token_type_ids=TOKEN_TYPE_IDS, attention_mask=mask)


def assert_equal_logits(ours, theirs):
    real = torch.arange(5) < LENGTHS[:, None]
    torch.testing.assert_close(
        ours.prediction_logits.view(2, 5, 99)[real],
        theirs.prediction_logits[real],
        atol=1e-5,
        rtol=1e-5,
    )
    torch.testing.assert_close(
        ours.seq_relationship_logits, theirs.seq_relationship_logits, atol=1e-5, rtol=1e-5
    )


@pytest.fixture
def folder(tmp_path):
    randomized().save_folder(tmp_path)
    return tmp_path


def change_weights(folder, change):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def refusal(folder):
    with pytest.raises(InputError) as caught:
        BertForPreTraining.from_folder(folder)
    return str(caught.value)


def test_a_model_comes_back_bit_for_bit(folder):
    model, loaded = randomized(), BertForPreTraining.from_folder(folder)
    assert loaded.config == model.config
    assert not loaded.training
    assert [name for name, _ in loaded.named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name
        assert parameter.dtype == torch.float32
        assert parameter.requires_grad


def test_saving_what_was_loaded_gives_the_same_bytes(folder, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    BertForPreTraining.from_folder(folder).save_folder(again)
    for name in ("config.json", "model.safetensors"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_the_mean_pooler_is_remembered(tmp_path):
    config = BertConfig(**{**CONFIG.to_dict(), "pooler": "mean"})
    randomized(config).save_folder(tmp_path)
    assert BertForPreTraining.from_folder(tmp_path).config == config


def test_transformers_opens_the_folder_and_misses_nothing(folder):
    oracle, info = transformers.AutoModelForPreTraining.from_pretrained(
        folder, output_loading_info=True
    )
    assert isinstance(oracle, transformers.BertForPreTraining)
    assert not any(info.values()), info
    assert oracle.config.layer_norm_eps == 1e-7
    assert_equal_logits(run(randomized()), run_oracle(oracle.eval()))


def test_a_folder_of_transformers_loads(tmp_path):
    config = {k: v for k, v in CONFIG.to_dict().items() if k != "pooler"}
    oracle = transformers.BertForPreTraining(transformers.BertConfig(**config)).eval()
    oracle.load_state_dict(randomized().state_dict())
    oracle.save_pretrained(tmp_path)
    loaded = BertForPreTraining.from_folder(tmp_path)
    assert loaded.config == CONFIG
    assert_equal_logits(run(loaded), run_oracle(oracle))


def test_tied_tensors_are_stored_once(folder):
    with safetensors.safe_open(folder / "model.safetensors", framework="pt") as file:
        stored = set(file.keys())
    assert EMBEDDING in stored
    assert "cls.predictions.bias" in stored
    assert not stored & {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}


def test_tied_tensors_may_be_stored_twice(folder):
    def repeat(tensors):
        tensors["cls.predictions.decoder.weight"] = tensors[EMBEDDING].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()

    change_weights(folder, repeat)
    assert torch.equal(
        run(BertForPreTraining.from_folder(folder)).prediction_logits, run(randomized())[2]
    )


def test_the_decoder_stays_tied_through_a_load_and_an_optimizer_step(folder):
    model = BertForPreTraining.from_folder(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    sums = loss_sums(run(model), IDS.flatten(), torch.tensor([0, 1]))
    pretraining_loss(sums, num_targets=10, num_pairs=2).backward()
    optimizer.step()
    head = model.cls.predictions
    assert head.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert head.decoder.bias is head.bias
    assert not torch.equal(head.decoder.weight, before)
    model.save_folder(folder)
    again = BertForPreTraining.from_folder(folder)
    assert torch.equal(again.cls.predictions.decoder.weight, head.decoder.weight)
    assert torch.equal(again.cls.predictions.decoder.bias, head.bias)


def test_a_missing_tensor_is_named(folder):
    change_weights(folder, lambda tensors: tensors.pop(QUERY))
    assert f"missing {QUERY}" in refusal(folder)
    assert str(folder) in refusal(folder)


def test_a_renamed_tensor_is_named_by_both_names(folder):
    change_weights(folder, lambda t: t.update({f"_orig_mod.{QUERY}": t.pop(QUERY)}))
    message = refusal(folder)
    assert f"missing {QUERY}" in message
    assert f"unknown _orig_mod.{QUERY}" in message


def test_all_faults_of_the_weights_are_named_at_once(folder):
    def spoil(tensors):
        del tensors["bert.pooler.dense.bias"]
        tensors["cls.extra"] = torch.zeros(1)
        tensors["cls.seq_relationship.weight"] = torch.zeros(3, 12)

    change_weights(folder, spoil)
    message = refusal(folder)
    assert "missing bert.pooler.dense.bias" in message
    assert "unexpected cls.extra" in message
    assert "cls.seq_relationship.weight is [3, 12], not [2, 12]" in message


def test_a_tensor_of_another_shape_is_named_with_both_shapes(folder):
    change_weights(folder, lambda t: t.update({QUERY: t[QUERY][:7].clone()}))
    assert f"{QUERY} is [7, 12], not [12, 12]" in refusal(folder)


@pytest.mark.parametrize(
    ("tied", "other"),
    [
        ("cls.predictions.decoder.weight", EMBEDDING),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
)
def test_a_decoder_with_values_of_its_own_is_refused(folder, tied, other):
    change_weights(folder, lambda tensors: tensors.update({tied: tensors[other] + 1e-3}))
    assert f"{tied} differs from {other}" in refusal(folder)


def test_a_config_that_unties_the_decoder_is_refused(folder):
    change_config(folder, tie_word_embeddings=False)
    assert "tie_word_embeddings is False" in refusal(folder)


def test_another_model_type_is_named(folder):
    change_config(folder, model_type="roberta")
    assert "roberta" in refusal(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("keep", [0, 5, -10])
def test_a_truncated_file_is_named(folder, name, keep):
    path = folder / name
    path.write_bytes(path.read_bytes()[:keep])
    assert str(path) in refusal(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert f"{folder} holds no {name}, and no model/ that does" in refusal(folder)


def test_heads_that_do_not_divide_the_width_are_refused_with_both_numbers(folder):
    change_config(folder, num_attention_heads=5)
    message = refusal(folder)
    assert str(folder / "config.json") in message
    assert "num_attention_heads" in message.replace("-", "_")
    assert "5" in message
    assert "12" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "mish"),
        ("num_hidden_layers", 0),
        ("vocab_size", "many"),
        ("vocab_size", None),
        ("hidden_size", 12.0),
        ("layer_norm_eps", [1]),
    ],
)
def test_a_value_that_no_bert_can_have_is_named(folder, key, value):
    change_config(folder, **{key: value})
    message = refusal(folder)
    assert str(folder / "config.json") in message
    assert key in message.replace("-", "_")


def test_a_config_need_not_state_the_defaults(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 24}')
    assert read_config(tmp_path) == BertConfig(hidden_size=24)


def test_a_model_is_found_in_its_folder_or_in_a_run(folder, tmp_path):
    run_folder = tmp_path / "run"
    (run_folder / "model").mkdir(parents=True)
    (run_folder / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds no"):
        find_model(run_folder)
    randomized().save_folder(run_folder / "model")
    assert find_model(run_folder) == run_folder / "model"
    assert find_model(folder) == folder
    with pytest.raises(InputError, match="no such model folder"):
        find_model(tmp_path / "nowhere")
