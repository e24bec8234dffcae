"""The pretrain stage on a tiny data folder: what a step does, and what stopping does not."""

import dataclasses
import itertools
import json
import math
import os
import re
import shutil
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from bertpt import files
from bertpt.config import SCHEDULES, PretrainConfig
from bertpt.data.dataset import Dataset
from bertpt.errors import BertptError, InputError, MismatchError, OutputError, SettingError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.pretrained import from_pretrained
from bertpt.progress import Progress
from bertpt.training import trainer
from bertpt.training.checkpoint import checkpoint_paths, newest_checkpoint
from bertpt.training.optimizer import Muon
from bertpt.training.pretrain import pretrain
from bertpt.training.resume import resumed_config
from bertpt.training.setup import initialize_weights
from bertpt.training.trainer import Trainer

CONFIG = PretrainConfig(
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=16,
    warmup=0.4,
    steps=5,
    batch_size=8,
    eval_every=0,
    save_every=0,
    keep_last=0,
    log_every=1,
    device="cpu",
    precision="float32",
)
TRAIN_KEYS = {
    *("step", "split", "epoch", "loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"),
    *("grad_norm", "learning_rate", "muon_learning_rate", "tokens_per_second", "elapsed_seconds"),
}
VALID_KEYS = {
    *("step", "split", "loss", "mlm_loss", "mlm_perplexity", "mlm_accuracy", "nsp_loss"),
    *("nsp_accuracy", "num_examples", "num_targets"),
}


@pytest.fixture
def run(data, tmp_path):
    """Trains with some settings changed; returns the RUN folder."""
    numbers = itertools.count()

    def run_with(**settings):
        out = tmp_path / f"run-{next(numbers)}"
        pretrain(data, out, config=dataclasses.replace(CONFIG, **settings))
        return out

    return run_with


@pytest.fixture
def stopped_run(data, tmp_path, monkeypatch):
    """Train until Ctrl-C arrives in the middle of a step (counted from 1); return the RUN."""

    def run_until(step, **settings):
        take_step = Trainer.take_step

        def interrupted(trainer, examples):
            if trainer.budget.step + 1 == step:
                raise KeyboardInterrupt
            return take_step(trainer, examples)

        out = tmp_path / "stopped"
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "take_step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pretrain(data, out, config=dataclasses.replace(CONFIG, **settings))
        return out

    return run_until


def resume(data, out, **changes):
    return pretrain(data, out, config=resumed_config(out, changes), resume=True)


def metrics(out, split="train"):
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["split"] == split]


