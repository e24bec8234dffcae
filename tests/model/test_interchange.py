"""Model folders exchanged with transformers: of every class, of any layout, in both directions."""

import json
import re
import subprocess
from collections import Counter

import pytest
import safetensors.torch
import torch
import transformers
from transformers import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from bertpt.config import BertConfig
from bertpt.errors import InputError
from bertpt.model.bert import BertForPreTraining, BertModel
from bertpt.model.hf_files import find_model
from bertpt.model.losses import loss_sums, pretraining_loss
from bertpt.model.pretrained import (
    MLM_HEAD,
    NSP_HEAD,
    POOLER,
    from_pretrained,
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
IDS = torch.tensor([[2, 7, 98, 4, 3], [2, 55, 4, 3, 0]])
TOKEN_TYPE_IDS = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]])
LENGTHS = torch.tensor([5, 4])
REAL = torch.arange(5) < LENGTHS[:, None]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}

WITHOUT_POOLER = "BertModel without pooler"
# What a folder of each class has: of the parts that bertpt knows, and of a task's own.
PARTS_OF_KIND = {
    "BertForPreTraining": {POOLER, MLM_HEAD, NSP_HEAD},
    "BertForMaskedLM": {MLM_HEAD},
    "BertModel": {POOLER},
    WITHOUT_POOLER: set(),
    "BertForNextSentencePrediction": {POOLER, NSP_HEAD},
    "BertForSequenceClassification": {POOLER},
    "BertForTokenClassification": set(),
    "BertForQuestionAnswering": set(),
    "BertForMultipleChoice": {POOLER},
}
TASK_HEADS = {
    "BertForSequenceClassification": {"classifier.weight", "classifier.bias"},
    "BertForTokenClassification": {"classifier.weight", "classifier.bias"},
    "BertForQuestionAnswering": {"qa_outputs.weight", "qa_outputs.bias"},
    "BertForMultipleChoice": {"classifier.weight", "classifier.bias"},
}
PREFIXES = {POOLER: "bert.pooler.", MLM_HEAD: "cls.predictions.", NSP_HEAD: "cls.seq_relationship."}
PARTS_OF_OURS = {BertForPreTraining: set(PREFIXES), BertModel: {POOLER}}

every_kind = pytest.mark.parametrize("kind", PARTS_OF_KIND)
both_of_ours = pytest.mark.parametrize("ours", PARTS_OF_OURS, ids=lambda ours: ours.__name__)


