"""Model folders: every bit comes back, every weight is reported, and damage is refused."""

import contextlib
import dataclasses
import json
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bertpt.config import BertConfig
from bertpt.errors import InputError, OutputError
from bertpt.model.bert import BertForPreTraining, BertModel
from bertpt.model.hf_files import find_model, read_config
from bertpt.model.losses import loss_sums, pretraining_loss
from bertpt.model.pretrained import (
    MLM_HEAD,
    NSP_HEAD,
    POOLER,
    from_pretrained,
    load_into,
    load_model,
    save_pretrained,
)

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
POSITIONS = "bert.embeddings.position_embeddings.weight"
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
IDS = torch.tensor([[2, 7, 98, 4, 3], [2, 55, 4, 3, 0]])
TOKEN_TYPE_IDS = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]])
LENGTHS = torch.tensor([5, 4])


PREFIXES = {POOLER: "bert.pooler.", MLM_HEAD: "cls.predictions.", NSP_HEAD: "cls.seq_relationship."}


def randomized(config=CONFIG, kind=BertForPreTraining):
    generator = torch.Generator().manual_seed(4)
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model.eval()


def run(model):
    return model(IDS, TOKEN_TYPE_IDS, LENGTHS, torch.arange(10))


@pytest.fixture
def folder(tmp_path):
    save_pretrained(randomized(), tmp_path)
    return tmp_path


def change_weights(folder, change):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def names_in(folder):
    return safetensors.torch.load_file(folder / "model.safetensors").keys()


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def refusal(folder, *, kind=BertForPreTraining, **how):
    with pytest.raises(InputError) as caught:
        from_pretrained(kind, folder, **how)
    return str(caught.value)


def remove(*beginnings):
    """A change of weights."""

    def change(tensors):
        gone = [name for name in tensors if name.startswith(beginnings)]
        assert gone
        for name in gone:
            del tensors[name]

    return change