def weights(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def start_of(data, config):
    """The weights before the first step."""
    trainer = Trainer(Dataset(data), config, Progress())
    initialize_weights(trainer.model, trainer.config, trainer.data, trainer.progress)
    return {name: p.detach() for name, p in trainer.model.named_parameters()}


def checkpoints(out):
    return {path.name for path in (out / "checkpoints").iterdir()}


def assert_equal_weights(one, other):
    first, second = weights(one / "model"), weights(other / "model")
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


# --------------------------------------------------------------------------------- what a step does


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_one_step_changes_the_parameters(run, data, optimizer):
    settings = {"steps": 1, "optimizer": optimizer, "warmup": 0.0}
    before = start_of(data, dataclasses.replace(CONFIG, **settings))
    after = weights(run(**settings) / "model")
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert before.keys() - changed <= {"bert.encoder.layer.0.attention.self.key.bias"}


def test_training_learns_a_tiny_text(run):
    losses = [entry["mlm_loss"] for entry in metrics(run(steps=60, learning_rate=0.01))]
    assert sum(losses[-5:]) / 5 < 0.8 * losses[0]


def test_the_first_loss_is_that_of_chance(run, data):
    first = metrics(run(steps=1))[0]
    vocab_size = len(Dataset(data).tokenizer.vocab)
    assert first["mlm_loss"] == pytest.approx(math.log(vocab_size), rel=0.05)
    assert first["nsp_loss"] == pytest.approx(math.log(2), rel=0.05)
    assert first["loss"] == pytest.approx(first["mlm_loss"] + first["nsp_loss"])


@pytest.mark.parametrize("size", [2, 3])
def test_micro_batches_give_the_weights_of_the_full_batch(run, size):
    settings = {"steps": 3, "optimizer": "adamw", "max_grad_norm": 0.5}
    whole, cut = run(**settings), run(**settings, micro_batch_size=size)
    theirs = weights(cut / "model")
    for name, tensor in weights(whole / "model").items():
        # The gradient of a key's bias is 0 but for rounding, which Adam's division magnifies.
        tolerance = 1e-4 if name.endswith("key.bias") else 2e-6
        torch.testing.assert_close(tensor, theirs[name], atol=tolerance, rtol=0, msg=name)
    for one, other in zip(metrics(whole), metrics(cut), strict=True):
        for key in ("loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy", "grad_norm"):
            assert one[key] == pytest.approx(other[key], abs=1e-5), key


def test_gradients_are_clipped_after_all_micro_batches(data, monkeypatch):
    config = dataclasses.replace(CONFIG, micro_batch_size=2, max_grad_norm=0.01, optimizer="adamw")
    trainer = Trainer(Dataset(data), config, Progress())
    norms = []

    def note_norm():
        squares = [p.grad.square().sum() for p in trainer.model.parameters()]
        norms.append(float(sum(squares)) ** 0.5)

    monkeypatch.setattr(trainer.optimizers[0], "step", note_norm)
    result = trainer.take_step(trainer.training[0])
    assert norms == [pytest.approx(0.01, rel=1e-3)]
    assert result.grad_norm > 0.1  # the norm that is logged is the one before clipping


def test_the_same_command_gives_the_same_bits(run):
    first, second = run(dropout=0.1), run(dropout=0.1)
    assert_equal_weights(first, second)
    assert [e["loss"] for e in metrics(first)] == [e["loss"] for e in metrics(second)]


@pytest.mark.parametrize("other", [{"seed": 1}, {"dropout": 0.1}, {"masking": "stored"}])
def test_other_settings_give_other_weights(run, other):
    first, second = run(dropout=0.0), run(**{"dropout": 0.0, **other})
    assert not torch.equal(
        weights(first / "model")["bert.pooler.dense.weight"],
        weights(second / "model")["bert.pooler.dense.weight"],
    )


# ------------------------------------------------------------------------ what stopping does not do


@pytest.mark.parametrize(("stop", "dropout"), [(2, 0.0), (4, 0.1), (7, 0.1)])
def test_a_run_that_was_stopped_and_resumed_gives_the_same_bits(
    run, data, stopped_run, stop, dropout
):
    settings = {"steps": 8, "dropout": dropout, "save_every": 1, "eval_every": 3}
    whole, stopped = run(**settings), stopped_run(stop, **settings)
    per_epoch = math.ceil(len(Dataset(data).examples("train")) / CONFIG.batch_size)
    assert 4 < per_epoch < 8  # so the first stops are in mid-epoch, and the run goes on to another
    assert [entry["step"] for entry in metrics(stopped)] == list(range(1, stop))
    resume(data, stopped)

    assert_equal_weights(whole, stopped)
    for split in ("train", "valid"):
        mine, theirs = metrics(stopped, split), metrics(whole, split)
        assert [entry["step"] for entry in mine] == [entry["step"] for entry in theirs]
        assert [entry["loss"] for entry in mine] == [entry["loss"] for entry in theirs]


def test_steps_after_the_last_checkpoint_are_taken_again_and_logged_once(run, data, stopped_run):
    settings = {"steps": 8, "save_every": 3}
    whole, stopped = run(**settings), stopped_run(6, **settings)
    assert checkpoints(stopped) == {"step-3"}
    resume(data, stopped)
    assert [entry["step"] for entry in metrics(stopped)] == list(range(1, 9))
    assert_equal_weights(whole, stopped)


def test_resuming_a_finished_run_changes_nothing(run, data):
    out = run(eval_every=2)
    before, lines = weights(out / "model"), (out / "metrics.jsonl").read_text()
    resume(data, out)
    after = weights(out / "model")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert (out / "metrics.jsonl").read_text() == lines


def test_a_finished_run_continues_if_given_more_steps(run, data):
    out = run(steps=3, warmup=2)
    assert resume(data, out, steps=6)["step"] == 6
    assert [entry["step"] for entry in metrics(out)] == [1, 2, 3, 4, 5, 6]
    assert [entry["learning_rate"] for entry in metrics(out)][3:] == pytest.approx(
        [1e-3 * 3 / 4, 1e-3 * 2 / 4, 1e-3 * 1 / 4]
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("linear", r"`steps` 8 instead of `steps` 4: .* is 0\.000833, not 0\.0005$"),
        ("constant", r"`steps` 8 instead of `steps` 4: .* is 0\.001, not 0\.001$"),
    ],
)
def test_another_length_is_reported_with_its_effect_on_the_learning_rate(
    data, stopped_run, name, words
):
    # After 3 of 4 steps a half is left of what follows 2 of warm-up; of 8 steps, 5 of 6 would be.
    out = stopped_run(4, steps=4, warmup=2, schedule=name, save_every=1)
    progress, heard = Progress(), []
    progress.log = heard.append
    config = resumed_config(out, {"steps": 8})
    pretrain(data, out, config=config, resume=True, progress=progress)
    assert len([line for line in heard if re.search(words, line)]) == 1


