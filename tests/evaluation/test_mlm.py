"""Evaluation against counts done by hand and against a loop that knows nothing of batches."""

import dataclasses
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from bertpt.config import BertConfig, EvalConfig
from bertpt.data.batches import collate
from bertpt.data.dataset import Dataset
from bertpt.data.example import Example
from bertpt.errors import InputError, MismatchError
from bertpt.evaluation.mlm import baselines, eval_mlm, evaluate, perplexity
from bertpt.model.bert import BertForPreTraining, BertOutput
from bertpt.model.initialization import initialize
from bertpt.model.pretrained import from_pretrained, save_pretrained
from bertpt.tokenizer.tokenizer import from_vocab

MASK = 4


@pytest.fixture(scope="module")
def data(build_tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data"
    folder = build_tiny(path, num_documents=14, valid_fraction=0.3, dupe_factor=3)
    return Dataset(folder)


def new_model(data, **changes):
    config = BertConfig(
        vocab_size=len(data.tokenizer.vocab),
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=16,
    )
    return BertForPreTraining(dataclasses.replace(config, **changes)).eval()


@pytest.fixture(scope="module")
def model_folder(data, tmp_path_factory):
    """A model with large weights, so that its losses and hits vary from target to target."""
    folder = tmp_path_factory.mktemp("model")
    model = new_model(data)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5, generator=generator)
    save_pretrained(model, folder)
    data.tokenizer.save(folder)
    return folder


class Oracle(nn.Module):
    """Gives fixed probabilities, in the order of the batches."""

    def __init__(self, mlm, nsp):
        super().__init__()
        self.anything = nn.Parameter(torch.zeros(1))
        self.mlm = torch.tensor(mlm).log()
        self.nsp = torch.tensor(nsp).log()

    def forward(self, _ids, _segments, lengths, masked_positions):
        assert not self.training
        assert not torch.is_grad_enabled()
        nothing = torch.zeros(0)
        mlm, self.mlm = self.mlm.split(
            [len(masked_positions), len(self.mlm) - len(masked_positions)]
        )
        nsp, self.nsp = self.nsp.split([len(lengths), len(self.nsp) - len(lengths)])
        return BertOutput(nothing, nothing, mlm, nsp)


def example(ids, positions, seen, label):
    return Example(np.array(ids), 3, label, np.array(positions, int), np.array(seen, int))


# Ten words, ids 0 to 9. One target in the first example, three in the second, none in the third.
BY_HAND = [
    example([2, 5, 3, 6, 3], [1], [MASK], 0),
    example([2, 9, 7, 3, 8, 3], [1, 2, 4], [MASK, 6, 8], 1),
    example([2, 7, 3, 8, 3], [], [], 1),
]
#        id 0     1     2     3     4     5     6     7     8     9
GUESSES = [
    [0.05, 0.05, 0.05, 0.05, 0.05, 0.50, 0.05, 0.05, 0.05, 0.10],  # true 5: best
    [0.19, 0.18, 0.17, 0.16, 0.15, 0.01, 0.01, 0.01, 0.02, 0.10],  # true 9: 6th
    [0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.30, 0.25, 0.05, 0.10],  # true 7: 2nd
    [0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.50, 0.10],  # true 8: best
]
CHARACTERS = np.array([5, 5, 5, 5, 6, 1, 2, 3, 4, 7])  # targets 5, 9, 7 and 8 have 1 + 7 + 3 + 4
PAIR_GUESSES = [[0.8, 0.2], [0.6, 0.4], [0.1, 0.9]]