def test_a_model_round_trips_bit_for_bit(folder):
    model, loaded = randomized(), from_pretrained(BertForPreTraining, folder)
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
    save_pretrained(from_pretrained(BertForPreTraining, folder), again)
    for name in ("config.json", "model.safetensors"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_the_mean_pooler_is_stored(tmp_path):
    config = BertConfig(**{**CONFIG.to_dict(), "pooler": "mean"})
    save_pretrained(randomized(config), tmp_path)
    assert from_pretrained(BertForPreTraining, tmp_path).config == config


def test_tied_tensors_are_stored_once(folder):
    stored = safetensors.torch.load_file(folder / "model.safetensors").keys()
    assert EMBEDDING in stored
    assert "cls.predictions.bias" in stored
    assert not stored & {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}


def test_tied_tensors_may_be_stored_twice(folder):
    def repeat(tensors):
        tensors["cls.predictions.decoder.weight"] = tensors[EMBEDDING].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()

    change_weights(folder, repeat)
    assert torch.equal(
        run(from_pretrained(BertForPreTraining, folder)).prediction_logits, run(randomized())[2]
    )


def test_the_decoder_stays_tied_through_a_load_and_an_optimizer_step(folder):
    model = from_pretrained(BertForPreTraining, folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    sums = loss_sums(run(model), IDS.flatten(), torch.tensor([0, 1]))
    pretraining_loss(sums, num_targets=10, num_pairs=2).backward()
    optimizer.step()
    head = model.cls.predictions
    assert head.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert head.decoder.bias is head.bias
    assert not torch.equal(head.decoder.weight, before)
    save_pretrained(model, folder)
    again = from_pretrained(BertForPreTraining, folder)
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


def test_only_ten_names_are_listed(folder):
    layer = sorted(name for name in names_in(folder) if name.startswith("bert.encoder.layer.1."))
    assert len(layer) == 16
    change_weights(folder, remove("bert.encoder.layer.1."))
    message = refusal(folder)
    assert f"missing {', '.join(layer[:10])} and 6 more" in message
    assert not any(name in message for name in layer[10:])


def test_ten_names_are_all_listed(folder):
    ten = sorted(name for name in names_in(folder) if name.startswith("bert.encoder."))[:10]
    change_weights(folder, lambda tensors: [tensors.pop(name) for name in ten])
    message = refusal(folder)
    assert all(name in message for name in ten)
    assert "more" not in message


@pytest.mark.parametrize(("layers", "fault"), [(1, "unexpected"), (3, "missing")])
@pytest.mark.parametrize("kind", [BertForPreTraining, BertModel])
def test_another_number_of_layers_is_noticed(kind, layers, fault, folder):
    change_config(folder, num_hidden_layers=layers)
    odd = f"bert.encoder.layer.{min(layers, 2)}."
    message = refusal(folder, kind=kind, new_heads=True)
    assert f"{fault} {odd}attention.output.LayerNorm.bias" in message
    assert "and 6 more" in message


def test_all_faults_of_the_weights_are_named_at_once(folder):
    def spoil(tensors):
        del tensors["bert.pooler.dense.bias"]
        tensors["cls.extra"] = torch.zeros(1)
        tensors["cls.seq_relationship.weight"] = torch.zeros(3, 12)

    change_weights(folder, spoil)
    message = refusal(folder)
    assert "missing bert.pooler.dense.bias" in message
    assert "unexpected cls.extra" in message
    assert "cls.seq_relationship.weight has shape [3, 12], not [2, 12]" in message


def test_a_tensor_under_an_old_and_a_new_name_is_named(folder):
    new, old = "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"
    change_weights(folder, lambda tensors: tensors.update({old: tensors[new] + 1}))
    assert new in refusal(folder)
    assert old in refusal(folder)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(folder):
    change_weights(folder, lambda t: t.update({QUERY: t[QUERY][:7].clone()}))
    assert f"{QUERY} has shape [7, 12], not [12, 12]" in refusal(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_is_named(value, folder):
    change_weights(folder, lambda tensors: tensors[QUERY][3, 5].fill_(value))
    message = refusal(folder)
    assert QUERY in message
    assert "not finite" in message
    assert EMBEDDING not in message


def test_a_weight_that_float32_cannot_hold_is_named(folder):
    change_weights(folder, lambda t: t.update({QUERY: t[QUERY].double() * 1e300}))
    assert QUERY in refusal(folder)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_a_weight_of_integers_is_named_with_its_type(dtype, folder):
    change_weights(folder, lambda tensors: tensors.update({QUERY: tensors[QUERY].to(dtype)}))
    assert f"{QUERY} has dtype {str(dtype).removeprefix('torch.')}" in refusal(folder)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_weight_of_8_bits_is_read_or_refused(dtype, folder):
    eighths = (torch.arange(144) % 15 - 7).view(12, 12) / 8  # which both formats hold as they are
    change_weights(folder, lambda tensors: tensors.update({QUERY: eighths.to(dtype)}))
    with contextlib.suppress(InputError):
        loaded = from_pretrained(BertForPreTraining, folder)
        assert torch.equal(loaded.get_parameter(QUERY), eighths)


@pytest.mark.parametrize(
    ("tied", "other"),
    [
        ("cls.predictions.decoder.weight", EMBEDDING),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
)
def test_an_untied_decoder_is_refused(folder, tied, other):
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
    assert f"{folder} has no {name}, and no model/ folder with both" in refusal(folder)


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


def test_a_config_may_omit_the_defaults(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 24}')
    assert read_config(tmp_path) == BertConfig(hidden_size=24)


def test_a_model_is_found_in_its_folder_or_in_a_run(folder, tmp_path):
    run_folder = tmp_path / "run"
    (run_folder / "model").mkdir(parents=True)
    (run_folder / "config.json").write_text("{}")
    with pytest.raises(InputError, match="has no"):
        find_model(run_folder)
    save_pretrained(randomized(), run_folder / "model")
    assert find_model(run_folder) == run_folder / "model"
    assert find_model(folder) == folder
    with pytest.raises(InputError, match="no such model folder"):
        find_model(tmp_path / "nowhere")


# ---------------------------------------------------------------- heads, and the report of all


@pytest.mark.parametrize("part", PREFIXES)
def test_a_head_with_one_missing_tensor_is_not_a_new_head(part, folder):
    lost = f"{PREFIXES[part]}{'dense.' if part == POOLER else ''}bias"
    change_weights(folder, lambda tensors: tensors.pop(lost))
    change_config(folder, architectures=None)
    assert f"missing {lost}" in refusal(folder, new_heads=True)


@pytest.mark.parametrize(
    ("architecture", "declared"),
    [
        ("BertForPreTraining", {POOLER, MLM_HEAD, NSP_HEAD}),
        ("BertForMaskedLM", {MLM_HEAD}),
        ("BertForNextSentencePrediction", {POOLER, NSP_HEAD}),
        ("BertForSequenceClassification", {POOLER}),
        ("BertForMultipleChoice", {POOLER}),
    ],
)
def test_heads_that_the_config_declares_and_the_weights_lack_are_missing(
    architecture, declared, folder
):
    change_config(folder, architectures=[architecture])
    change_weights(folder, remove(*PREFIXES.values()))
    message = refusal(folder, new_heads=True)
    assert "missing" in message
    assert {part for part in PREFIXES if PREFIXES[part] in message} == declared


def test_an_nsp_head_without_the_pooler_that_it_reads_is_refused(folder):
    change_config(folder, architectures=None)
    change_weights(folder, remove("bert.pooler."))
    assert "missing bert.pooler.dense.bias" in refusal(folder, new_heads=True)


EXTRAS = {
    "bert.embeddings.position_ids": torch.arange(11)[None],
    "cls.predictions.decoder.weight": randomized().cls.predictions.decoder.weight.detach(),
    "cls.predictions.decoder.bias": randomized().cls.predictions.decoder.bias.detach(),
    "classifier.weight": torch.ones(4, 12),
    "qa_outputs.bias": torch.ones(2),
}


@given(
    parts=st.sets(st.sampled_from(list(PREFIXES))), extras=st.sets(st.sampled_from(list(EXTRAS)))
)
@hypothesis_settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("kind", [BertForPreTraining, BertModel])
def test_every_tensor_and_every_parameter_is_accounted_for_once(kind, parts, extras):
    model = randomized()
    parts |= {MLM_HEAD} if any("decoder" in name for name in extras) else set()
    parts |= {POOLER} if NSP_HEAD in parts else set()
    lacking = tuple(PREFIXES[part] for part in PREFIXES.keys() - parts)
    stored = {
        name: parameter.detach()
        for name, parameter in model.named_parameters()
        if not name.startswith(lacking)
    }
    stored.update({name: EXTRAS[name].clone() for name in extras})
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder)
        change_config(Path(folder), architectures=None)
        safetensors.torch.save_file(stored, Path(folder) / "model.safetensors")
        loaded, report = load_model(kind, Path(folder))

    prefix = "bert." if kind is BertModel else ""
    ours = {prefix + name: p for name, p in loaded.named_parameters()}
    assert Counter(report.loaded + report.new) == Counter(ours.keys())
    assert Counter(report.loaded + report.tied + report.ignored) == Counter(stored.keys())
    assert set(report.new) == {name for name in ours if name.startswith(lacking)}
    tied = {name for name in extras if "decoder" in name and kind is BertForPreTraining}
    assert set(report.tied) == tied
    assert all(torch.equal(ours[name], stored[name]) for name in report.loaded)
    for name in set(report.new) | {name for name in extras if "decoder" not in name}:
        assert name in str(report)


def test_a_folder_of_bertpt_needs_no_report(folder):
    _, report = load_model(BertForPreTraining, folder)
    assert len(report.loaded) == len(list(BertForPreTraining(CONFIG).parameters()))
    assert (report.tied, report.new, report.ignored) == ((), (), ())
    assert str(report) == ""
    assert str(load_model(BertModel, folder)[1]) == ""


def test_an_encoder_round_trips_bit_for_bit_alone_and_from_a_full_model(folder, tmp_path):
    model = randomized(kind=BertModel)
    save_pretrained(model, tmp_path / "encoder")
    for loaded, expected in [
        (from_pretrained(BertModel, tmp_path / "encoder"), model),
        (from_pretrained(BertModel, folder), randomized().bert),
    ]:
        assert loaded.config == CONFIG
        for name, parameter in loaded.named_parameters():
            assert torch.equal(parameter, expected.get_parameter(name)), name


def test_a_refused_folder_does_not_change_the_model(folder):
    model = BertForPreTraining(CONFIG)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    change_weights(folder, lambda tensors: tensors[QUERY].fill_(torch.nan))
    with pytest.raises(InputError):
        load_into(model, folder)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name


@pytest.mark.parametrize("architectures", [5, True, "BertModel", {"a": 1}, [["BertModel"]], [5]])
@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_architectures_that_are_not_a_list_of_names_are_ignored(architectures, weights, folder):
    change_config(folder, architectures=architectures)
    (folder / "model.safetensors").rename(folder / weights)
    with contextlib.suppress(InputError):
        from_pretrained(BertForPreTraining, folder)


# ------------------------------------------------------------------------------- more positions


@given(st.integers(11, 40))
@hypothesis_settings(max_examples=15, deadline=None)
def test_extended_positions_repeat_the_old_ones_and_change_no_output(number):
    old = randomized()
    model = BertForPreTraining(dataclasses.replace(CONFIG, max_position_embeddings=number)).eval()
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(old, folder)
        report = load_into(model, Path(folder), extend_positions=True)
    assert POSITIONS in report.loaded
    table, rows = old.get_parameter(POSITIONS), model.get_parameter(POSITIONS)
    assert rows.shape == (number, 12)
    for position in range(number):
        assert torch.equal(rows[position], table[position % 11])
    ids = torch.arange(22).view(2, 11)
    for mine, other in zip(model(ids)[:4], old(ids)[:4], strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(("positions", "extend"), [(20, False), (10, False), (10, True)], ids=str)
def test_positions_that_are_not_to_be_extended_are_refused_with_both_shapes(
    positions, extend, folder
):
    model = BertForPreTraining(dataclasses.replace(CONFIG, max_position_embeddings=positions))
    with pytest.raises(InputError) as caught:
        load_into(model, folder, extend_positions=extend)
    assert f"{POSITIONS} has shape [11, 12], not [{positions}, 12]" in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0, 12), (11,), (11, 7)], ids=str)
def test_an_unusable_position_table_is_not_extended(shape, folder):
    change_weights(folder, lambda tensors: tensors.update({POSITIONS: torch.ones(shape)}))
    model = BertForPreTraining(dataclasses.replace(CONFIG, max_position_embeddings=20))
    with pytest.raises(InputError, match=re.escape(f"{POSITIONS} has shape {list(shape)}")):
        load_into(model, folder, extend_positions=True)


# --------------------------------------------------------------------------------------- shards


def shard(folder, change=lambda _: None):
    """Splits our folder into two files; `change` then gets the index."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    path.unlink()
    places = {name: f"{name.split('.')[0]}.safetensors" for name in tensors}
    for file in set(places.values()):
        part = {name: tensor for name, tensor in tensors.items() if places[name] == file}
        safetensors.torch.save_file(part, folder / file)
    index = {"metadata": {}, "weight_map": places}
    change(index)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_merged(folder):
    shard(folder)
    model, loaded = randomized(), from_pretrained(BertForPreTraining, folder)
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name


@pytest.mark.parametrize(
    "place",
    ["gone.safetensors", "../cls.safetensors", "/cls.safetensors", "", ".", "..", "\ud800", "a\0b"],
)
def test_a_missing_shard_or_one_outside_the_folder_is_named(place, folder):
    shard(folder, lambda index: index["weight_map"].update({QUERY: place}))
    (folder.parent / "cls.safetensors").write_bytes((folder / "cls.safetensors").read_bytes())
    message = refusal(folder)
    assert str(folder) in message
    assert place in message or not place.isprintable()


def test_a_tensor_missing_from_its_file_is_named(folder):
    shard(folder, lambda index: index["weight_map"].update({QUERY: "cls.safetensors"}))
    message = refusal(folder)
    assert str(folder / "model.safetensors.index.json") in message
    assert QUERY in message


def test_a_tensor_that_the_index_does_not_list_is_named(folder):
    shard(folder, lambda index: index["weight_map"].pop(QUERY))
    message = refusal(folder)
    assert str(folder / "model.safetensors.index.json") in message
    assert QUERY in message


def test_a_tensor_that_two_shards_hold_is_named(folder):
    shard(folder)
    head = safetensors.torch.load_file(folder / "cls.safetensors")
    head[QUERY] = torch.zeros(12, 12)
    safetensors.torch.save_file(head, folder / "cls.safetensors")
    assert QUERY in refusal(folder)


@pytest.mark.parametrize(
    "index",
    [{}, {"weight_map": None}, {"weight_map": ["a"]}, {"weight_map": {QUERY: 5}}],
    ids=["none", "null", "list", "number"],
)
def test_an_index_without_a_map_is_named(index, folder):
    shard(folder)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    assert str(path) in refusal(folder)
    assert "weight_map" in refusal(folder)


def test_a_damaged_shard_is_named(folder):
    shard(folder)
    path = folder / "bert.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    assert str(path) in refusal(folder)


def test_a_path_that_is_not_a_folder_cannot_be_saved_to(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="cannot write"):
            save_pretrained(randomized(), place)