def test_no_learning_rate_is_reported_after_the_last_step(run, data):
    progress, heard = Progress(), []
    progress.log = heard.append
    out = run(steps=3)
    pretrain(data, out, config=resumed_config(out, {"steps": 2}), resume=True, progress=progress)
    assert not [line for line in heard if "learning rate" in line]


def test_a_run_from_before_there_were_schedules_resumes(run, data, stopped_run):
    whole, stopped = run(steps=3), stopped_run(3, steps=3, save_every=1)
    stored = json.loads((stopped / "config.json").read_text())
    assert stored["settings"].pop("schedule") == "linear"
    del stored["settings"]["decay"]
    (stopped / "config.json").write_text(json.dumps(stored))
    resume(data, stopped)
    assert_equal_weights(whole, stopped)


def test_an_unchanged_length_is_not_reported(data, stopped_run):
    out = stopped_run(2, save_every=1)
    progress, heard = Progress(), []
    progress.log = heard.append
    pretrain(data, out, config=resumed_config(out, {}), resume=True, progress=progress)
    assert any("resuming" in line for line in heard)
    assert not any("instead of" in line for line in heard)


def test_a_resumed_run_may_not_change_settings_that_decide_the_weights(run):
    out = run(steps=1, batch_size=4)
    with pytest.raises(SettingError, match=r"`schedule` wsd is not .* linear; leave it out, or"):
        resumed_config(out, {"schedule": "wsd"})
    with pytest.raises(SettingError, match=r"`batch_size` 8 is not .* 4; leave it out, or"):
        resumed_config(out, {"batch_size": 8})
    with pytest.raises(SettingError, match=r"`seed` 3 is not .* 0; leave it out, or"):
        resumed_config(out, {"seed": 3})
    assert resumed_config(out, {"batch_size": 4, "seed": 0}).batch_size == 4


def test_a_resumed_run_may_change_its_length_and_its_log(run):
    out = run(steps=1)
    config = resumed_config(out, {"steps": 9, "log_every": 4, "keep_last": 3})
    assert (config.steps, config.log_every, config.keep_last) == (9, 4, 3)
    assert resumed_config(out, {"epochs": 2}).steps is None
    assert dataclasses.replace(config, steps=1, log_every=1, keep_last=0) == resumed_config(out, {})


def test_other_data_is_refused_by_both_fingerprints(run, build_tiny, tmp_path):
    out, other = run(steps=1), build_tiny(tmp_path / "other", text_seed=1)
    with pytest.raises(MismatchError) as caught:
        resume(other, out)
    assert Dataset(other).fingerprint[:12] in str(caught.value)
    stored = json.loads((out / "config.json").read_text())["data"]["sha256"]
    assert stored[:12] in str(caught.value)


@pytest.fixture
def hashed(monkeypatch):
    """The shards whose checksum is taken."""
    found, sha256 = [], files.sha256

    def noting(path, **named):
        if path.suffix == ".arrow":
            found.append(path.parent.name)
        return sha256(path, **named)

    monkeypatch.setattr(files, "sha256", noting)
    return found