def randomized(model):
    """Gives every parameter a value that no initialisation does."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3, generator=generator)
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1.0)
    return model.eval()


def oracle_of(kind, **changes):
    """A model of transformers, at odds with every default."""
    config = {name: value for name, value in CONFIG.to_dict().items() if name != "pooler"}
    config = transformers.BertConfig(**{**config, **changes}, attn_implementation="eager")
    if kind == WITHOUT_POOLER:
        return randomized(transformers.BertModel(config, add_pooling_layer=False))
    return randomized(getattr(transformers, kind)(config))


def run(model, **asked):
    with torch.no_grad():
        return model(IDS, TOKEN_TYPE_IDS, LENGTHS, **asked)


def run_oracle(oracle, **asked):
    with torch.no_grad():
        return oracle(
            input_ids=IDS, token_type_ids=TOKEN_TYPE_IDS, attention_mask=REAL.long(), **asked
        )


def assert_same_encoder(model, oracle):
    """Compares embeddings, layers, attentions, and the pooler where there is one."""
    ours = run(model, output_hidden_states=True, output_attentions=True)
    theirs = run_oracle(oracle.base_model, output_hidden_states=True, output_attentions=True)
    for mine, other in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        torch.testing.assert_close(mine[REAL], other[REAL], **CLOSE)
    for mine, other in zip(ours.attentions, theirs.attentions, strict=True):
        by_token = [each.transpose(1, 2)[REAL] for each in (mine, other)]
        torch.testing.assert_close(*by_token, **CLOSE)
    torch.testing.assert_close(ours.last_hidden_state[REAL], theirs[0][REAL], **CLOSE)
    if theirs.pooler_output is not None:
        torch.testing.assert_close(ours.pooler_output, theirs.pooler_output, **CLOSE)


def assert_same_logits(model, oracle):
    """Compares the pretraining heads that the oracle has."""
    ours, theirs = run(model), run_oracle(oracle)
    parts = PARTS_OF_KIND[type(oracle).__name__]
    if MLM_HEAD in parts:
        logits = theirs["logits" if "logits" in theirs else "prediction_logits"]
        mine = ours.prediction_logits.view(2, 5, 99)
        torch.testing.assert_close(mine[REAL], logits[REAL], **CLOSE)
    if NSP_HEAD in parts:
        logits = theirs["logits" if "logits" in theirs else "seq_relationship_logits"]
        torch.testing.assert_close(ours.seq_relationship_logits, logits, **CLOSE)


def assert_same_parameters(one, other):
    pairs = zip(one.named_parameters(), other.named_parameters(), strict=True)
    for (name, parameter), (other_name, other_parameter) in pairs:
        assert name == other_name
        assert torch.equal(parameter, other_parameter), name


def change_weights(folder, change):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file(change(tensors), folder / "model.safetensors")


def change_config(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def tensors_of(folder):
    """The names in a folder's files, as they would be in a BertForPreTraining."""
    names = [name for file in folder.glob("*.safetensors") for name in load_names(file)]
    is_bare = not any(name.startswith("bert.") for name in names)
    return [f"bert.{name}" if is_bare else name for name in names]


def load_names(file):
    with safetensors.safe_open(file, framework="pt") as opened:
        return list(opened.keys())


def is_of(parts, name):
    return name.startswith(tuple(PREFIXES[part] for part in parts))


# ------------------------------------------------------------------------- from transformers to us


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu", "gelu_pytorch_tanh"])
@every_kind
def test_a_folder_of_any_class_gives_the_outputs_of_transformers(kind, hidden_act, tmp_path):
    oracle = oracle_of(kind, hidden_act=hidden_act)
    oracle.save_pretrained(tmp_path)
    model, _ = load_model(BertForPreTraining, tmp_path)
    assert not model.training
    assert_same_encoder(model, oracle)
    if hasattr(oracle, "cls"):
        assert_same_logits(model, oracle)
    assert_same_encoder(load_model(BertModel, tmp_path)[0], oracle)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@every_kind
def test_weights_of_another_precision_are_read_into_float32(kind, dtype, tmp_path):
    oracle = oracle_of(kind).to(dtype)
    oracle.save_pretrained(tmp_path)
    model, report = load_model(BertForPreTraining, tmp_path)
    assert_same_encoder(model, oracle.float())
    for name in report.loaded:
        parameter = model.get_parameter(name)
        assert parameter.dtype == torch.float32
        theirs = oracle.get_parameter(name if hasattr(oracle, "bert") else name[5:])
        assert torch.equal(parameter, theirs), name


@every_kind
def test_shards_equal_one_file(kind, tmp_path):
    oracle = oracle_of(kind)
    oracle.save_pretrained(tmp_path / "whole")
    oracle.save_pretrained(tmp_path / "sharded", max_shard_size="2KB")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 4
    assert not (tmp_path / "sharded/model.safetensors").exists()
    for ours in PARTS_OF_OURS:
        whole, single_report = load_model(ours, find_model(tmp_path / "whole"))
        sharded, report = load_model(ours, find_model(tmp_path / "sharded"))
        assert report == single_report
        assert_same_parameters(sharded, whole)


# -------------------------------------------------------------------------------------- the report


