"""The check of one's own set-up: it passes where resuming works, and fails where it does not."""

import dataclasses
import weakref

import pytest
import torch

from bertpt.config import PretrainConfig
from bertpt.errors import SettingError
from bertpt.training import checkpoint
from bertpt.training.trainer import Trainer
from bertpt.training.verify import verify_resume

CONFIG = PretrainConfig(
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    dropout=0.1,
    steps=9,
    batch_size=4,
    device="cpu",
    precision="float32",
)


@pytest.mark.parametrize(("num_steps", "halfway"), [(2, 1), (5, 2), (9, 4)])
def test_a_run_agrees_with_itself_bit_for_bit(data, num_steps, halfway):
    assert verify_resume(data, config=CONFIG, num_steps=num_steps) == {
        "steps": num_steps,
        "saved_after": halfway,
        "identical": True,
        "max_loss_difference": 0.0,
        "max_weight_difference": 0.0,
        "first_difference": None,
    }


def test_there_is_one_model_at_a_time(data, monkeypatch):
    alive, seen = weakref.WeakSet(), []
    prepare = Trainer.__init__

    def counting(trainer, *arguments, **named):
        seen.append(len(alive))
        prepare(trainer, *arguments, **named)
        alive.add(trainer.model)

    monkeypatch.setattr(Trainer, "__init__", counting)
    verify_resume(data, config=CONFIG, num_steps=2)
    assert seen == [0, 0, 0]


def test_a_lost_optimizer_state_is_found(data, monkeypatch):
    monkeypatch.setattr(checkpoint, "load_optimizer_state", lambda *_: None)
    found = verify_resume(data, config=CONFIG, num_steps=6)
    assert not found["identical"]
    assert found["first_difference"] == 5  # step 4 is taken with what was lost, step 5 shows it
    assert found["max_loss_difference"] > 0
    assert found["max_weight_difference"] > 0


def test_weights_that_differ_slightly_from_the_saved_ones_are_measured(data, monkeypatch):
    resume = Trainer.resume

    def off(trainer):
        resume(trainer)
        with torch.no_grad():
            trainer.model.cls.predictions.bias[7] += 1e-3

    monkeypatch.setattr(Trainer, "resume", off)
    found = verify_resume(data, config=CONFIG, num_steps=2)
    assert found["max_weight_difference"] == pytest.approx(1e-3, rel=0.5)
    assert found["first_difference"] == 2


@pytest.mark.parametrize(
    ("num_steps", "changes", "message"),
    [
        (1, {}, r"^`verify_resume` 1 must be at least 2$"),
        (10, {}, r"^`verify_resume` 10 exceeds the 9 steps of the run$"),
        (4, {"steps": None, "max_minutes": 1.0}, r"^`verify_resume` and `max_minutes` exclude"),
    ],
)
def test_runs_that_cannot_be_verified_are_refused(data, num_steps, changes, message):
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises(SettingError, match=message):
        verify_resume(data, config=config, num_steps=num_steps)