def test_resuming_does_not_reread_checked_shards(run, data, hashed):
    out = run()
    assert sorted(hashed) == ["train", "valid"]
    pretrain(data, out, config=resumed_config(out, {"steps": 6}), resume=True)
    assert sorted(hashed) == ["train", "valid"]


def test_resuming_checks_shards_that_were_touched_moved_or_never_noted(run, data, tmp_path, hashed):
    shutil.copytree(data, tmp_path / "copy")
    out = run()
    changes = {
        "moved": lambda: None,
        "touched": lambda: os.utime(tmp_path / "copy" / "train" / "data-00000.arrow"),
        "unnoted": (out / "checked_data.json").unlink,
        "garbled": lambda: (out / "checked_data.json").write_text(
            json.dumps({str(tmp_path / "copy"): 3})
        ),
    }
    for name, change in changes.items():
        hashed.clear()
        change()
        pretrain(tmp_path / "copy", out, config=resumed_config(out, {}), resume=True)
        assert set(hashed) == ({"train"} if name == "touched" else {"train", "valid"}), name


def test_a_shard_that_was_changed_since_is_refused(data, tmp_path):
    shutil.copytree(data, tmp_path / "copy")
    out = tmp_path / "run"
    pretrain(tmp_path / "copy", out, config=CONFIG)
    shard = tmp_path / "copy" / "train" / "data-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(MismatchError, match=r"data-00000\.arrow has SHA-256"):
        pretrain(tmp_path / "copy", out, config=resumed_config(out, {}), resume=True)


def test_resuming_needs_a_run_with_a_checkpoint(data, tmp_path, stopped_run):
    with pytest.raises(InputError, match="no run to resume"):
        resumed_config(tmp_path / "nowhere", {})
    out = stopped_run(1)
    with pytest.raises(InputError, match="no checkpoint"):
        resume(data, out)


# --------------------------------------------------------------------------------- what is written


def test_metrics_have_the_names_of_the_design(run):
    out = run(eval_every=2, log_every=2)
    assert [entry["step"] for entry in metrics(out)] == [2, 4, 5]
    assert [entry["step"] for entry in metrics(out, "valid")] == [2, 4, 5]
    assert all(entry.keys() == TRAIN_KEYS for entry in metrics(out))
    assert all(entry.keys() >= VALID_KEYS for entry in metrics(out, "valid"))


def test_pretrain_returns_the_last_line_of_the_metrics(data, tmp_path):
    result = pretrain(data, tmp_path / "run", config=CONFIG)
    last = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last) == result
    assert result["split"] == "valid"


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_learning_rate_that_is_logged_is_the_one_applied(run, monkeypatch, optimizer):
    applied = {"learning_rate": [], "muon_learning_rate": []}
    kinds = {torch.optim.AdamW: "learning_rate"}
    kinds.update({Muon: "muon_learning_rate"})

    def noting(kind, step):
        def noted(self, *arguments):
            applied[kinds[kind]].append({group["lr"] for group in self.param_groups})
            return step(self, *arguments)

        return noted

    for kind in kinds:
        monkeypatch.setattr(kind, "step", noting(kind, kind.step))
    out = run(optimizer=optimizer, learning_rate=0.004, muon_learning_rate=0.03)
    logged = [entry["learning_rate"] for entry in metrics(out)]
    assert applied["learning_rate"] == [{rate} for rate in logged]
    of_muon = [entry.get("muon_learning_rate") for entry in metrics(out)]
    if optimizer == "muon":
        assert applied["muon_learning_rate"] == [{rate} for rate in of_muon]
        assert of_muon == pytest.approx([0.03 / 0.004 * rate for rate in logged])
    else:
        assert of_muon == [None] * 5
    # Two steps of warm-up, then 3 left to fall in.
    assert logged == pytest.approx([0.002, 0.004, 0.004, 0.004 * 2 / 3, 0.004 / 3])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("linear", "wsd") else pytest.mark.slow)
        for name in SCHEDULES
    ],
)
def test_every_schedule_trains_and_resumes_to_the_same_bits(run, data, stopped_run, name):
    settings = {"steps": 5, "schedule": name, "save_every": 1}
    whole, stopped = run(**settings), stopped_run(4, **settings)
    resume(data, stopped)
    assert_equal_weights(whole, stopped)
    rates = [entry["learning_rate"] for entry in metrics(stopped)]
    assert rates == [entry["learning_rate"] for entry in metrics(whole)]
    # Two steps of warm-up; three that stay, fall, or have fallen from the start on.
    later = {"constant": [1, 1, 1], "wsd": [1, 1, 1], "google": [0.6, 0.4, 0.2]}
    later.update(linear=[1, 2 / 3, 1 / 3], cosine=[1, 0.75, 0.25])
    rising = [0, 0.5] if name == "google" else [0.5, 1]
    assert rates == pytest.approx([1e-3 * scale for scale in (*rising, *later[name])])


