import dataclasses
import math

import pytest

from bertpt.config import (
    MODEL_SIZES,
    RECIPES,
    SCHEDULES,
    BertConfig,
    BuildConfig,
    PretrainConfig,
    TokenizerConfig,
    parse_shard,
)
from bertpt.errors import SettingError

ALL = (TokenizerConfig, BuildConfig, BertConfig, PretrainConfig)


@pytest.mark.parametrize("kind", ALL)
def test_every_setting_has_help_and_a_default_in_its_range(kind):
    kind()
    assert all(field.metadata["help"].endswith(".") for field in dataclasses.fields(kind))


@pytest.mark.parametrize("kind", ALL)
def test_every_number_refuses_nan_and_what_lies_outside_its_range(kind):
    checked = 0
    for field in dataclasses.fields(kind):
        for limit, step in (("at_least", -1), ("above", 0), ("at_most", 1), ("below", 0)):
            if limit in field.metadata:
                with pytest.raises(SettingError) as error:
                    kind(**{field.name: field.metadata[limit] + step})
                assert error.value.setting == field.name
                assert str(error.value).startswith(f"`{field.name}` ")
                checked += 1
        if "float" in str(field.type):
            for bad in (math.nan, math.inf):
                with pytest.raises(SettingError, match="not a finite number"):
                    kind(**{field.name: bad})
    assert checked


def test_a_choice_names_the_choices():
    with pytest.raises(SettingError, match="`recipe` slow is not one of fast, published"):
        PretrainConfig(recipe="slow")


def test_heads_must_divide_the_width():
    with pytest.raises(
        SettingError, match="`num_attention_heads` 5 does not divide `hidden_size` 64"
    ):
        PretrainConfig(hidden_size=64, num_attention_heads=5).bert_config(
            vocab_size=99, pad_token_id=0
        )


def test_settings_survive_json():
    for config in (BuildConfig(seed=3), PretrainConfig(steps=4).resolve()):
        assert type(config)(**config.to_dict()) == config


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_only_fills_in_settings_that_are_not_given(recipe):
    resolved = PretrainConfig(recipe=recipe, dropout=0.3).resolve()
    for name, value in RECIPES[recipe].items():
        assert getattr(resolved, name) == (0.3 if name == "dropout" else value)
    assert resolved.resolve() == resolved


@pytest.mark.parametrize("size", MODEL_SIZES)
def test_sizes_have_heads_of_64_and_a_feed_forward_layer_of_four_widths(size):
    shape = PretrainConfig(model=size).bert_config(vocab_size=99, pad_token_id=0)
    assert (shape.num_hidden_layers, shape.hidden_size) == MODEL_SIZES[size]
    assert shape.num_attention_heads * 64 == shape.hidden_size
    assert shape.intermediate_size == 4 * shape.hidden_size


def test_lengths_of_a_run_exclude_each_other():
    with pytest.raises(SettingError, match="`steps` and `epochs` exclude each other"):
        PretrainConfig(steps=1, epochs=1)
    assert PretrainConfig().resolve().epochs == 10
    assert PretrainConfig(max_minutes=1).resolve().epochs is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 5, "warmup": 10}, "`warmup` 10 exceeds `steps` 5"),
        ({"max_minutes": 5, "warmup": 10}, "`warmup` 10 is a number of steps"),
        ({"max_minutes": 5, "schedule": "wsd", "decay": 10}, "`decay` 10 is a number of steps"),
        ({"max_minutes": 5, "schedule": "google"}, "`schedule` google needs a number of steps"),
        ({"steps": 5, "schedule": "wsd", "decay": 10}, "`decay` 10 exceeds `steps` 5"),
        ({"decay": 0.1}, "`decay` 0.1 requires `schedule` wsd"),
        (
            {"schedule": "wsd", "warmup": 0.6, "decay": 0.5, "max_minutes": 3},
            "`decay` 0.5 and `warmup` 0.6 together exceed `max_minutes` 3",
        ),
        (
            {"schedule": "wsd", "warmup": 6, "decay": 0.5, "steps": 10},
            "`decay` 0.5 and `warmup` 6 together exceed `steps` 10",
        ),
        ({"batch_size": 4, "micro_batch_size": 8}, "`micro_batch_size` 8 exceeds `batch_size` 4"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        PretrainConfig(**settings)


@pytest.mark.parametrize(
    ("warmup", "decay"), [(0.3, 0.7), (0.9, 0.1), (3, 0.7), (0.3, 7), (3, 7), (10, 0), (0, 10)]
)
def test_warm_up_and_decay_may_fill_the_run(warmup, decay):
    config = PretrainConfig(steps=10, schedule="wsd", warmup=warmup, decay=decay)
    assert config.resolve().decay == decay


def test_warm_up_and_decay_of_steps_are_checked_when_epochs_are_counted():
    config = PretrainConfig(epochs=2, schedule="wsd", warmup=6, decay=7).resolve()
    config.require_room(13)
    with pytest.raises(
        SettingError, match=r"^`decay` 7 and `warmup` 6 .* `epochs` 2 \(12 steps\)$"
    ):
        config.require_room(12)
    with pytest.raises(SettingError, match=r"^`decay` 7 exceeds `epochs` 2 \(6 steps\)$"):
        config.require_room(6)


def test_the_warm_up_of_the_recipe_counts_with_a_decay():
    with pytest.raises(SettingError, match=r"`decay` 0.97 and `warmup` 0.05 together exceed"):
        PretrainConfig(schedule="wsd", decay=0.97).resolve()


def test_only_wsd_has_a_decay_and_it_is_a_fifth_of_the_run():
    for name in SCHEDULES:
        resolved = PretrainConfig(schedule=name).resolve()
        assert resolved.decay == (0.2 if name == "wsd" else None)
        assert resolved.resolve() == resolved


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 5}, "`steps` 5"),
        ({"epochs": 3}, "`epochs` 3"),
        ({"steps": 1_234_567}, "`steps` 1234567"),
        ({"max_minutes": 0.5}, "`max_minutes` 0.5"),
        ({"max_minutes": 480.0}, "`max_minutes` 480"),
        ({}, "`epochs` 10"),
    ],
)
def test_the_length_of_a_run_is_named_as_on_the_command_line(settings, words):
    assert PretrainConfig(**settings).length == words
    assert PretrainConfig(**settings).resolve().length == words


