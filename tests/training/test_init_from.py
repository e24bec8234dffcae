"""--init-from: a run starts from exactly the weights of another model."""

import dataclasses
import itertools
import json
import re
import shutil

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F  # noqa: N812
import transformers
from helpers import read_json
from transformers import AutoTokenizer

from bertpt.build.build import build_data
from bertpt.config import BuildConfig, EvalConfig, PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.data.hf_view import transformers_view
from bertpt.errors import MismatchError
from bertpt.evaluation.mlm import eval_mlm
from bertpt.model.bert import BertForPreTraining
from bertpt.model.pretrained import from_pretrained
from bertpt.progress import Progress
from bertpt.tokenizer.added import split_tokens, with_tokens
from bertpt.tokenizer.tokenizer import load_tokenizer
from bertpt.training.pretrain import pretrain
from bertpt.training.resume import resumed_config
from bertpt.training.trainer import Trainer

SEQ_LEN = 16
# "Dog" and "à" are other tokens where cleaning keeps case and accents.
WORDS = ["cat", "Dog", "bird", "sees", "hears", "the", "à", "old", "red", "hill"]
CONFIG = PretrainConfig(
    warmup=0.0,
    steps=3,
    batch_size=8,
    eval_every=0,
    save_every=0,
    keep_last=0,
    log_every=1,
    device="cpu",
    precision="float32",
)
SHAPE = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 19,
}
HARDLY = {"learning_rate": 1e-12, "muon_learning_rate": 1e-12}  # how weights move
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
POSITIONS = "bert.embeddings.position_embeddings.weight"
MLM_HEAD = {
    *("cls.predictions.bias", "cls.predictions.transform.dense.weight"),
    *("cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight"),
    "cls.predictions.transform.LayerNorm.bias",
}
NSP_HEAD = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
POOLER = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
LACKS = {
    "BertForPreTraining": set(),
    "BertForMaskedLM": POOLER | NSP_HEAD,
    "BertModel": MLM_HEAD | NSP_HEAD,
    "BertForSequenceClassification": MLM_HEAD | NSP_HEAD,
}


@pytest.fixture(scope="module")
def data(build_tiny, tmp_path_factory):
    return build_tiny(tmp_path_factory.mktemp("data") / "data", words=WORDS)


@pytest.fixture(scope="module")
def first_run(data, tmp_path_factory):
    """A RUN of our own, with a checkpoint that differs from its newest model."""
    out = tmp_path_factory.mktemp("first") / "run"
    shape = {**SHAPE, "max_position_embeddings": SEQ_LEN}
    pretrain(data, out, config=dataclasses.replace(CONFIG, **shape, save_every=2))
    early, late = weights(out / "checkpoints/step-2"), weights(out / "model")
    assert not torch.equal(early[POSITIONS], late[POSITIONS])
    return out


@pytest.fixture
def run(data, tmp_path):
    """Trains from a model with some settings changed; returns the RUN folder."""
    numbers = itertools.count()

    def run_from(model, *, progress=None, data=data, **settings):
        out = tmp_path / f"run-{next(numbers)}"
        config = dataclasses.replace(CONFIG, init_from=str(model), **settings)
        pretrain(data, out, config=config, progress=progress)
        return out

    return run_from


@pytest.fixture
def step_on_all(run, data):
    """Makes one step on all examples with stored masks, so that its loss is that of the start."""

    def run_from(model, *, data=data, **settings):
        size = len(Dataset(data).examples("train"))
        at_once = {"steps": 1, "batch_size": size, "masking": "stored"}
        return run(model, data=data, **at_once, **settings)

    return run_from


@pytest.fixture
def stopped_run(run, monkeypatch):
    """Trains until Ctrl-C arrives in the middle of step 4; returns the RUN folder."""

    def run_from(model, **settings):
        take_step = Trainer.take_step
        runs = []

        def interrupted(trainer, examples):
            runs.append(trainer.run.path)
            if trainer.budget.step + 1 == 4:
                raise KeyboardInterrupt
            return take_step(trainer, examples)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "take_step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(model, **settings)
        return runs[-1]

    return run_from