def test_the_first_step_of_google_changes_nothing(run, data):
    settings = {"steps": 2, "warmup": 1, "schedule": "google", "save_every": 1}
    before = start_of(data, dataclasses.replace(CONFIG, **settings))
    out = run(**settings)
    first, last = (weights(out / "checkpoints" / f"step-{step}") for step in (1, 2))
    for name, tensor in before.items():
        assert torch.equal(tensor, first[name]), name
    assert not torch.equal(first["cls.predictions.bias"], last["cls.predictions.bias"])


def test_warm_up_and_decay_must_fit_into_the_steps_of_the_epochs(data, tmp_path):
    config = dataclasses.replace(CONFIG, steps=None, epochs=1, schedule="wsd", warmup=6, decay=6)
    with pytest.raises(SettingError, match=r"`decay` 6 and `warmup` 6 .* `epochs` 1 \(\d+ steps\)"):
        pretrain(data, tmp_path / "run", config=config)


def test_epochs_are_passes_over_the_data(run, data):
    out = run(steps=None, epochs=2, batch_size=7, warmup=0.1)
    per_epoch = math.ceil(len(Dataset(data).examples("train")) / 7)
    last = metrics(out)[-1]
    assert last["step"] == 2 * per_epoch
    assert last["epoch"] == pytest.approx(2)


def test_a_run_of_minutes_ends_with_a_learning_rate_near_0(run, monkeypatch):
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 10)  # a look at it takes 0.1 s
    monkeypatch.setattr("bertpt.training.schedule.time", clock)
    monkeypatch.setattr("bertpt.training.loop.time", clock)
    out = run(steps=None, warmup=0.2, max_minutes=0.2)
    rates = [entry["learning_rate"] for entry in metrics(out)]
    assert 10 < len(rates) < 60
    assert max(rates) == pytest.approx(1e-3, rel=0.1)
    assert 0 < rates[-1] < 0.1 * max(rates)
    assert 12 <= metrics(out)[-1]["elapsed_seconds"] < 13.5