@both_of_ours
@every_kind
def test_the_report_lists_every_parameter_and_tensor_once(kind, ours, tmp_path):
    oracle_of(kind).save_pretrained(tmp_path)
    model, report = load_model(ours, tmp_path)
    prefix = "bert." if ours is BertModel else ""
    parameters = Counter(prefix + name for name, _ in model.named_parameters())
    assert Counter(report.loaded + report.new) == parameters
    assert Counter(report.loaded + report.tied + report.ignored) == Counter(tensors_of(tmp_path))


@both_of_ours
@every_kind
def test_missing_parts_are_new_and_a_task_head_is_ignored(kind, ours, tmp_path):
    oracle_of(kind).save_pretrained(tmp_path)
    model, report = load_model(ours, tmp_path)
    lacking = PARTS_OF_OURS[ours] - PARTS_OF_KIND[kind]
    prefix = "bert." if ours is BertModel else ""
    names = {prefix + name for name, _ in model.named_parameters()}
    assert set(report.new) == {name for name in names if is_of(lacking, name)}
    assert {part for part in PREFIXES if report.lacks(part)} == lacking
    no_place = PARTS_OF_KIND[kind] - PARTS_OF_OURS[ours]
    task_head = {name for name in report.ignored if not is_of(no_place, name)}
    assert task_head == TASK_HEADS.get(kind, set())

    text = str(report)
    for name in task_head | set(report.new):
        assert name in text
    for part in PREFIXES:
        assert (f"no {part}" in text) == (part in lacking)
    assert bool(text) == bool(task_head or lacking)


@every_kind
def test_a_missing_required_part_is_named_with_the_folder(kind, tmp_path):
    oracle_of(kind).save_pretrained(tmp_path)
    _, report = load_model(BertForPreTraining, tmp_path)
    for part in PREFIXES:
        if part in PARTS_OF_KIND[kind]:
            report.require(part, tmp_path)
        else:
            with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))} has no {part}"):
                report.require(part, tmp_path)


@both_of_ours
@every_kind
def test_a_folder_without_a_head_loads_only_if_new_heads_are_asked_for(kind, ours, tmp_path):
    oracle = oracle_of(kind)
    oracle.save_pretrained(tmp_path)
    lacking = PARTS_OF_OURS[ours] - PARTS_OF_KIND[kind]
    if lacking:
        with pytest.raises(InputError) as caught:
            from_pretrained(ours, tmp_path)
        assert str(tmp_path) in str(caught.value)
        assert "new_heads=True" in str(caught.value)
        assert {part for part in PREFIXES if PREFIXES[part] in str(caught.value)} == lacking
    else:
        assert_same_encoder(from_pretrained(ours, tmp_path), oracle)
    assert_same_encoder(from_pretrained(ours, tmp_path, new_heads=True), oracle)


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertModel", WITHOUT_POOLER])
def test_new_heads_start_as_published(kind, tmp_path):
    oracle_of(kind, initializer_range=0.05).save_pretrained(tmp_path)
    model, report = load_model(BertForPreTraining, tmp_path)
    matrices = []
    for name in report.new:
        parameter = model.get_parameter(name)
        if name.endswith("LayerNorm.weight"):
            assert (parameter == 1).all(), name
        elif parameter.ndim == 1:
            assert (parameter == 0).all(), name
        else:
            matrices.append(parameter.flatten())
    drawn = torch.cat(matrices)
    assert drawn.abs().max() <= 0.1
    assert len(drawn.unique()) == len(drawn)
    # a normal distribution cut off at 2 standard deviations has 0.88 of the whole one's
    assert drawn.std().item() == pytest.approx(0.88 * 0.05, rel=0.15)
    assert abs(drawn.mean()) < 0.01


def test_new_heads_depend_on_the_generator_alone(tmp_path):
    oracle_of(WITHOUT_POOLER).save_pretrained(tmp_path)

    def heads(*seed):
        generators = [torch.Generator().manual_seed(each) for each in seed]
        model, report = load_model(BertForPreTraining, tmp_path, *generators)
        return torch.cat([model.get_parameter(name).flatten() for name in report.new])

    torch.manual_seed(0)
    first, state = heads(5), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(heads(5), first)
    assert not torch.equal(heads(6), first)
    assert torch.equal(heads(), heads())
    torch.manual_seed(0)
    heads(5)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertModel", WITHOUT_POOLER])