@pytest.fixture
def started(data):
    """The model of a run that has made no step yet, in eval mode."""

    def start_from(model, **settings):
        config = dataclasses.replace(CONFIG, init_from=str(model), **settings)
        trainer = Trainer(Dataset(data), config, Progress())
        trainer.start(overwrite=False)
        return trainer.model.eval()

    return start_from


@pytest.fixture
def save(data, tmp_path):
    """Saves a model of transformers with the data's tokenizer; returns the folder and the model."""
    numbers = itertools.count()

    def save_kind(kind, **changes):
        vocab_size = len(Dataset(data).tokenizer.vocab)
        shape = {"vocab_size": vocab_size, **SHAPE, **changes}
        config = transformers.BertConfig(**shape, attn_implementation="eager")
        oracle = randomized(getattr(transformers, kind)(config))
        folder = tmp_path / f"{kind}-{next(numbers)}"
        oracle.save_pretrained(folder)
        AutoTokenizer.from_pretrained(data / "tokenizer").save_pretrained(folder)
        return folder, oracle

    return save_kind


def randomized(model):
    """Gives every parameter a value that no initialisation does."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3, generator=generator)
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1.0)
    return model.eval()


def metrics(out, split="train"):
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["split"] == split]


def weights(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def stored_in(folder):
    """A folder's tensors under the names of a BertForPreTraining, a task's head left out."""
    return {
        name if name.startswith(("bert.", "cls.")) else f"bert.{name}": tensor
        for name, tensor in weights(folder).items()
        if not name.startswith("classifier.")
    }


def assert_equal_weights(one, other):
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def losses_of(oracle, data, split="train"):
    """What transformers says of a split: MLM loss, and NSP loss where there is such a head."""
    examples = transformers_view(Dataset(data), split)
    examples = [examples[row] for row in range(len(examples))]
    rows = {name: torch.stack([example[name] for example in examples]) for name in examples[0]}
    inputs = {k: rows[k] for k in ("input_ids", "attention_mask", "token_type_ids")}
    with torch.no_grad():
        output = oracle(**inputs)
    logits = output["logits" if "logits" in output else "prediction_logits"]
    mlm = F.cross_entropy(logits.flatten(0, 1), rows["labels"].flatten())
    if "seq_relationship_logits" not in output:
        return float(mlm), None
    nsp = F.cross_entropy(output.seq_relationship_logits, rows["next_sentence_label"].flatten())
    return float(mlm), float(nsp)


def short_inputs(length):
    """Two sequences of `length` tokens, the second of them with two tokens of padding."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, 30, (2, length), generator=generator)
    types = (torch.arange(length) > length // 2).long().expand(2, -1)
    return ids, types, torch.tensor([length, length - 2])


def assert_same_output(model, oracle, length):
    """Compares both heads and the encoder on sequences of `length` tokens."""
    ids, types, lengths = short_inputs(length)
    real = torch.arange(length) < lengths[:, None]
    with torch.no_grad():
        ours = model(ids, types, lengths)
        theirs = oracle(
            input_ids=ids,
            token_type_ids=types,
            attention_mask=real.long(),
            output_hidden_states=True,
        )
    hidden = theirs.hidden_states[-1]
    torch.testing.assert_close(ours.last_hidden_state[real], hidden[real], **CLOSE)
    mine = ours.prediction_logits.view(2, length, -1)
    torch.testing.assert_close(mine[real], theirs.prediction_logits[real], **CLOSE)
    torch.testing.assert_close(
        ours.seq_relationship_logits, theirs.seq_relationship_logits, **CLOSE
    )


# ------------------------------------------------------------------------------- where it starts


@pytest.mark.parametrize("kind", LACKS)
def test_a_run_starts_from_every_weight_that_the_model_has(save, started, kind):
    folder, _ = save(kind)
    stored = stored_in(folder)
    model = dict(started(folder).named_parameters())
    assert model.keys() - stored.keys() == LACKS[kind]
    for name, tensor in stored.items():
        assert torch.equal(model[name], tensor), name


@pytest.mark.parametrize("place", ["", "model", "checkpoints/step-2"])
def test_a_run_starts_from_every_weight_of_an_earlier_run(first_run, started, place):
    stored = weights(first_run / (place or "model"))
    model = dict(started(first_run / place).named_parameters())
    assert model.keys() == stored.keys()
    for name, tensor in stored.items():
        assert torch.equal(model[name], tensor), name


@pytest.mark.parametrize("kind", ["BertForPreTraining", "BertForMaskedLM"])
def test_the_loss_at_the_start_is_that_of_the_model_in_transformers(save, step_on_all, data, kind):
    folder, oracle = save(kind)
    [first] = metrics(step_on_all(folder))
    mlm, nsp = losses_of(oracle, data)
    assert first["mlm_loss"] == pytest.approx(mlm, rel=1e-5)
    if nsp is not None:
        assert first["nsp_loss"] == pytest.approx(nsp, rel=1e-5)


def test_the_first_line_states_the_loss_at_the_start_and_the_model(save, step_on_all, data):
    folder, oracle = save("BertForPreTraining")
    progress, heard = Progress(), []
    progress.log = heard.append
    step_on_all(folder, progress=progress)
    match = re.search(rf"loss at the start (\d+\.\d\d), from {folder}$", heard[0])
    assert float(match[1]) == pytest.approx(sum(losses_of(oracle, data)), abs=0.006)
    # the words for an untrained start would be wrong here
    assert not any("warning" in line or "untrained" in line for line in heard)


def test_starting_from_a_run_uses_its_newest_model(first_run, run):
    from_run, from_model = run(first_run), run(first_run / "model")
    assert_equal_weights(from_run / "model", from_model / "model")
    assert [e["loss"] for e in metrics(from_run)] == [e["loss"] for e in metrics(from_model)]


def test_starting_from_a_checkpoint_uses_the_checkpoint(first_run, run):
    one, other = run(first_run), run(first_run / "checkpoints/step-2")
    assert metrics(one)[0]["loss"] != metrics(other)[0]["loss"]


def test_a_folder_with_vocab_txt_as_its_only_tokenizer_file_works(save, run, data):
    folder, _ = save("BertForPreTraining")
    whole = run(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    shutil.copy(data / "tokenizer/vocab.txt", folder)
    assert_equal_weights(run(folder) / "model", whole / "model")


# ------------------------------------------------------------------- what the model decides, or not


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "relu"},
        {"hidden_act": "gelu_new"},
        {"layer_norm_eps": 0.05},
        {"vocab_size": 67},
        {"type_vocab_size": 3},
        {"num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 9},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_the_shape_comes_from_the_model(save, step_on_all, data, changes):
    folder, oracle = save("BertForPreTraining", **changes)
    out = step_on_all(folder)
    mlm, nsp = losses_of(oracle, data)
    [first] = metrics(out)
    assert (first["mlm_loss"], first["nsp_loss"]) == pytest.approx((mlm, nsp), rel=1e-5)
    config = read_json(out / "model/config.json")
    expected = {**SHAPE, **changes}
    assert {name: config[name] for name in expected} == expected


def test_embeddings_beyond_the_vocabulary_are_kept(save, run, data):
    rows = 67
    assert rows > len(Dataset(data).tokenizer.vocab)
    folder, _ = save("BertForPreTraining", vocab_size=rows)
    embedding = weights(run(folder, **HARDLY) / "model")["bert.embeddings.word_embeddings.weight"]
    before = stored_in(folder)["bert.embeddings.word_embeddings.weight"]
    assert embedding.shape == (rows, 12)
    torch.testing.assert_close(embedding, before, **CLOSE)


@pytest.mark.parametrize(
    ("settings", "dropout"), [({}, 0.0), ({"dropout": 0.25}, 0.25), ({"recipe": "published"}, 0.1)]
)
def test_dropout_comes_from_the_settings_of_the_run(save, step_on_all, data, settings, dropout):
    theirs = {"hidden_dropout_prob": 0.4, "attention_probs_dropout_prob": 0.3}
    folder, oracle = save("BertForPreTraining", **theirs)
    out = step_on_all(folder, **settings)
    config = read_json(out / "model/config.json")
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == dropout
    is_that_of_no_dropout = metrics(out)[0]["mlm_loss"] == pytest.approx(
        losses_of(oracle, data)[0], rel=1e-5
    )
    assert is_that_of_no_dropout == (dropout == 0)


def test_learning_rates_are_those_for_trained_weights_unless_given(save, run):
    folder, _ = save("BertForPreTraining")
    asked = {"learning_rate": 3e-4, "muon_learning_rate": 5e-3}
    for given, rates in (({}, (1e-4, 2e-3)), (asked, (3e-4, 5e-3))):
        out = run(folder, **given)
        settings = read_json(out / "config.json")["settings"]
        assert (settings["learning_rate"], settings["muon_learning_rate"]) == rates
        assert metrics(out)[0]["learning_rate"] == rates[0]


def test_config_json_records_the_model(save, run):
    folder, _ = save("BertForPreTraining")
    settings = read_json(run(folder) / "config.json")["settings"]
    assert settings["init_from"] == str(folder)
    assert PretrainConfig(**settings).resolve().to_dict() == settings


# ----------------------------------------------------------------------------- heads that it lacks


@pytest.mark.parametrize("kind", [kind for kind, lacks in LACKS.items() if lacks])
def test_a_head_that_the_model_lacks_is_drawn_from_the_seed(save, started, kind):
    folder, _ = save(kind)
    first, again, other = (dict(started(folder, seed=s).named_parameters()) for s in (5, 5, 6))
    for name in first:
        is_drawn = name in LACKS[kind] and first[name].ndim == 2
        assert torch.equal(first[name], again[name]), name
        assert torch.equal(first[name], other[name]) != is_drawn, name
    for name in LACKS[kind]:
        if first[name].ndim == 2:
            assert 0.005 < first[name].std() < 0.04, name
            assert first[name].abs().max() <= 2 * 0.02, name  # initializer_range
        else:
            assert torch.all(first[name] == name.endswith("LayerNorm.weight")), name


@pytest.mark.parametrize("kind", LACKS)
def test_every_weight_that_is_new_or_left_out_is_named(save, run, kind):
    folder, _ = save(kind)
    progress, heard = Progress(), []
    progress.log = heard.append
    run(folder, progress=progress)
    report = " ".join(line for line in heard if line.startswith(f"{folder}: "))
    words = set(re.split(r"[,;() ]+", report))
    left_out = {name for name in weights(folder) if name.startswith("classifier.")}
    assert {word for word in words if re.match(r"(bert|cls|classifier)\.", word)} == (
        LACKS[kind] | left_out
    )


def test_a_model_of_the_encoder_alone_is_trained_with_both_heads(save, run):
    folder, _ = save("BertModel")
    out = run(folder, steps=30, learning_rate=0.01)
    losses = [entry["mlm_loss"] for entry in metrics(out)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    oracle, loading = transformers.BertForPreTraining.from_pretrained(
        out / "model", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert oracle.config.architectures == ["BertForPreTraining"]


# --------------------------------------------------------------------------------- extend-positions


@pytest.mark.parametrize("positions", [15, 11, 7])
def test_more_positions_are_those_of_the_model_repeated(save, started, positions):
    folder, oracle = save("BertForPreTraining", max_position_embeddings=positions)
    model = started(folder, extend_positions=True)
    assert model.config.max_position_embeddings == SEQ_LEN
    rows = model.get_parameter(POSITIONS)
    assert rows.shape == (SEQ_LEN, 12)
    stored = stored_in(folder)[POSITIONS]
    for position in range(SEQ_LEN):
        assert torch.equal(rows[position], stored[position % positions]), position
    assert_same_output(model, oracle, positions)


def test_a_model_whose_positions_were_extended_trains_and_reads_short_texts_as_before(
    save, run, data
):
    folder, oracle = save("BertForPreTraining", max_position_embeddings=11)
    longest = max(len(e["input_ids"]) for e in Dataset(data).examples("train").stored)
    assert longest == SEQ_LEN
    out = run(folder, extend_positions=True, **HARDLY)
    assert [entry["step"] for entry in metrics(out)] == [1, 2, 3]
    for place in ("model", "checkpoints/step-3"):
        model = from_pretrained(BertForPreTraining, out / place)
        assert model.config.max_position_embeddings == SEQ_LEN
        assert_same_output(model, oracle, 11)
        assert AutoTokenizer.from_pretrained(out / place).model_max_length == SEQ_LEN


def test_positions_that_were_repeated_learn_on_their_own(save, run):
    folder, _ = save("BertForPreTraining", max_position_embeddings=11)
    rows = weights(run(folder, extend_positions=True) / "model")[POSITIONS]
    assert not torch.equal(rows[:5], rows[11:])


def test_extending_positions_that_are_long_enough_changes_nothing(save, run):
    folder, _ = save("BertForPreTraining")
    plain, extended = run(folder), run(folder, extend_positions=True)
    assert_equal_weights(plain / "model", extended / "model")
    for name in ("config.json", "tokenizer_config.json"):
        assert (plain / "model" / name).read_bytes() == (extended / "model" / name).read_bytes()


# ---------------------------------------------------------------------------------- stop and resume


RESUMED = {
    "both heads": ("BertForPreTraining", {}, {"optimizer": "muon"}),
    "no head": ("BertModel", {"hidden_act": "relu", "vocab_size": 67}, {"dropout": 0.2}),
    "extended": ("BertForMaskedLM", {"max_position_embeddings": 11}, {"extend_positions": True}),
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_resumed_without_the_model_gives_the_same_bits(save, run, stopped_run, data, case):
    kind, changes, settings = RESUMED[case]
    folder, _ = save(kind, **changes)
    settings = {**settings, "steps": 5, "save_every": 2, "warmup": 0.4}
    whole, stopped = run(folder, **settings), stopped_run(folder, **settings)
    assert [entry["step"] for entry in metrics(stopped)] == [1, 2, 3]
    shutil.rmtree(folder)
    pretrain(data, stopped, config=resumed_config(stopped, {}), resume=True)

    assert_equal_weights(whole / "model", stopped / "model")
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        assert (whole / "model" / name).read_bytes() == (stopped / "model" / name).read_bytes()
    for split in ("train", "valid"):
        mine, theirs = metrics(stopped, split), metrics(whole, split)
        assert [(e["step"], e["loss"]) for e in mine] == [(e["step"], e["loss"]) for e in theirs]


def test_the_same_command_gives_the_same_bits(save, run):
    folder, _ = save("BertModel")
    one, other = run(folder, dropout=0.1), run(folder, dropout=0.1)
    assert_equal_weights(one / "model", other / "model")


# --------------------------------------------------------------------------------- what comes of it


def test_the_decoder_stays_tied_and_has_one_bias(save, run, data):
    folder, oracle = save("BertForPreTraining")
    out = run(folder, learning_rate=0.01, eval_examples=0)
    stored = weights(out / "model")
    assert not {name for name in stored if "decoder" in name}
    assert [name for name in stored if stored[name].shape == (oracle.config.vocab_size,)] == [
        "cls.predictions.bias"
    ]
    before = stored_in(folder)
    for name in ("cls.predictions.bias", "bert.embeddings.word_embeddings.weight"):
        assert not torch.equal(stored[name], before[name])  # it has been trained

    trained = transformers.BertForPreTraining.from_pretrained(out / "model").eval()
    head, embedding = trained.cls.predictions, trained.bert.embeddings.word_embeddings
    assert head.decoder.weight is embedding.weight
    assert head.decoder.bias is head.bias
    # A decoder of its own, or a second bias, would have given other losses in the run itself.
    [held_out] = metrics(out, "valid")
    mlm, nsp = losses_of(trained, data, "valid")
    assert (held_out["mlm_loss"], held_out["nsp_loss"]) == pytest.approx((mlm, nsp), rel=1e-5)


@pytest.mark.parametrize(
    "cleaning",
    [
        {},
        {"lowercase": False},
        {"strip_accents": False},
        {"lowercase": False, "strip_accents": True},
    ],
    ids=lambda cleaning: "-".join(cleaning) or "default",
)
def test_a_run_round_trips_through_transformers_bit_for_bit(build_tiny, tmp_path, cleaning):
    data = build_tiny(tmp_path / "data", words=WORDS, cleaning=cleaning)
    config = dataclasses.replace(CONFIG, **SHAPE)
    pretrain(data, tmp_path / "run", config=config)
    model = transformers.BertForPreTraining.from_pretrained(tmp_path / "run/model")
    model.save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(tmp_path / "run/model").save_pretrained(tmp_path / "theirs")

    theirs = load_tokenizer(tmp_path / "theirs")
    assert theirs.fingerprint == Dataset(data).manifest["tokenizer_sha256"]
    config = dataclasses.replace(CONFIG, init_from=str(tmp_path / "theirs"))
    trainer = Trainer(Dataset(data), config, Progress())
    trainer.start(overwrite=False)
    before = weights(tmp_path / "run/model")
    after = dict(trainer.model.named_parameters())
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name


def test_a_vocabulary_enlarged_in_transformers_can_be_trained(save, step_on_all, tmp_path):
    folder, oracle = save("BertForPreTraining")
    tokens = AutoTokenizer.from_pretrained(folder)
    assert tokens.add_tokens(["brontosaurus", "hillock"]) == 2
    oracle.resize_token_embeddings(len(tokens))
    oracle.save_pretrained(folder)
    tokens.save_pretrained(folder)
    (tmp_path / "text.txt").write_text("the old brontosaurus\nsees a hillock\n\n" * 9)
    build_data(
        [str(tmp_path / "text.txt")],
        tmp_path / "data",
        tokenizer_path=folder,
        config=BuildConfig(sentence_per_line=True, seq_len=SEQ_LEN),
    )
    new_ids = {len(tokens) - 2, len(tokens) - 1}
    rows = Dataset(tmp_path / "data").examples("train").stored
    assert all(new_ids <= set(row["input_ids"]) for row in rows)
    [first] = metrics(step_on_all(folder, data=tmp_path / "data"))
    mlm, nsp = losses_of(oracle.eval(), tmp_path / "data")
    assert (first["mlm_loss"], first["nsp_loss"]) == pytest.approx((mlm, nsp), rel=1e-5)


# -------------------------------------------------------------------------- a vocabulary that grows

NEW_TOKENS = ["catbird", "##dog", "redhill", "x"]


@pytest.fixture(scope="module")
def grown_data(data, tmp_path_factory):
    """Data whose tokenizer has more tokens than that of `data`, and a text with them."""
    folder = tmp_path_factory.mktemp("grown")
    with_tokens(load_tokenizer(data), NEW_TOKENS).save(folder / "tokenizer")
    text = "the old catbird sees\nthe olddog x\na redhill hears à bird\n\n" * 30
    (folder / "text.txt").write_text(text)
    build_data(
        [str(folder / "text.txt")],
        folder / "data",
        tokenizer_path=folder / "tokenizer",
        config=BuildConfig(sentence_per_line=True, seq_len=SEQ_LEN, valid_fraction=0.2),
    )
    return folder / "data"


def start_on(data, model, progress=None):
    config = dataclasses.replace(CONFIG, init_from=str(model))
    trainer = Trainer(Dataset(data), config, progress or Progress())
    trainer.start(overwrite=False)
    return trainer.model.eval()


def test_new_tokens_start_as_the_means_of_their_pieces(save, data, grown_data):
    folder, _ = save("BertForPreTraining")
    heard = []
    progress = Progress()
    progress.log = heard.append
    model = dict(start_on(grown_data, folder, progress).named_parameters())
    stored, base = stored_in(folder), load_tokenizer(data)
    theirs = AutoTokenizer.from_pretrained(folder)
    pieces = [theirs(token, add_special_tokens=False)["input_ids"] for token in NEW_TOKENS]
    pieces[1] = split_tokens(base, ["##dog"])[0]  # which transformers cannot split
    assert pieces[3] == [base.unk_id]
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        grown, old = model[name], stored[name]
        assert torch.equal(grown[: len(old)], old)
        assert len(grown) == len(base.vocab) + len(NEW_TOKENS)
        for row, ids in enumerate(pieces, start=len(base.vocab)):
            torch.testing.assert_close(grown[row], old[ids].mean(dim=0), atol=1e-7, rtol=0)
    assert f"{folder}: added 4 tokens; each starts as the mean of its pieces" in heard


def test_texts_without_new_words_keep_their_ids_and_vectors(save, grown_data):
    folder, _ = save("BertForPreTraining")
    before, after = from_pretrained(BertForPreTraining, folder), start_on(grown_data, folder)
    old, new = load_tokenizer(folder), Dataset(grown_data).tokenizer
    text = ["the old cat sees à red bird", "dog hears the hill"]
    for mine, theirs in zip(old.encode_batch(text), new.encode_batch(text), strict=True):
        assert mine.tolist() == theirs.tolist()
    ids, types, lengths = short_inputs(9)
    one, other = before(ids, types, lengths), after(ids, types, lengths)
    assert torch.equal(one.last_hidden_state, other.last_hidden_state)
    assert torch.equal(one.seq_relationship_logits, other.seq_relationship_logits)
    logits = other.prediction_logits[:, : len(old.vocab)]
    torch.testing.assert_close(logits, one.prediction_logits, atol=1e-6, rtol=1e-6)


def test_transformers_opens_a_model_with_new_tokens(save, run, grown_data):
    folder, _ = save("BertForPreTraining")
    out = run(folder, data=grown_data, **HARDLY)
    oracle, loading = transformers.BertForPreTraining.from_pretrained(
        out / "model", output_loading_info=True, attn_implementation="eager"
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert_same_output(from_pretrained(BertForPreTraining, out / "model"), oracle.eval(), 9)
    theirs, ours = AutoTokenizer.from_pretrained(out / "model"), Dataset(grown_data).tokenizer
    [ids] = ours.encode_batch(["the catbird olddog"])
    assert theirs("the catbird olddog", add_special_tokens=False)["input_ids"] == ids.tolist()
    assert {ours.vocab[i] for i in ids} >= {"catbird", "##dog"}
    found = eval_mlm(out, grown_data, config=EvalConfig(precision="float32"))
    mlm, _ = losses_of(oracle, grown_data, "valid")
    assert found["mlm_loss"] == pytest.approx(mlm, rel=1e-5)


def test_a_padded_vocabulary_keeps_its_padding(save, data, grown_data):
    num_tokens = len(Dataset(data).tokenizer.vocab)
    padded = num_tokens - num_tokens % 16 + 16
    folder, _ = save("BertForPreTraining", vocab_size=padded)
    shape = start_on(grown_data, folder).config
    assert shape.vocab_size == (padded if num_tokens + 4 <= padded else padded + 16)


def test_a_model_with_fewer_tokens_cannot_be_evaluated_on_such_data(save, grown_data):
    folder, _ = save("BertForPreTraining")
    with pytest.raises(MismatchError, match=r"has tokenizer .* was built with"):
        eval_mlm(folder, grown_data, config=EvalConfig())


@pytest.mark.parametrize("pooler", ["cls", "mean"])
def test_the_pooler_comes_from_the_model(data, run, tmp_path, pooler):
    config = dataclasses.replace(CONFIG, **SHAPE, pooler=pooler)
    pretrain(data, tmp_path / "first", config=config)
    assert read_json(run(tmp_path / "first") / "model/config.json")["pooler"] == pooler


def test_a_run_may_replace_the_run_it_starts_from(first_run, run, data, tmp_path):
    out = shutil.copytree(first_run, tmp_path / "run")
    expected = run(first_run)
    config = dataclasses.replace(CONFIG, init_from=str(out))
    pretrain(data, out, config=config, overwrite=True)
    assert_equal_weights(out / "model", expected / "model")


def test_a_tokenizer_with_more_entries_than_the_model_is_refused(save, data, grown_data):
    folder, _ = save("BertForPreTraining", vocab_size=len(Dataset(data).tokenizer.vocab) - 1)
    with pytest.raises(MismatchError, match=r"the tokenizer has \d+ entries, the model embeds"):
        start_on(grown_data, folder)
