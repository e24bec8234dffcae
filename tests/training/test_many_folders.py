"""Training and evaluating on several data folders: all of every one, and resuming on them."""

import dataclasses
import json
import math
import random
import re
from collections import Counter

import pytest
import safetensors.torch
import torch
import yaml

from bertpt.build.build import build_data
from bertpt.config import BuildConfig, EvalConfig, PretrainConfig, TokenizerConfig
from bertpt.data.dataset import Dataset
from bertpt.errors import InputError, MismatchError
from bertpt.evaluation.mlm import eval_mlm
from bertpt.tokenizer.train import train_tokenizer
from bertpt.training.pretrain import pretrain
from bertpt.training.trainer import Trainer

CONFIG = PretrainConfig(
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=24,
    steps=4,
    batch_size=7,
    eval_every=2,
    eval_examples=0,
    save_every=2,
    log_every=1,
    device="cpu",
    precision="float32",
)
WORDS = ["cat", "dog", "bird", "sees", "hears", "the", "a", "old", "red", "hill"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text of 40 documents and its tokenizer."""
    path = tmp_path_factory.mktemp("corpus")
    rng = random.Random(4)
    documents = [
        "\n".join(" ".join(rng.choices(WORDS, k=rng.randint(2, 6))) for _ in range(6))
        for _ in range(40)
    ]
    text = path / "text.txt"
    text.write_text("\n\n".join(documents))
    train_tokenizer([str(text)], path / "tokenizer", config=TokenizerConfig(vocab_size=60))
    return path


def build(folder, name, **settings):
    build_data(
        [str(folder / "text.txt")],
        folder / name,
        tokenizer_path=folder / "tokenizer",
        config=BuildConfig(
            **{"sentence_per_line": True, "seq_len": 16, "valid_fraction": 0.2, **settings}
        ),
    )
    return folder / name


@pytest.fixture(scope="module")
def parts(folder):
    """The three parts of the text, the last with longer sequences."""
    longer = {3: {"seq_len": 20}}
    return [build(folder, f"data-{i}", shard=f"{i}/3", **longer.get(i, {})) for i in (1, 2, 3)]


@pytest.fixture(scope="module")
def out(parts, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "run"
    pretrain(parts, path, config=CONFIG)
    return path


def ids_of(paths, split):
    data = [Dataset(path).examples(split) for path in paths]
    return Counter(
        tuple(row.input_ids.tolist()) for rows in data for row in rows.take(range(len(rows)))
    )


def weights(out):
    return safetensors.torch.load_file(out / "model" / "model.safetensors")


def last_metrics(out, split):
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["split"] == split][-1]


def test_an_epoch_sees_every_example_of_every_folder_once(parts, tmp_path, monkeypatch):
    seen = Counter()
    take_step = Trainer.take_step

    def watched(trainer, examples):
        seen.update(tuple(example.input_ids.tolist()) for example in examples)
        return take_step(trainer, examples)

    monkeypatch.setattr(Trainer, "take_step", watched)
    pretrain(parts, tmp_path / "run", config=dataclasses.replace(CONFIG, steps=None, epochs=2))
    assert seen == ids_of(parts, "train") + ids_of(parts, "train")


def test_held_out_examples_of_every_folder_are_evaluated(out, parts):
    assert last_metrics(out, "valid")["num_examples"] == ids_of(parts, "valid").total()


def test_figures_of_several_folders_are_means_over_all_targets(out, parts):
    """Counted from those of each folder alone."""
    alone = [eval_mlm(out, part, config=EvalConfig()) for part in parts]
    joined = eval_mlm(out, parts, config=EvalConfig())
    for number in ("num_examples", "num_targets", "num_pairs"):
        assert joined[number] == sum(one[number] for one in alone)
    for figure, number in (
        ("mlm_loss", "num_targets"),
        ("mlm_accuracy", "num_targets"),
        ("nsp_loss", "num_pairs"),
        ("nsp_accuracy", "num_pairs"),
    ):
        expected = sum(one[figure] * one[number] for one in alone) / joined[number]
        assert joined[figure] == pytest.approx(expected, rel=1e-6), figure


def test_the_unigram_baseline_counts_the_tokens_of_all(out, parts):
    counts = sum(Dataset(part).token_counts for part in parts) + 1
    loss, number = 0.0, 0
    for part in parts:
        examples = Dataset(part).examples("valid")
        for row in examples.take(range(len(examples))):
            for token in row.input_ids[row.masked_positions]:
                loss -= math.log(counts[token] / counts.sum())
                number += 1
    loss_reported = eval_mlm(out, parts, config=EvalConfig())["baselines"]["unigram"]["mlm_loss"]
    assert loss_reported == pytest.approx(loss / number)


def test_a_list_of_one_folder_equals_that_folder(parts, tmp_path):
    for name, given in (("path", parts[0]), ("list", parts[:1])):
        pretrain(given, tmp_path / name, config=CONFIG)
    one, other = (weights(tmp_path / name) for name in ("path", "list"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    records = [(tmp_path / name / "config.json").read_text() for name in ("path", "list")]
    assert records[0] == records[1]


def test_a_run_on_several_folders_resumes_with_the_same_bits(out, parts, tmp_path):
    shorter = tmp_path / "run"
    pretrain(parts, shorter, config=dataclasses.replace(CONFIG, steps=4, keep_last=0))
    (shorter / "checkpoints" / "step-4").rename(tmp_path / "lost")
    pretrain(parts, shorter, config=CONFIG, resume=True)
    assert last_metrics(shorter, "train")["step"] == 4
    one, other = weights(out), weights(shorter)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_resuming_on_other_folders_or_in_another_order_is_refused(out, parts):
    for given in (parts[::-1], parts[:2], parts[0]):
        data = Dataset(given)
        with pytest.raises(MismatchError) as error:
            pretrain(given, out, config=CONFIG, resume=True)
        assert str(error.value) == (
            f"{out} was trained on {', '.join(map(str, parts))} "
            f"({Dataset(parts).fingerprint[:12]}), and {data.name} is {data.fingerprint[:12]}; "
            "resume with the same folders in the same order, or start another run"
        )


def test_config_json_names_every_folder(out, parts):
    record = json.loads((out / "config.json").read_text())["data"]
    paths = [str(part) for part in parts]
    assert record == {"paths": paths, "sha256": Dataset(parts).fingerprint}


def test_the_card_has_the_sums_and_the_names(out, parts):
    card = (out / "model" / "README.md").read_text()
    manifests = [Dataset(part).manifest for part in parts]
    for name in ("documents", "sentences", "tokens", "examples"):
        train, valid = (sum(m[name][split] for m in manifests) for split in ("train", "valid"))
        assert f"| {name} | {train:,} | {valid:,} |" in card
    assert f"data {', '.join(f'`{part}`' for part in parts)} (SHA-256" in card
    assert "Sequences of 20 tokens" in card
    num_examples = sum(m["examples"]["train"] for m in manifests)
    assert f"| examples | 28 ({28 / num_examples:.2f} epochs) |" in card  # 4 steps of 7


def test_the_card_names_every_language(folder, tmp_path):
    both = [
        build(folder, f"in-{code}", language=code, seed=i) for i, code in enumerate(("no", "de"))
    ]
    pretrain(both, tmp_path / "run", config=dataclasses.replace(CONFIG, steps=1))
    front = (tmp_path / "run/model/README.md").read_text().split("---\n")[1]
    assert yaml.safe_load(front)["language"] == ["de", "no"]


def test_the_longest_sequences_must_fit_the_positions(parts, tmp_path):
    config = dataclasses.replace(CONFIG, max_position_embeddings=16)
    pretrain(parts[:2], tmp_path / "fits", config=dataclasses.replace(config, steps=1))
    with pytest.raises(MismatchError, match=re.escape(f"{parts[2]} has sequences of 20 tokens")):
        pretrain(parts, tmp_path / "run", config=config)


def test_folders_without_examples_to_evaluate_on_are_named(out, folder):
    both = [build(folder, f"none-{i}", valid_fraction=0, seed=i) for i in (5, 6)]
    with pytest.raises(InputError, match=f"{both[0]}, {both[1]} has no valid examples"):
        eval_mlm(out, both, config=EvalConfig())
