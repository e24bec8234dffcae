"""The view of a data folder: rows against an expansion by hand, and transformers' own training."""

import hashlib
import random
import shutil

import datasets
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

from bertpt.build.build import build_data
from bertpt.config import BertConfig, BuildConfig, TokenizerConfig
from bertpt.data.batches import in_order
from bertpt.data.dataset import Dataset
from bertpt.data.hf_view import transformers_view
from bertpt.errors import InputError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.losses import loss_sums, pretraining_loss
from bertpt.model.pretrained import from_pretrained, save_pretrained

WORDS = ["cat", "dog", "bird", "sees", "hears", "the", "a", "old", "red", "hill"]
# The special tokens stand where no default would have them.
VOCAB = [*WORDS[:4], "[MASK]", "[PAD]", *WORDS[4:], "[SEP]", ".", "[UNK]", "[CLS]"]
SEQ_LEN = 19
PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "labels")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder of short and long examples; change nothing."""
    folder = tmp_path_factory.mktemp("built")
    rng = random.Random(0)
    documents = [
        "\n".join(" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) + " ." for _ in range(5))
        for _ in range(12)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB))
    build_data(
        [str(folder / "text.txt")],
        folder / "data",
        tokenizer_path=folder / "vocab.txt",
        config=BuildConfig(
            sentence_per_line=True,
            seq_len=SEQ_LEN,
            valid_fraction=0.3,
            masked_lm_prob=0.3,
            short_seq_prob=0.4,
        ),
        tokenizer_config=TokenizerConfig(),
    )
    return Dataset(folder / "data")


@pytest.fixture
def untouched(data):
    """Whatever a test does, the folder's files stay as they were, and no other comes."""

    def state():
        return {
            path: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in data.paths[0].rglob("*")
            if path.is_file()
        }

    before = state()
    yield
    assert state() == before


def stored(data, split):
    return datasets.load_from_disk(str(data.paths[0] / split)).to_list()


def expand(row):
    """What transformers takes, from the stored columns of an example."""
    length = len(row["input_ids"])
    padding = SEQ_LEN - length
    ids = row["input_ids"] + [VOCAB.index("[PAD]")] * padding
    labels = [-100] * SEQ_LEN
    for place, seen in zip(row["masked_positions"], row["masked_input_ids"], strict=True):
        labels[place] = ids[place]
        ids[place] = seen
    return {
        "input_ids": ids,
        "attention_mask": [1] * length + [0] * padding,
        "token_type_ids": [0] * row["b_start"] + [1] * (length - row["b_start"]) + [0] * padding,
        "labels": labels,
        "next_sentence_label": row["next_sentence_label"],
    }


def as_lists(row):
    return {name: value.tolist() for name, value in row.items()}


# -------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.usefixtures("untouched")
def test_a_row_is_the_stored_example_expanded_by_hand(data, split):
    view = transformers_view(data, split)
    expected = [expand(row) for row in stored(data, split)]
    assert len(view) == len(expected) > 5
    assert [as_lists(row) for row in view] == expected
    assert as_lists(view[-1]) == expected[-1]


def test_the_test_data_covers_every_case_of_the_expansion(data):
    """Padding, both labels, and all that a predicted token may be replaced by."""
    rows = stored(data, "train")
    assert len({len(row["input_ids"]) for row in rows}) > 2
    assert min(len(row["input_ids"]) for row in rows) < SEQ_LEN
    assert {row["next_sentence_label"] for row in rows} == {0, 1}
    seen = [
        (row["input_ids"][place], token)
        for row in rows
        for place, token in zip(row["masked_positions"], row["masked_input_ids"], strict=True)
    ]
    assert any(token == VOCAB.index("[MASK]") for _, token in seen)
    assert any(token == true for true, token in seen)
    assert any(token not in (true, VOCAB.index("[MASK]")) for true, token in seen)


def test_a_row_holds_int64_tensors_of_the_sequence_length(data):
    row = transformers_view(data)[0]
    assert set(row) == {*PER_TOKEN, "next_sentence_label"}
    assert all(value.dtype == torch.int64 for value in row.values())
    assert all(row[name].shape == (SEQ_LEN,) for name in PER_TOKEN)
    assert row["next_sentence_label"].shape == ()