def evaluate_by_hand(examples, guesses, pair_guesses, *, size):
    batches = [collate(examples[i : i + size], pad_id=0) for i in range(0, len(examples), size)]
    model = Oracle(guesses, pair_guesses)
    return evaluate(
        model, batches, mask_id=MASK, num_characters=CHARACTERS, precision=torch.float32
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_losses_and_accuracies_match_a_count_by_hand(size):
    result = evaluate_by_hand(BY_HAND, GUESSES, PAIR_GUESSES, size=size)
    mlm_loss = -math.log(0.5 * 0.1 * 0.25 * 0.5) / 4
    nsp_loss = -math.log(0.8 * 0.4 * 0.9) / 3
    assert result["mlm_loss"] == pytest.approx(mlm_loss, rel=1e-6)
    assert result["mlm_perplexity"] == pytest.approx((0.5 * 0.1 * 0.25 * 0.5) ** -0.25, rel=1e-6)
    bits = -math.log2(0.5 * 0.1 * 0.25 * 0.5) / 15
    assert result["mlm_bits_per_character"] == pytest.approx(bits, rel=1e-6)
    assert result["nsp_loss"] == pytest.approx(nsp_loss, rel=1e-6)
    assert result["loss"] == pytest.approx(mlm_loss + nsp_loss, rel=1e-6)
    assert result["mlm_accuracy"] == 2 / 4
    assert result["mlm_top5_accuracy"] == 3 / 4
    assert result["nsp_accuracy"] == 2 / 3
    counts = [result[key] for key in ("num_examples", "num_targets", "num_pairs")]
    assert counts == [3, 4, 3]


def test_the_accuracy_is_split_by_what_the_model_saw():
    result = evaluate_by_hand(BY_HAND, GUESSES, PAIR_GUESSES, size=2)
    assert result["num_targets_by_input"] == {"masked": 2, "random": 1, "unchanged": 1}
    assert result["mlm_accuracy_by_input"] == {"masked": 0.5, "random": 0.0, "unchanged": 1.0}


def test_examples_without_pairs_do_not_count_in_the_nsp_figures():
    examples = [BY_HAND[0]._replace(next_sentence_label=-100), *BY_HAND[1:]]
    result = evaluate_by_hand(examples, GUESSES, PAIR_GUESSES, size=3)
    assert result["nsp_loss"] == pytest.approx(-math.log(0.4 * 0.9) / 2, rel=1e-6)
    assert result["nsp_accuracy"] == 1 / 2
    assert result["num_pairs"] == 2


def test_a_mean_over_nothing_is_none_and_not_nan():
    alone = [BY_HAND[2]._replace(next_sentence_label=-100)]
    result = evaluate_by_hand(alone, np.zeros((0, 10), np.float32), PAIR_GUESSES[:1], size=1)
    for key in ("mlm_loss", "mlm_perplexity", "mlm_accuracy", "nsp_loss", "nsp_accuracy"):
        assert result[key] is None, key
    assert result["loss"] == 0.0
    assert result["mlm_accuracy_by_input"] == {"masked": None, "random": None, "unchanged": None}


def test_a_vocabulary_smaller_than_five_still_has_a_top_five():
    examples = [example([0, 1, 2], [1], [2], 0)]
    result = evaluate_by_hand(examples, [[0.5, 0.2, 0.3]], [[0.5, 0.5]], size=1)
    assert result["mlm_top5_accuracy"] == 1.0
    assert result["mlm_accuracy"] == 0.0


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_restored(training):
    model = Oracle(GUESSES, PAIR_GUESSES).train(training)
    evaluate(
        model,
        [collate(BY_HAND, pad_id=0)],
        mask_id=MASK,
        num_characters=CHARACTERS,
        precision=torch.float32,
    )
    assert model.training is training


# ------------------------------------------------------------------------------------ real folders


def rows_of(data, split):
    examples = data.examples(split)
    return [examples[row] for row in range(len(examples))]


def evaluate_one_by_one(model, examples, vocab):
    """The figures from softmaxes of one unpadded example at a time, in float64."""
    losses, right, top5, pair_losses, pairs_right = [], [], [], [], []
    num_characters = 0
    for each in examples:
        ids = torch.tensor(each.input_ids)
        ids[each.masked_positions] = torch.tensor(each.masked_input_ids)
        segments = (torch.arange(len(ids)) >= each.b_start).long()
        output = model(
            ids[None], segments[None], torch.tensor([len(ids)]), torch.tensor(each.masked_positions)
        )
        for logits, place in zip(output.prediction_logits, each.masked_positions, strict=True):
            p = logits.double().softmax(dim=0).numpy()
            true = each.input_ids[place]
            num_characters += len(vocab[true].removeprefix("##"))
            rank = int((p > p[true]).sum())
            losses.append(-math.log(p[true]))
            right.append(rank == 0)
            top5.append(rank < 5)
        p = output.seq_relationship_logits[0].double().softmax(dim=0).numpy()
        pair_losses.append(-math.log(p[each.next_sentence_label]))
        pairs_right.append(p[each.next_sentence_label] > 0.5)
    return {
        "loss": np.mean(losses) + np.mean(pair_losses),
        "mlm_loss": np.mean(losses),
        "mlm_perplexity": math.exp(np.mean(losses)),
        "mlm_bits_per_character": np.sum(losses) / math.log(2) / num_characters,
        "mlm_accuracy": np.mean(right),
        "mlm_top5_accuracy": np.mean(top5),
        "nsp_loss": np.mean(pair_losses),
        "nsp_accuracy": np.mean(pairs_right),
        "num_examples": len(pair_losses),
        "num_targets": len(losses),
    }


@pytest.mark.parametrize("split", ["valid", "train"])
@torch.no_grad()
def test_evaluating_a_folder_equals_one_example_at_a_time(data, model_folder, split):
    expected = evaluate_one_by_one(
        from_pretrained(BertForPreTraining, model_folder),
        rows_of(data, split),
        data.tokenizer.vocab,
    )
    assert 0 < expected["mlm_accuracy"] < expected["mlm_top5_accuracy"] < 1
    result = eval_mlm(
        model_folder, data.paths[0], config=EvalConfig(split=split, precision="float32")
    )
    for key, value in expected.items():
        assert result[key] == pytest.approx(value, rel=1e-5), key
    assert result["split"] == split


def test_the_result_does_not_depend_on_the_batch_size(data, model_folder):
    whole = eval_mlm(model_folder, data.paths[0], config=EvalConfig(precision="float32"))
    for size in (1, 2, 3, 7, 64):
        result = eval_mlm(
            model_folder, data.paths[0], config=EvalConfig(batch_size=size, precision="float32")
        )
        for key in ("num_examples", "num_targets", "num_targets_by_input", "num_pairs"):
            assert result[key] == whole[key]
        for key, value in whole.items():
            if isinstance(value, float):
                assert result[key] == pytest.approx(value, rel=1e-6), key


def test_the_result_is_the_same_to_the_last_digit_every_time(data, model_folder):
    torch.manual_seed(1)
    first = eval_mlm(model_folder, data.paths[0], config=EvalConfig())
    torch.manual_seed(2)
    assert eval_mlm(model_folder, data.paths[0], config=EvalConfig()) == first


def test_dropout_in_the_config_does_not_change_the_result(data, model_folder, tmp_path):
    other = new_model(data, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    other.load_state_dict(from_pretrained(BertForPreTraining, model_folder).state_dict())
    save_pretrained(other, tmp_path)
    data.tokenizer.save(tmp_path)
    assert eval_mlm(tmp_path, data.paths[0], config=EvalConfig()) == eval_mlm(
        model_folder, data.paths[0], config=EvalConfig()
    )


@pytest.mark.parametrize("init", ["published", "mimetic"])
def test_an_untrained_model_is_at_chance(data, tmp_path, init):
    model = new_model(data)
    initialize(model, init, torch.Generator().manual_seed(0))
    save_pretrained(model, tmp_path)
    data.tokenizer.save(tmp_path)
    result = eval_mlm(
        tmp_path, data.paths[0], config=EvalConfig(split="train", precision="float32")
    )
    assert result["mlm_loss"] == pytest.approx(math.log(len(data.tokenizer.vocab)), rel=0.05)
    assert result["nsp_loss"] == pytest.approx(math.log(2), rel=0.05)
    assert result["mlm_accuracy"] < 0.3
    masked = result["num_targets_by_input"]["masked"] / result["num_targets"]
    assert masked == pytest.approx(0.8, abs=0.1)


def test_another_tokenizer_is_refused_by_both_fingerprints(data, model_folder, tmp_path):
    vocab = [*data.tokenizer.vocab[:-2], data.tokenizer.vocab[-1], data.tokenizer.vocab[-2]]
    swapped = from_vocab(vocab, lowercase=True, strip_accents=True)
    for file in model_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    swapped.save(tmp_path)
    with pytest.raises(MismatchError) as caught:
        eval_mlm(tmp_path, data.paths[0], config=EvalConfig())
    assert swapped.fingerprint[:12] in str(caught.value)
    assert data.tokenizer.fingerprint[:12] in str(caught.value)
    assert "`tokenizer`" in str(caught.value)


def test_data_longer_than_the_models_positions_is_refused_with_both_numbers(data, tmp_path):
    save_pretrained(new_model(data, max_position_embeddings=15), tmp_path)
    data.tokenizer.save(tmp_path)
    with pytest.raises(MismatchError, match=r"16 tokens.* 15 positions"):
        eval_mlm(tmp_path, data.paths[0], config=EvalConfig())


def test_an_empty_split_is_refused(model_folder, build_tiny, tmp_path):
    empty = build_tiny(tmp_path / "data", valid_fraction=0.0)
    with pytest.raises(InputError, match="no valid examples; try `split` train"):
        eval_mlm(model_folder, empty, config=EvalConfig())


# --------------------------------------------------------------------------------------- baselines


def test_the_baselines_match_a_count_by_hand():
    class Rows(list):
        def take(self, rows):
            return [self[row] for row in rows]

    # 10 tokens in 7 words of vocabulary; with one added to each count, 17 in all.
    data = SimpleNamespace(
        tokenizer=SimpleNamespace(vocab=list("abcdefg"), pad_id=0),
        token_counts=np.array([0, 0, 0, 1, 6, 3, 0]),
        examples=lambda _: Rows(
            [
                example([2, 4, 3, 5, 3], [1], [MASK], 0),
                example([2, 4, 3, 6, 3], [1, 3], [MASK, MASK], 1),
                example([2, 5, 3, 4, 3], [1], [MASK], 0),
                example([2, 5, 3, 4, 3], [], [], -100),
            ]
        ),
    )
    found = baselines(data, "valid", num_classes=len(data.tokenizer.vocab))
    assert found["uniform"] == {
        "mlm_loss": pytest.approx(math.log(7)),
        "mlm_accuracy": pytest.approx(1 / 7),
    }
    # Targets 4, 4, 6 and 5.
    assert found["unigram"] == {
        "mlm_loss": pytest.approx(-math.log(7 / 17 * 7 / 17 * 1 / 17 * 4 / 17) / 4),
        "mlm_accuracy": 2 / 4,
    }
    assert found["nsp_majority"] == {
        "nsp_loss": pytest.approx(-(2 * math.log(2 / 3) + math.log(1 / 3)) / 3),
        "nsp_accuracy": pytest.approx(2 / 3),
    }


def test_the_unigram_baseline_comes_from_the_token_counts(data, model_folder):
    targets = Counter(
        int(each.input_ids[place])
        for each in rows_of(data, "valid")
        for place in each.masked_positions
    )
    smoothed = [int(count) + 1 for count in data.token_counts]
    loss = -sum(n * math.log(smoothed[token] / sum(smoothed)) for token, n in targets.items())
    best = smoothed.index(max(smoothed))
    found = eval_mlm(model_folder, data.paths[0], config=EvalConfig())["baselines"]
    assert found["unigram"]["mlm_loss"] == pytest.approx(loss / targets.total())
    assert found["unigram"]["mlm_accuracy"] == pytest.approx(targets[best] / targets.total())
    assert found["unigram"]["mlm_loss"] < found["uniform"]["mlm_loss"]


def test_the_nsp_baseline_is_the_share_of_the_majority_label(data, model_folder):
    labels = Counter(e.next_sentence_label for e in rows_of(data, "valid"))
    assert set(labels) == {0, 1}
    found = eval_mlm(model_folder, data.paths[0], config=EvalConfig())["baselines"]["nsp_majority"]
    assert found["nsp_accuracy"] == pytest.approx(max(labels.values()) / labels.total())
    assert found["nsp_loss"] <= math.log(2) + 1e-12


@pytest.mark.parametrize(
    ("loss", "expected"), [(None, None), (0.0, 1.0), (709.7, math.exp(709.7)), (7673.0, None)]
)
def test_a_perplexity_beyond_a_float_is_none(loss, expected):
    assert perplexity(loss) == expected


def test_baselines_count_the_rows_of_the_model(data, tmp_path):
    """As its softmax does: a vocabulary padded to a multiple of 64 has rows without tokens."""
    num_rows = len(data.tokenizer.vocab) + 7
    save_pretrained(new_model(data, vocab_size=num_rows), tmp_path)
    data.tokenizer.save(tmp_path)
    found = eval_mlm(tmp_path, data.paths[0], config=EvalConfig())["baselines"]
    assert found["uniform"]["mlm_loss"] == pytest.approx(math.log(num_rows))
