"""The model card of every model: each figure against the run's own records."""

import dataclasses
import itertools
import json
import re

import pytest
import yaml
from helpers import read_json
from huggingface_hub import ModelCard
from transformers import pipeline

from bertpt.config import PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.training.pretrain import pretrain
from bertpt.training.resume import resumed_config
from bertpt.training.trainer import Trainer

CONFIG = PretrainConfig(
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=17,
    warmup=0.0,
    steps=7,
    batch_size=5,
    eval_every=2,
    eval_examples=7,
    save_every=3,
    keep_last=0,
    log_every=1,
    device="cpu",
    precision="float32",
)
# With these, the checkpoints and the step of the newest evaluation at each.
EVALUATED = {"checkpoints/step-3": 2, "checkpoints/step-6": 6, "checkpoints/step-7": 7, "model": 7}
FIGURES = {
    "MLM loss": "mlm_loss",
    "MLM perplexity": "mlm_perplexity",
    "MLM accuracy": "mlm_accuracy",
    "NSP loss": "nsp_loss",
    "NSP accuracy": "nsp_accuracy",
}
NOT_EVALUATED = "It was not evaluated on held-out text."
every_card = pytest.mark.parametrize("place", EVALUATED)


@pytest.fixture(scope="module")
def data(build_tiny, tmp_path_factory):
    """Some 200 examples."""
    return build_tiny(tmp_path_factory.mktemp("data") / "data", num_sentences=20)


@pytest.fixture(scope="module")
def out(data, tmp_path_factory):
    """A run whose card of each checkpoint has another evaluation to tell of."""
    path = tmp_path_factory.mktemp("out") / "run"
    pretrain(data, path, config=CONFIG)
    return path


@pytest.fixture
def run(data, tmp_path):
    """Trains with some settings changed; returns the RUN folder."""
    numbers = itertools.count()

    def run_with(data=data, **settings):
        path = tmp_path / f"run-{next(numbers)}"
        pretrain(data, path, config=dataclasses.replace(CONFIG, **settings))
        return path

    return run_with