@pytest.fixture
def clock(monkeypatch):
    """A clock on which a step takes 1 s and an evaluation 8 s, and nothing else takes any time."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now

    def lasting(method, seconds):
        def timed(self, *arguments):
            clock.now += seconds
            return method(self, *arguments)

        return timed

    monkeypatch.setattr("bertpt.training.schedule.time", clock)
    monkeypatch.setattr("bertpt.training.loop.time", clock)
    monkeypatch.setattr(Trainer, "take_step", lasting(Trainer.take_step, 1.0))
    monkeypatch.setattr(Trainer, "evaluate", lasting(Trainer.evaluate, 8.0))
    return clock


def test_a_run_of_minutes_resumes_where_it_stopped_and_the_pause_does_not_count(
    data, stopped_run, clock
):
    out = stopped_run(11, steps=None, warmup=0.2, max_minutes=20 / 60, save_every=5)
    clock.now += 86_400
    resume(data, out)
    assert [entry["elapsed_seconds"] for entry in metrics(out)] == list(range(1, 21))
    rates = [entry["learning_rate"] for entry in metrics(out)[10:]]
    assert rates == pytest.approx([1e-3 * (1 - step / 20) / 0.8 for step in range(10, 20)])


def test_a_run_without_a_logged_step_returns_its_length(build_tiny, tmp_path, monkeypatch):
    data = build_tiny(tmp_path / "data", valid_fraction=0.0)
    BadLosses(monkeypatch, 2)
    config = dataclasses.replace(CONFIG, steps=2, log_every=2, skip_bad_batches=1)
    assert pretrain(data, tmp_path / "run", config=config) == {"step": 2, "split": "train"}


def test_a_run_of_minutes_does_not_evaluate_away_the_end_of_its_decay(run, clock):
    # 5 steps, 8 s of evaluation, 5 steps, 8 s, 5 steps: 31 s; no 8 s are left of 35.
    out = run(steps=None, warmup=0.2, max_minutes=35 / 60, eval_every=5)
    assert [entry["step"] for entry in metrics(out, "valid")] == [5, 10, 19]
    last = metrics(out)[-1]
    assert last["elapsed_seconds"] == 35
    assert last["learning_rate"] == pytest.approx(1e-3 * (1 / 35) / 0.8)
    assert clock.now == 35 + 8  # what the end takes comes on top


def test_keep_last_keeps_the_newest_by_number(run):
    out = run(steps=11, save_every=1, keep_last=2)
    assert checkpoints(out) == {"step-10", "step-11"}
    assert [path.name for path in checkpoint_paths(out)] == ["step-10", "step-11"]


def test_keep_last_0_keeps_all(run):
    out = run(steps=5, save_every=2)
    assert checkpoints(out) == {"step-2", "step-4", "step-5"}


def test_the_model_of_a_run_is_its_last_checkpoints(run):
    out = run(save_every=2)
    last, model = weights(out / "checkpoints" / "step-5"), weights(out / "model")
    assert all(torch.equal(tensor, last[name]) for name, tensor in model.items())
    assert isinstance(from_pretrained(BertForPreTraining, out / "model"), BertForPreTraining)


def test_config_json_records_the_settings_and_the_data(run, data):
    stored = json.loads((run(steps=1, warmup=0.0) / "config.json").read_text())
    assert stored["data"]["sha256"] == Dataset(data).fingerprint
    assert stored["packages"]["torch"] == torch.__version__
    assert PretrainConfig(**stored["settings"]).resolve().to_dict() == stored["settings"]
    assert stored["settings"]["optimizer"] == "muon"  # resolved by the recipe


def test_evaluation_does_not_change_the_run(run):
    assert_equal_weights(run(dropout=0.1), run(dropout=0.1, eval_every=1))


# --------------------------------------------------------------------------------- what is refused


def test_a_loss_that_is_not_finite_ends_the_run_and_is_not_saved(data, tmp_path):
    config = dataclasses.replace(
        CONFIG, learning_rate=1e37, optimizer="adamw", steps=50, warmup=0.0, save_every=1
    )
    with pytest.raises(BertptError, match=r"step \d+: loss .*(nan|inf)"):
        pretrain(data, tmp_path / "run", config=config)
    newest = checkpoint_paths(tmp_path / "run")[-1]
    assert all(tensor.isfinite().all() for tensor in weights(newest).values())
    *taken, last = metrics(tmp_path / "run")
    assert all(math.isfinite(entry["loss"]) and "not_taken" not in entry for entry in taken)
    assert re.search(r"\b(nan|inf)\b", last["not_taken"])
    assert last["loss"] is None or last["grad_norm"] is None
    assert len(last["rows"]) == CONFIG.batch_size


class BadLosses:
    """Makes the loss of some steps (counted from 1) nan."""

    def __init__(self, monkeypatch, *steps):
        take_step = Trainer.take_step

        def poisoned(trainer, examples):
            head = trainer.model.cls.seq_relationship.bias
            before = head.detach().clone()
            with torch.no_grad():
                if trainer.budget.step + 1 in steps:
                    head[0] = math.nan
            result = take_step(trainer, examples)
            with torch.no_grad():
                if trainer.budget.step + 1 in steps:
                    head.copy_(before)
            return result

        monkeypatch.setattr(Trainer, "take_step", poisoned)


@pytest.mark.parametrize(
    ("save_every", "way_out"),
    [
        (1, r"\. Continue from the last checkpoint with `resume` and `skip_bad_batches` 1, or .*"),
        (0, "; start again with a lower `learning_rate`.*"),  # there is no checkpoint yet
    ],
)
def test_the_message_names_the_step_its_rows_and_the_way_out(
    data, tmp_path, monkeypatch, save_every, way_out
):
    BadLosses(monkeypatch, 3)
    trained_on = Trainer(Dataset(data), CONFIG, Progress())
    rows = ", ".join(map(str, trained_on.training.rows(2)))
    config = dataclasses.replace(CONFIG, save_every=save_every)
    problem = rf"^step 3: loss nan, gradient norm nan; .*\(rows {rows} of train/\)"
    with pytest.raises(BertptError, match=rf"{problem}{way_out}$"):
        pretrain(data, tmp_path / "run", config=config)


def test_skipped_batches_count_as_steps(data, tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, skip_bad_batches=2, log_every=5)
    BadLosses(monkeypatch, 2, 4)
    pretrain(data, tmp_path / "run", config=config)
    skipped = [entry for entry in metrics(tmp_path / "run") if "not_taken" in entry]
    assert [entry["step"] for entry in skipped] == [2, 4]
    assert all(entry["loss"] is entry["nsp_loss"] is None for entry in skipped)
    newest = newest_checkpoint(tmp_path / "run").path
    assert newest.name == "step-5"
    assert all(tensor.isfinite().all() for tensor in weights(newest).values())


def test_a_skipped_step_changes_no_weight_and_no_optimizer_state(data, tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, skip_bad_batches=1, steps=3, save_every=1)
    BadLosses(monkeypatch, 3)
    pretrain(data, tmp_path / "run", config=config)
    checkpoints = tmp_path / "run" / "checkpoints"
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, two, three = (
            safetensors.torch.load_file(checkpoints / f"step-{step}" / name) for step in (1, 2, 3)
        )
        assert all(torch.equal(two[key], three[key]) for key in two)
        assert not all(torch.equal(one[key], two[key]) for key in two)


def test_skipped_steps_do_not_displace_checkpoints(data, tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, skip_bad_batches=2, steps=9, save_every=1, keep_last=2)
    BadLosses(monkeypatch, 3, 4, 5)
    with pytest.raises(
        BertptError, match=r"^step 5: .*, 3 in a row, so the weights are at fault, .* `init_from`"
    ):
        pretrain(data, tmp_path / "run", config=config)
    saved = [path.name for path in checkpoint_paths(tmp_path / "run")]
    assert saved == ["step-1", "step-2"]


def test_a_held_out_loss_that_is_not_finite_ends_the_run_and_saves_nothing(
    data, tmp_path, monkeypatch
):
    evaluate = trainer.evaluate
    monkeypatch.setattr(
        trainer, "evaluate", lambda *a, **k: {**evaluate(*a, **k), "loss": math.nan}
    )
    config = dataclasses.replace(CONFIG, eval_every=2, save_every=1, keep_last=0)
    with pytest.raises(BertptError, match=r"^step 2: the held-out loss is nan, so nothing was"):
        pretrain(data, tmp_path / "run", config=config)
    saved = [path.name for path in checkpoint_paths(tmp_path / "run")]
    assert saved == ["step-1"]
    assert metrics(tmp_path / "run", "valid")[-1]["loss"] is None


def test_skipped_steps_are_counted_over_the_full_run(data, tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, skip_bad_batches=1, save_every=3, steps=6)
    BadLosses(monkeypatch, 2, 5)
    out = tmp_path / "run"
    with pytest.raises(BertptError, match=r"^step 5: .* `skip_bad_batches` 2,"):
        pretrain(data, out, config=config)
    with pytest.raises(BertptError, match=r"^step 5: .* `skip_bad_batches` 2,"):
        pretrain(data, out, config=resumed_config(out, {}), resume=True)
    pretrain(data, out, config=resumed_config(out, {"skip_bad_batches": 2}), resume=True)
    assert newest_checkpoint(out).path.name == "step-6"


def test_a_run_whose_steps_were_mostly_skipped_is_saved_and_fails(data, tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, skip_bad_batches=9, steps=5, save_every=1)
    BadLosses(monkeypatch, 2, 4, 5)
    out = tmp_path / "run"
    with pytest.raises(BertptError, match=r"^3 of 5 steps were skipped .* lower `learning_rate`"):
        pretrain(data, out, config=config)
    assert newest_checkpoint(out).path.name == "step-5"
    assert (out / "model" / "model.safetensors").is_file()


def test_no_optimizer_steps_on_gradients_that_are_not_finite(data):
    trainer = Trainer(Dataset(data), CONFIG, Progress())
    trainer.start(overwrite=False)
    with torch.no_grad():
        trainer.model.cls.seq_relationship.bias[0] = math.nan
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    with pytest.raises(BertptError, match="step 1: loss nan"):
        trainer.take_step(trainer.training[0])
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(parameter.nan_to_num(), before[name].nan_to_num()), name


def test_data_longer_than_the_models_positions_is_refused_with_both_numbers(data, tmp_path):
    config = dataclasses.replace(CONFIG, max_position_embeddings=15)
    with pytest.raises(MismatchError, match=r"16 tokens.* 15 positions"):
        pretrain(data, tmp_path / "run", config=config)
    assert not (tmp_path / "run").exists()


def test_a_run_that_exists_is_replaced_on_request_only(run, data, tmp_path):
    out = run(steps=2)
    with pytest.raises(OutputError, match="`overwrite`"):
        pretrain(data, out, config=CONFIG)
    assert len(metrics(out)) == 2
    pretrain(data, out, config=dataclasses.replace(CONFIG, steps=3), overwrite=True)
    assert [entry["step"] for entry in metrics(out)] == [1, 2, 3]
    other = tmp_path / "letters"
    other.mkdir()
    (other / "letter.txt").write_text("Dear")
    with pytest.raises(OutputError, match="not made by"):
        pretrain(data, other, config=CONFIG, overwrite=True)
    assert (other / "letter.txt").read_text() == "Dear"


def test_data_without_held_out_documents_can_be_trained_on(build_tiny, tmp_path):
    data = build_tiny(tmp_path / "data", valid_fraction=0.0)
    result = pretrain(data, tmp_path / "run", config=dataclasses.replace(CONFIG, eval_every=1))
    assert result["split"] == "train"
    assert result["step"] == 5
    assert metrics(tmp_path / "run", "valid") == []


def test_the_first_line_states_the_size_and_the_untrained_start(data, tmp_path):
    progress, heard = Progress(), []
    progress.log = heard.append
    pretrain(data, tmp_path / "run", config=CONFIG, progress=progress)
    num_parameters = sum(t.numel() for t in weights(tmp_path / "run" / "model").values())
    vocab_size = len(Dataset(data).tokenizer.vocab)
    assert f"{num_parameters:,} parameters" in heard[0]
    assert f"near ln({vocab_size}) + ln 2" in heard[0]
    assert f"{math.log(vocab_size) + math.log(2):.2f}" in heard[0]
    assert "warning" not in heard[0]


def test_the_first_line_reads_no_more_than_a_micro_batch(data, tmp_path, monkeypatch):
    sizes = []
    forward = BertForPreTraining.forward

    def noting(self, input_ids, *others):
        sizes.append(len(input_ids))
        return forward(self, input_ids, *others)

    monkeypatch.setattr(BertForPreTraining, "forward", noting)
    config = dataclasses.replace(CONFIG, micro_batch_size=2, steps=1, warmup=0.0)
    pretrain(data, tmp_path / "run", config=config)
    assert max(sizes) == 2


def test_resuming_a_finished_run_restores_a_lost_model(run, data):
    out = run()
    before = weights(out / "model")
    shutil.rmtree(out / "model")
    resume(data, out)
    after = weights(out / "model")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_resuming_a_finished_run_without_metrics_is_not_an_error(run, data):
    out = run()
    (out / "metrics.jsonl").unlink()
    assert resume(data, out)["step"] == 5


def test_a_run_that_exists_is_refused_before_the_data_is_read(run, tmp_path):
    with pytest.raises(OutputError, match="exists"):
        pretrain(tmp_path / "missing", run(), config=CONFIG)
