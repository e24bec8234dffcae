"""All stages, one after another, as a user runs them."""

import json
import math
import random

import pytest
from typer.testing import CliRunner

from bertpt_cli.main import app

# A language whose every sentence is one of these: a masked word follows from its neighbours.
CHAINS = [
    "red apple falls down .",
    "blue bird flies away .",
    "old clock ticks on .",
    "cold rain stops at last .",
]


def run(*arguments, stdin=None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    rng = random.Random(0)
    text = "\n".join(
        "".join(f"{rng.choice(pair)}\n" for _ in range(12))
        for pair in [rng.sample(CHAINS, 2) for _ in range(60)]
    )
    run(
        *("build-data", "-", "--out", folder / "data", "--sentence-per-line"),
        *("--seq-len", 32, "--vocab-size", 120, "--valid-fraction", 0.2),
        stdin=text,
    )
    run(
        *("pretrain", folder / "data", "--out", folder / "run", "--steps", 120),
        *("--num-hidden-layers", 2, "--hidden-size", 64, "--num-attention-heads", 4),
        *("--eval-every", 0, "--eval-examples", 0),
    )
    return folder


def test_the_model_beats_every_baseline_on_held_out_text(folders):
    found = json.loads(run("eval-mlm", folders / "run", folders / "data", "--json").stdout)
    unigram = found["baselines"]["unigram"]
    assert found["mlm_accuracy"] > 2 * unigram["mlm_accuracy"]
    assert found["mlm_loss"] + 1 < unigram["mlm_loss"] < found["baselines"]["uniform"]["mlm_loss"]
    assert found["mlm_perplexity"] == pytest.approx(math.exp(found["mlm_loss"]))


def test_evaluation_during_training_and_of_the_saved_model_agree(folders):
    last = (folders / "run/metrics.jsonl").read_text().splitlines()[-1]
    inside = json.loads(last)
    outside = json.loads(run("eval-mlm", folders / "run", folders / "data", "--json").stdout)
    assert inside["split"] == "valid"
    for key in ("mlm_loss", "nsp_loss", "mlm_accuracy", "num_targets", "num_examples"):
        assert outside[key] == pytest.approx(inside[key], abs=1e-6)


def test_a_masked_word_is_found_from_its_neighbours(folders):
    texts = ["red [MASK] falls down .", "cold rain [MASK] at last ."]
    lines = run("fill-mask", folders / "run", *texts, "--json").stdout.splitlines()
    best = [json.loads(line)["masks"][0][0]["token"] for line in lines]
    assert best == ["apple", "stops"]