def card_of(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def table_of(card):
    """The rows of a card's tables by their first cells, without what is in brackets."""
    lines = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    return {re.sub(r" \(.*\)", "", cells[0]): cells[1:] for cells in lines}


def rounded(key, value):
    return f"{value:.1%}" if key.endswith("accuracy") else f"{value:.3f}"


def evaluations(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {entry["step"]: entry for entry in lines if entry["split"] == "valid"}


def evaluated_at(card):
    """The step that a card's figures are of, or None where it has none."""
    found = re.findall(r"held-out documents, after step ([\d,]+)", card)
    assert len(found) == (NOT_EVALUATED not in card)
    return int(found[0].replace(",", "")) if found else None


# -------------------------------------------------------------------------------- what it tells


def test_every_model_has_a_card(out):
    assert {path.parent for path in out.rglob("model.safetensors")} == {
        path.parent for path in out.rglob("README.md")
    }
    places = {str(path.parent.relative_to(out)) for path in out.rglob("README.md")}
    assert places == {*EVALUATED, "best"}


def test_the_card_of_best_has_the_figures_of_the_lowest_loss(out):
    lowest = min(evaluations(out).values(), key=lambda entry: entry["loss"])
    card = card_of(out / "best")
    assert evaluated_at(card) == lowest["step"]
    assert table_of(card)["steps"] == [str(lowest["step"])]
    assert "lowest held-out loss" in card
    assert "lowest held-out loss" not in card_of(out / "model")


@every_card
def test_the_hub_reads_the_front_matter(out, place):
    card = ModelCard.load(out / place / "README.md")
    assert card.data.to_dict() == {
        "language": "en",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "bertpt"],
    }
    assert card.text.lstrip().startswith("# BERT")


@pytest.mark.parametrize("language", ["no", "de"])  # YAML takes a bare "no" for false
def test_the_language_is_that_of_the_data(run, build_tiny, tmp_path, language):
    data = build_tiny(tmp_path / "data", num_sentences=20, language=language)
    front = card_of(run(data, steps=1) / "model").split("---\n")[1]
    assert yaml.safe_load(front)["language"] == language


@every_card
def test_figures_are_those_of_the_newest_evaluation_at_that_step(out, place):
    entries, card = evaluations(out), card_of(out / place)
    assert set(entries) == {2, 4, 6, 7}
    assert evaluated_at(card) == EVALUATED[place]
    entry, table = entries[EVALUATED[place]], table_of(card)
    for name, key in FIGURES.items():
        assert table[name] == [rounded(key, entry[key])], name
    counts = f"On {entry['num_examples']} examples ({entry['num_targets']} masked tokens)"
    assert entry["num_examples"] == 7
    assert counts in card


def test_the_evaluations_differ_in_their_figures(out):
    figures = [rounded("mlm_loss", entry["mlm_loss"]) for entry in evaluations(out).values()]
    assert len(set(figures)) == len(figures)


@every_card
def test_counts_are_those_of_the_manifest(out, data, place):
    manifest, card = read_json(data / "manifest.json"), card_of(out / place)
    for name in ("documents", "sentences", "tokens", "examples"):
        expected = [f"{manifest[name][split]:,}" for split in ("train", "valid")]
        assert f"| {name} | {' | '.join(expected)} |" in card, name
    assert manifest["tokens"]["train"] > 999  # so that a separator is needed
    assert f"vocabulary of {manifest['vocab_size']} entries" in card
    assert "Sequences of 16 tokens, 15% of them to predict" in card
    for digest in (manifest["tokenizer_sha256"], Dataset(data).fingerprint):
        assert f"`{digest[:12]}`" in card
    assert f"`{data}`" in card


@every_card
def test_the_settings_are_those_of_config_json(out, place):
    [block] = re.findall(r"^```json\n(.*?)^```", card_of(out / place), re.DOTALL | re.MULTILINE)
    assert json.loads(block) == read_json(out / "config.json")["settings"]


@every_card
def test_the_card_states_how_the_model_was_trained(out, place):
    table = table_of(card_of(out / place))
    step = int(place.partition("step-")[2] or 7)
    assert table["start"] == ["mimetic weights"]
    assert table["steps"] == [f"{step}"]
    assert table["batch"] == ["5 examples"]
    assert table["dropout"] == ["0"]
    assert table["positions"] == ["17"]
    assert "Muon" in table["optimizer"][0]
    assert "0.02" in table["optimizer"][0]
    assert "0.001" in table["optimizer"][0]


@pytest.mark.parametrize(
    ("settings", "cell"),
    [({}, "linear"), ({"schedule": "google"}, "google"), ({"schedule": "wsd"}, "wsd, decay 0.2")],
)
def test_the_card_states_the_schedule(run, settings, cell):
    out = run(steps=1, eval_every=0, save_every=0, **settings)
    assert table_of(card_of(out / "model"))["schedule"] == [cell]


def test_adamw_alone_has_one_learning_rate(run):
    [cell] = table_of(card_of(run(optimizer="adamw", learning_rate=3e-4) / "model"))["optimizer"]
    assert "Muon" not in cell
    assert "0.0003" in cell


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_last_step_of_an_epoch_counts_what_it_has(run, data, steps):
    total = read_json(data / "manifest.json")["examples"]["train"]
    out = run(steps=steps, batch_size=total - 5, eval_every=0, save_every=0)
    seen = steps // 2 * total + steps % 2 * (total - 5)  # an epoch is a step of all but 5, and 5
    [cell] = table_of(card_of(out / "model"))["examples"]
    assert cell == f"{seen:,} ({seen / total:.2f} epochs)"


def test_its_example_runs(out):
    [code] = re.findall(r"^```python\n(.*?)^```", card_of(out / "model"), re.DOTALL | re.MULTILINE)
    printed = []
    exec(
        code.replace("path/to/this/folder", str(out / "model")),
        {"print": printed.append},
    )
    text = re.search(r'"([^"]*\[MASK\][^"]*)"', code)[1]
    assert printed == [pipeline("fill-mask", model=str(out / "model"))(text)]
    assert len(printed[0]) == 5


# ------------------------------------------------------------------------------- special cases


def test_a_run_without_held_out_documents_says_so(run, build_tiny, tmp_path):
    data = build_tiny(tmp_path / "data", valid_fraction=0.0)
    path = run(data)
    for place in EVALUATED:
        card = card_of(path / place)
        assert evaluated_at(card) is None
        assert not table_of(card).keys() & FIGURES.keys()
        assert "| documents | 20 | 0 |" in card


def test_a_checkpoint_before_the_first_evaluation_has_no_figures(run):
    path = run(eval_every=0, save_every=6)
    assert evaluated_at(card_of(path / "checkpoints/step-6")) is None
    assert evaluated_at(card_of(path / "checkpoints/step-7")) == 7


def test_a_run_from_another_model_names_it(out, run):
    shape = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    model = str(out / "model")
    open_ones = dict.fromkeys((*shape, "max_position_embeddings"))
    card = card_of(run(**open_ones, init_from=model) / "model")
    assert f"trained from `{model}` on" in card
    assert table_of(card)["start"] == [f"`{model}`"]
    assert table_of(card)["positions"] == ["17"]
    assert "from scratch" not in card
    assert "from scratch" in card_of(out / "model")


def test_the_card_warns_of_a_mean_pooler(out, run):
    warning = re.compile(r"mean of all tokens.*transformers does not support", re.DOTALL)
    assert warning.search(card_of(run(pooler="mean") / "model"))
    assert not warning.search(card_of(out / "model"))


# ---------------------------------------------------------------------------- the same, and in time


def test_the_same_command_gives_the_same_bytes(out, run):
    again = run()
    for place in EVALUATED:
        mine, theirs = (path / place / "README.md" for path in (again, out))
        assert mine.read_bytes() == theirs.read_bytes(), place


@pytest.fixture
def stopped(data, tmp_path, monkeypatch):
    """A run that was stopped in step 6: newest checkpoint 3, newest evaluation 4."""
    take_step = Trainer.take_step

    def interrupted(trainer, examples):
        if trainer.budget.step + 1 == 6:
            raise KeyboardInterrupt
        return take_step(trainer, examples)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pretrain(data, tmp_path / "stopped", config=CONFIG)
    assert set(evaluations(tmp_path / "stopped")) == {2, 4}
    return tmp_path / "stopped"


def test_no_card_has_figures_newer_than_its_model(stopped, data):
    places = ("model", "checkpoints/step-3")
    assert [evaluated_at(card_of(stopped / place)) for place in places] == [2, 2]
    # No step is left to do up to step 3, only the evaluation at the end; one of step 4 was logged.
    pretrain(data, stopped, config=resumed_config(stopped, {"steps": 3}), resume=True)
    assert [evaluated_at(card_of(stopped / place)) for place in places] == [3, 3]


def test_a_resumed_run_has_the_cards_of_one_that_was_not_stopped(stopped, data, out):
    pretrain(data, stopped, config=resumed_config(stopped, {}), resume=True)
    for place in EVALUATED:
        assert card_of(stopped / place) == card_of(out / place), place


def test_the_card_of_a_prolonged_run_covers_all_its_steps(run, data):
    path = run(steps=3)
    pretrain(data, path, config=resumed_config(path, {"steps": 8}), resume=True)
    card = card_of(path / "model")
    assert table_of(card)["steps"] == ["8"]
    assert evaluated_at(card) == 8
    [block] = re.findall(r"^```json\n(.*?)^```", card, re.DOTALL | re.MULTILINE)
    assert json.loads(block) == read_json(path / "config.json")["settings"]


@pytest.mark.parametrize(
    ("objective", "tasks"),
    [
        ("mlm", "on masked-language modelling by bertpt"),
        ("sop", "on masked-language modelling and sentence-order prediction "),
        ("nsp", "on masked-language modelling and next-sentence prediction "),
    ],
)
def test_the_card_names_the_objective_of_the_data(run, build_tiny, tmp_path, objective, tasks):
    data = build_tiny(tmp_path / "data", objective=objective)
    card = " ".join(card_of(run(data, steps=1) / "model").split())
    assert tasks in card
    assert {name for name in ("NSP", "SOP") if f"| {name} loss (nats a pair) |" in card} == (
        {objective.upper()} - {"MLM"}
    )
    assert ("next-sentence" in card) == (objective == "nsp")