def test_settings_stored_before_there_were_schedules_can_be_read():
    stored = PretrainConfig(steps=5, warmup=2).resolve().to_dict()
    old = {name: value for name, value in stored.items() if name not in ("schedule", "decay")}
    assert PretrainConfig.read(old, "config.json") == PretrainConfig(steps=5, warmup=2).resolve()


# -------------------------------------------------------------------------- from another model

# A value for each setting that asks for another shape or start than the model has.
SHAPE_SETTINGS = {
    "model": "tiny",
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 17,
    "pooler": "cls",
    "init": "published",
}


def test_learning_rates_from_another_model_are_a_tenth_of_the_fast_ones():
    fast, resolved = RECIPES["fast"], PretrainConfig(init_from="first").resolve()
    assert resolved.learning_rate == pytest.approx(fast["learning_rate"] / 10)
    assert resolved.muon_learning_rate == pytest.approx(fast["muon_learning_rate"] / 10)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_start_from_a_model_changes_no_other_part_of_a_recipe(recipe):
    resolved = PretrainConfig(recipe=recipe, init_from="first").resolve()
    rates = {"learning_rate", "muon_learning_rate"}
    for name in RECIPES[recipe].keys() - rates - {"init"}:
        assert getattr(resolved, name) == RECIPES[recipe][name], name
    fast = PretrainConfig(init_from="first").resolve()
    assert {name: getattr(resolved, name) for name in rates} == {
        name: getattr(fast, name) for name in rates
    }


@pytest.mark.parametrize("name", ["learning_rate", "muon_learning_rate"])
def test_a_given_learning_rate_wins_with_a_start_from_a_model(name):
    plain = PretrainConfig(init_from="first").resolve()
    resolved = PretrainConfig(init_from="first", **{name: 0.3}).resolve()
    assert resolved == dataclasses.replace(plain, **{name: 0.3})


def test_a_start_from_a_model_sets_no_shape():
    resolved = PretrainConfig(init_from="first").resolve()
    assert {name: getattr(resolved, name) for name in SHAPE_SETTINGS} == dict.fromkeys(
        SHAPE_SETTINGS
    )
    assert resolved.resolve() == resolved
    assert PretrainConfig(**resolved.to_dict()) == resolved


@pytest.mark.parametrize(("name", "value"), SHAPE_SETTINGS.items())
def test_a_shape_with_a_start_from_a_model_is_refused(name, value):
    PretrainConfig(**{name: value})
    option = f"`{name}`"
    with pytest.raises(SettingError) as caught:
        PretrainConfig(init_from="first", **{name: value})
    assert caught.value.setting == name
    assert str(caught.value) == (
        f"{option} and `init_from` exclude each other: it is that of first"
    )


def test_positions_are_extended_only_of_a_model_to_start_from():
    with pytest.raises(SettingError, match=r"^`extend_positions` .*`init_from`$"):
        PretrainConfig(extend_positions=True)
    assert PretrainConfig(extend_positions=True, init_from="first").resolve().extend_positions


def test_help_states_the_learning_rates_for_a_start_from_a_model():
    resolved = PretrainConfig(init_from="first").resolve()
    for name in ("learning_rate", "muon_learning_rate"):
        [field] = [f for f in dataclasses.fields(PretrainConfig) if f.name == name]
        assert f"with `init_from` {getattr(resolved, name):g}" in field.metadata["help"]


def test_a_model_with_an_empty_name_is_not_mistaken_for_none():
    with pytest.raises(SettingError):
        PretrainConfig(init_from="", hidden_size=12)


# ----------------------------------------------------------------------------- parts of a corpus


@pytest.mark.parametrize(
    ("shard", "part"), [(None, (1, 1)), ("1/1", (1, 1)), ("3/16", (3, 16)), ("03/16", (3, 16))]
)
def test_a_shard_is_a_part_and_the_number_of_parts(shard, part):
    assert parse_shard(shard) == part
    assert BuildConfig(shard=shard).shard == shard


@pytest.mark.parametrize("shard", ["0/4", "5/4"])
def test_a_part_beyond_the_number_of_parts_is_refused(shard):
    with pytest.raises(SettingError, match=rf"^`shard` {shard} must be one of 1/4 to 4/4$"):
        BuildConfig(shard=shard)


@pytest.mark.parametrize("shard", ["", "/", "3", "/16", "3/", "0/0", "1/0", "-1/4", "1/4/5", "٣/٤"])
def test_an_invalid_part_is_refused(shard):
    with pytest.raises(SettingError) as error:
        BuildConfig(shard=shard)
    assert str(error.value) == f"`shard` {shard!r} is not I/N, such as 3/16 (is a variable unset?)"


def test_every_part_has_its_own_draws_and_the_full_corpus_one_name():
    names = [BuildConfig(shard=shard).of_part("split") for shard in ("1/2", "2/2", "1/3", "1/12")]
    assert len({*names, "split"}) == 5
    assert BuildConfig().of_part("split") == BuildConfig(shard="1/1").of_part("split") == "split"
    assert BuildConfig(shard="01/2").of_part("split") == names[0]