@pytest.mark.usefixtures("untouched")
def test_rows_can_be_chosen_as_from_any_dataset(data):
    view = transformers_view(data, "train")
    expected = [expand(row) for row in stored(data, "train")]
    for name, value in view[2:5].items():
        assert value.tolist() == [row[name] for row in expected[2:5]]
    for name, value in view[[4, 0]].items():
        assert value.tolist() == [expected[4][name], expected[0][name]]
    assert [as_lists(row) for row in view.select([3, 1])] == [expected[3], expected[1]]


def test_shuffled_and_divided_rows_are_the_same_rows(data, tmp_path):
    data = Dataset(shutil.copytree(data.paths[0], tmp_path / "data"))  # datasets caches next to it
    view = transformers_view(data, "train")
    expected = sorted(str(expand(row)) for row in stored(data, "train"))
    assert sorted(str(as_lists(row)) for row in view.shuffle(seed=3)) == expected
    parts = view.train_test_split(test_size=0.5, seed=3)
    assert sorted(str(as_lists(row)) for part in parts.values() for row in part) == expected


@pytest.mark.usefixtures("untouched")
def test_a_torch_loader_collates_rows(data):
    expected = [expand(row) for row in stored(data, "train")]
    batches = list(DataLoader(transformers_view(data), batch_size=4))
    assert len(batches) == -(-len(expected) // 4)
    for number, batch in enumerate(batches):
        rows = expected[4 * number : 4 * number + 4]
        assert all(batch[name].shape == (len(rows), SEQ_LEN) for name in PER_TOKEN)
        assert as_lists(batch) == {name: [row[name] for row in rows] for name in batch}


def test_an_unknown_split_is_refused(data):
    with pytest.raises(InputError, match="test"):
        transformers_view(data, "test")


def test_a_damaged_split_is_refused(data, tmp_path):
    copy = shutil.copytree(data.paths[0], tmp_path / "data")
    shard = copy / "train" / "data-00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"data-00000\.arrow"):
        transformers_view(Dataset(copy))


# ------------------------------------------------------------------------ transformers' own Trainer


class Recorder(transformers.Trainer):
    """Keeps the loss of every step unrounded."""

    def compute_loss(self, model, inputs, *args, **options):
        loss = super().compute_loss(model, inputs, *args, **options)
        self.losses.append(loss.item())
        return loss


@pytest.fixture
def train(data, tmp_path):
    """Trains transformers' model from a folder on the view; gives the losses of its steps."""

    def call(folder, **options):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "trainer"),
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            **options,
        )
        trainer = Recorder(
            model=transformers.BertForPreTraining.from_pretrained(folder),
            args=arguments,
            train_dataset=transformers_view(data, "train"),
        )
        trainer.losses = []
        trainer.train()
        return trainer.losses

    return call


@pytest.fixture
def model_folder(tmp_path):
    model = BertForPreTraining(
        BertConfig(
            vocab_size=len(VOCAB),
            hidden_size=24,
            num_hidden_layers=1,
            num_attention_heads=3,
            intermediate_size=28,
            max_position_embeddings=SEQ_LEN + 2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    save_pretrained(model, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.usefixtures("untouched")
def test_the_trainer_starts_from_bertpts_loss_and_its_loss_falls(data, train, model_folder):
    examples = data.examples("train")
    [batch] = in_order(examples, batch_size=len(examples), pad_id=VOCAB.index("[PAD]"))
    with torch.no_grad():
        output = from_pretrained(BertForPreTraining, model_folder)(*batch.inputs)
    sums = loss_sums(output, batch.masked_lm_labels, batch.next_sentence_labels)
    expected = pretraining_loss(sums, num_targets=sums.num_targets, num_pairs=sums.num_pairs)

    losses = train(
        model_folder,
        remove_unused_columns=False,
        per_device_train_batch_size=len(examples),
        max_steps=60,
    )
    assert len(losses) == 60
    assert losses[0] == pytest.approx(expected.item(), abs=1e-5)
    assert max(losses[-3:]) < 0.8 * losses[0]


@pytest.mark.usefixtures("untouched")
def test_a_trainer_that_removes_the_stored_columns_gets_a_one_line_error(train, model_folder):
    with pytest.raises(InputError) as caught:
        train(model_folder, per_device_train_batch_size=3, max_steps=1)
    message = str(caught.value)
    assert "remove_unused_columns=False" in message
    for name in ("b_start", "masked_positions", "masked_input_ids"):
        assert name in message
    assert "\n" not in message
