"""Figures of eval-mlm: faults that users of other tools met, and the right value."""

import math
import random

import pytest

NUM_WORDS = 40
WORDS = [f"w{number}" for number in range(NUM_WORDS)]


@pytest.fixture(scope="module")
def noise(build):
    """Words drawn evenly and for themselves, so that nothing can be learned from their order."""
    rng = random.Random(4)
    documents = ["\n".join(" ".join(rng.choices(WORDS, k=8)) for _ in range(6)) for _ in range(60)]
    options = ("--seq-len", 32, "--valid-fraction", 0.4, "--dupe-factor", 4)
    return build("\n\n".join(documents), *options, words=WORDS)


def test_an_untrained_model_guesses_and_a_trained_one_sees_no_answers(pretrain, evaluate, noise):
    """Words were left unmasked in the evaluation, so that every perplexity was about 1.

    (huggingface/transformers#1633)
    """
    hardly = ("--learning-rate", 1e-12, "--muon-learning-rate", 1e-12, "--steps", 1)
    untrained = pretrain(noise, *hardly, "--eval-every", 0)
    found = evaluate(untrained.folder, noise, "--split", "valid")
    num_targets, by_input = found["num_targets"], found["num_targets_by_input"]
    assert num_targets > 800
    assert found["mlm_loss"] == pytest.approx(math.log(5 + NUM_WORDS), rel=0.05)
    assert found["mlm_accuracy_by_input"]["masked"] == pytest.approx(1 / NUM_WORDS, abs=0.03)
    assert by_input["masked"] / num_targets == pytest.approx(0.8, abs=0.05)
    assert sum(by_input.values()) == num_targets

    # All that can be known is that a word seen at a target is the true one half the time, since
    # it stays unchanged as often as it was drawn from all words.
    true, other = 0.5 + 0.5 / NUM_WORDS, 0.5 / NUM_WORDS
    entropy = -true * math.log(true) - (NUM_WORDS - 1) * other * math.log(other)
    least = 0.8 * math.log(NUM_WORDS) + 0.2 * entropy
    most = 0.8 / NUM_WORDS + 0.2 * true
    trained = pretrain(noise, "--steps", 150, "--learning-rate", 0.01, "--eval-every", 0)
    for split in ("train", "valid"):
        found = evaluate(trained.folder, noise, "--split", split)
        assert found["mlm_loss"] > least - 0.15  # what chance may add in so few targets
        assert found["mlm_accuracy"] < most + 0.06
        # it has learned what can be
        assert found["mlm_loss"] < math.log(NUM_WORDS)
        assert found["mlm_accuracy_by_input"]["unchanged"] > 0.25