def test_the_decoder_stays_tied_through_an_optimizer_step(kind, tmp_path):
    oracle_of(kind).save_pretrained(tmp_path)
    model = from_pretrained(BertForPreTraining, tmp_path, new_heads=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    sums = loss_sums(
        model(IDS, TOKEN_TYPE_IDS, LENGTHS, torch.arange(10)), IDS.flatten(), torch.tensor([0, 1])
    )
    pretraining_loss(sums, num_targets=10, num_pairs=2).backward()
    optimizer.step()
    head = model.cls.predictions
    assert head.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert not torch.equal(head.decoder.weight, before)
    assert head.decoder.bias is head.bias
    assert (head.bias != 0).all()
    names = [name for name, _ in model.named_parameters()]
    assert names.count("cls.predictions.bias") == 1
    assert not any("decoder" in name for name in names)


# ------------------------------------------------------------------------------- layouts of any age


def with_old_norms(tensors):
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert len(old.keys() - tensors.keys()) >= 10
    return old


@pytest.mark.parametrize("kind", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
def test_layer_norms_may_be_named_gamma_and_beta(kind, tmp_path):
    oracle_of(kind).save_pretrained(tmp_path)
    modern, report = load_model(BertForPreTraining, tmp_path)
    change_weights(tmp_path, with_old_norms)
    old, old_report = load_model(BertForPreTraining, tmp_path)
    assert old_report == report
    assert_same_parameters(old, modern)


@both_of_ours
@pytest.mark.parametrize("kind", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
def test_position_ids_among_the_weights_are_ignored(kind, ours, tmp_path):
    oracle_of(kind).save_pretrained(tmp_path)
    modern, report = load_model(ours, tmp_path)
    prefix = "" if kind == "BertModel" else "bert."
    constant = {f"{prefix}embeddings.position_ids": torch.arange(11)[None]}
    change_weights(tmp_path, lambda tensors: tensors | constant)
    old, old_report = load_model(ours, tmp_path)
    assert_same_parameters(old, modern)
    assert set(old_report.ignored) - set(report.ignored) == {"bert.embeddings.position_ids"}
    assert (old_report.loaded, old_report.new) == (report.loaded, report.new)


def test_a_tied_decoder_may_be_stored_twice(tmp_path):
    oracle_of("BertForMaskedLM").save_pretrained(tmp_path)
    once, report = load_model(BertForPreTraining, tmp_path)

    def repeat(tensors):
        weight = tensors["bert.embeddings.word_embeddings.weight"].clone()
        bias = tensors["cls.predictions.bias"].clone()
        decoder = {"cls.predictions.decoder.weight": weight, "cls.predictions.decoder.bias": bias}
        return tensors | decoder

    change_weights(tmp_path, repeat)
    twice, twice_report = load_model(BertForPreTraining, tmp_path)
    assert_same_parameters(twice, once)
    assert report.tied == ()
    assert twice_report.tied == ("cls.predictions.decoder.bias", "cls.predictions.decoder.weight")
    assert twice_report.loaded == report.loaded
    encoder_report = load_model(BertModel, tmp_path)[1]
    assert encoder_report.tied == ()
    assert set(twice_report.tied) <= set(encoder_report.ignored)


@every_kind
def test_a_config_may_lack_architectures_and_have_no_pad_token(kind, tmp_path):
    oracle = oracle_of(kind)
    oracle.save_pretrained(tmp_path)
    _, report = load_model(BertForPreTraining, tmp_path)
    change_config(tmp_path, lambda config: config.pop("architectures"))
    change_config(tmp_path, lambda config: config.update(pad_token_id=None))
    model, bare_report = load_model(BertForPreTraining, tmp_path)
    assert bare_report == report
    assert model.config == CONFIG
    assert_same_encoder(model, oracle)


def test_an_untied_decoder_is_refused_with_the_way_out_and_the_encoder_loads(tmp_path):
    oracle = oracle_of("BertForMaskedLM", tie_word_embeddings=False)
    oracle.save_pretrained(tmp_path)
    for new_heads in (False, True):
        with pytest.raises(InputError) as caught:
            from_pretrained(BertForPreTraining, tmp_path, new_heads=new_heads)
        message = str(caught.value)
        assert str(tmp_path) in message
        assert "tie_word_embeddings is False" in message
        assert "BertModel" in message
    assert_same_encoder(from_pretrained(BertModel, tmp_path, new_heads=True), oracle)


def test_the_way_out_for_an_untied_decoder_works(tmp_path):
    oracle = oracle_of("BertForMaskedLM", tie_word_embeddings=False)
    oracle.save_pretrained(tmp_path / "untied")
    encoder = transformers.BertModel.from_pretrained(tmp_path / "untied", add_pooling_layer=False)
    encoder.save_pretrained(tmp_path / "encoder")
    model = from_pretrained(BertForPreTraining, tmp_path / "encoder", new_heads=True)
    assert_same_encoder(model, oracle)


def pickled(kind, folder):
    """Makes a folder as transformers did before safetensors."""
    oracle = oracle_of(kind)
    oracle.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(oracle.state_dict(), folder / "pytorch_model.bin")
    return oracle


def refusal_of(folder):
    with pytest.raises(InputError) as caught:
        from_pretrained(BertForPreTraining, folder)
    return str(caught.value)


def code_that_a_shell_would_run(message):
    line = message[message.index("python -c ") :]
    shell = f'python() {{ printf %s "$2"; }}\n{line}'
    return subprocess.run(
        ["/bin/sh", "-c", shell], check=True, capture_output=True, text=True
    ).stdout


@every_kind
def test_a_pickle_is_refused_with_the_line_that_converts_it(kind, tmp_path):
    oracle = pickled(kind, tmp_path)
    message = refusal_of(tmp_path)
    assert f"{tmp_path} contains only a pickle" in message
    assert len(message.splitlines()) == 1
    assert type(oracle).__name__ in message
    exec(code_that_a_shell_would_run(message), {})
    model, report = load_model(BertForPreTraining, find_model(tmp_path))
    assert_same_encoder(model, oracle)
    assert {p for p in PREFIXES if not report.lacks(p)} == PARTS_OF_KIND[kind]


@every_kind
def test_a_pickle_without_a_declared_class_is_converted(kind, tmp_path):
    oracle = pickled(kind, tmp_path)
    change_config(tmp_path, lambda config: config.pop("architectures"))
    exec(code_that_a_shell_would_run(refusal_of(tmp_path)), {})
    model, report = load_model(BertForPreTraining, find_model(tmp_path))
    assert_same_encoder(model, oracle)
    assert {p for p in PREFIXES if not report.lacks(p)} == PARTS_OF_KIND[kind]


def test_an_empty_pickle_is_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert "contains only a pickle" in refusal_of(tmp_path)


def test_the_line_that_converts_a_pickle_works_for_any_path(tmp_path):
    folder = tmp_path / "it's $HOME"
    oracle = pickled("BertForMaskedLM", folder)
    exec(code_that_a_shell_would_run(refusal_of(folder)), {})
    assert_same_encoder(from_pretrained(BertForPreTraining, folder, new_heads=True), oracle)


def test_the_line_that_converts_a_pickle_runs_no_code_from_the_config(tmp_path):
    pickled("BertForMaskedLM", tmp_path)
    change_config(tmp_path, lambda c: c.update(architectures=["sys; raise SystemExit(3) #"]))
    assert "SystemExit" not in refusal_of(tmp_path)


# ------------------------------------------------------------------------- from us to transformers


@pytest.fixture
def folder(tmp_path):
    save_pretrained(randomized(BertForPreTraining(CONFIG)), tmp_path / "ours")
    return tmp_path / "ours"


def opened(kind, folder):
    """A model that transformers opens, and what it has to say about that."""
    model, info = kind.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    return model.eval(), {what: set(names) for what, names in info.items()}


def test_transformers_opens_the_folder_without_missing_weights(folder):
    oracle, info = opened(transformers.AutoModelForPreTraining, folder)
    assert isinstance(oracle, transformers.BertForPreTraining)
    assert not any(info.values()), info
    assert oracle.config.layer_norm_eps == 1e-7
    model = randomized(BertForPreTraining(CONFIG))
    assert_same_encoder(model, oracle)
    assert_same_logits(model, oracle)


@pytest.mark.parametrize(
    ("kind", "new", "no_place_for"),
    [
        (transformers.AutoModel, set(), {MLM_HEAD, NSP_HEAD}),
        (transformers.AutoModelForPreTraining, set(), set()),
        (transformers.AutoModelForMaskedLM, set(), {POOLER, NSP_HEAD}),
        (BertForMaskedLM, set(), {POOLER, NSP_HEAD}),
        (BertForNextSentencePrediction, set(), {MLM_HEAD}),
        (
            BertForSequenceClassification,
            TASK_HEADS["BertForSequenceClassification"],
            {MLM_HEAD, NSP_HEAD},
        ),
        (
            BertForTokenClassification,
            TASK_HEADS["BertForTokenClassification"],
            {POOLER, MLM_HEAD, NSP_HEAD},
        ),
        (
            BertForQuestionAnswering,
            TASK_HEADS["BertForQuestionAnswering"],
            {POOLER, MLM_HEAD, NSP_HEAD},
        ),
        (BertForMultipleChoice, TASK_HEADS["BertForMultipleChoice"], {MLM_HEAD, NSP_HEAD}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_transformers_opens_the_folder_as_any_class(kind, new, no_place_for, folder, tmp_path):
    oracle, info = opened(kind, folder)
    parameters = BertForPreTraining(CONFIG).named_parameters()
    assert info["missing_keys"] == new
    assert info["unexpected_keys"] == {name for name, _ in parameters if is_of(no_place_for, name)}
    assert info["mismatched_keys"] == set()
    assert_same_encoder(randomized(BertForPreTraining(CONFIG)), oracle)

    oracle_of("BertForPreTraining").save_pretrained(tmp_path / "theirs")
    assert opened(kind, tmp_path / "theirs")[1] == info


@pytest.mark.parametrize("pooler", ["cls", "mean"])
def test_a_round_trip_through_transformers_changes_no_bit(pooler, tmp_path):
    config = BertConfig(**{**CONFIG.to_dict(), "pooler": pooler, "pad_token_id": 3})
    model = randomized(BertForPreTraining(config))
    save_pretrained(model, tmp_path / "ours")
    oracle = transformers.BertForPreTraining.from_pretrained(tmp_path / "ours")
    oracle.save_pretrained(tmp_path / "theirs")
    back = from_pretrained(BertForPreTraining, tmp_path / "theirs")
    assert_same_parameters(back, model)
    assert back.config == config
    assert torch.equal(run(back).prediction_logits, run(model).prediction_logits)


def test_an_encoder_round_trips_through_transformers(tmp_path):
    model = randomized(BertModel(CONFIG))
    save_pretrained(model, tmp_path / "ours")
    oracle, info = opened(transformers.AutoModel, tmp_path / "ours")
    assert isinstance(oracle, transformers.BertModel)
    assert not any(info.values()), info
    assert_same_encoder(model, oracle)
    oracle.save_pretrained(tmp_path / "theirs")
    back = from_pretrained(BertModel, tmp_path / "theirs")
    assert_same_parameters(back, model)
    assert back.config == CONFIG
