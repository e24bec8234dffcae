"""Every model folder that pretrain writes opens in transformers' classes, with its tokenizer."""

import random

import pytest
import torch
import transformers
from transformers import AutoTokenizer
from typer.testing import CliRunner

from bertpt.model.bert import BertForPreTraining
from bertpt.model.pretrained import from_pretrained
from bertpt.tokenizer.tokenizer import load_tokenizer
from bertpt_cli.main import app

PLACES = ("model", "best", "checkpoints/step-2", "checkpoints/step-3")
POSITIONS = 37
# Each class, and what a pretrained model cannot have for it.
CLASSES = {
    "AutoModel": set(),
    "AutoModelForPreTraining": set(),
    "AutoModelForMaskedLM": set(),
    "BertForNextSentencePrediction": set(),
    "BertForSequenceClassification": {"classifier.weight", "classifier.bias"},
    "BertForTokenClassification": {"classifier.weight", "classifier.bias"},
    "BertForQuestionAnswering": {"qa_outputs.weight", "qa_outputs.bias"},
}
SENTENCES = (
    "The quick brown fox, who'd been there since 1987, didn't jump.",
    "“No,” she said — “it's 3.5% of 1,200!”",
    "Crème brûlée costs €4.50 at the CAFÉ in Zürich; naïve façade.",
    "E-mail me at jane_doe@example.com (or see https://example.com/a?b=c&d).",
    "東京 is big. Привет, мир! \u00a0tabs\tand\u200bmore \U0001f600",
    "pneumonoultramicroscopicsilicovolcanoconiosis " + "x" * 150,
    "",
)
every_place = pytest.mark.parametrize("place", PLACES)
every_class = pytest.mark.parametrize("name", CLASSES)


def command(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr


@pytest.fixture(scope="module", params=["lower-cased", "cased"])
def run(request, tmp_path_factory):
    """A RUN with two checkpoints, from text to model by the commands."""
    folder = tmp_path_factory.mktemp("opens")
    rng = random.Random(8)
    words = " ".join(SENTENCES).split()
    documents = ["\n".join(" ".join(rng.choices(words, k=7)) for _ in range(6)) for _ in range(20)]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    cleaning = ["--no-lowercase"] if request.param == "cased" else []
    command(
        *("build-data", folder / "text.txt", "--out", folder / "data", "--sentence-per-line"),
        *("--vocab-size", 211, "--seq-len", 33, *cleaning),
    )
    command(
        *("pretrain", folder / "data", "--out", folder / "run", "--steps", 3, "--save-every", 2),
        *("--hidden-size", 12, "--num-hidden-layers", 2, "--num-attention-heads", 3),
        *("--intermediate-size", 20, "--max-position-embeddings", POSITIONS, "--batch-size", 8),
    )
    assert {path.parent for path in (folder / "run").rglob("model.safetensors")} == {
        folder / "run" / place for place in PLACES
    }
    return folder / "run"


@pytest.fixture(scope="module")
def theirs(run, tmp_path_factory):
    """A BertForPreTraining of the same shape, as transformers saves it."""
    folder = tmp_path_factory.mktemp("theirs")
    config = transformers.BertConfig.from_pretrained(run / "model")
    transformers.BertForPreTraining(config).save_pretrained(folder)
    return folder


@every_place
@every_class
def test_a_class_misses_no_more_than_its_own_head(run, theirs, place, name):
    kind = getattr(transformers, name)
    _, loading = kind.from_pretrained(run / place, output_loading_info=True)
    _, loading_of_theirs = kind.from_pretrained(theirs, output_loading_info=True)
    assert set(loading["missing_keys"]) == CLASSES[name]
    assert set(loading["unexpected_keys"]) == set(loading_of_theirs["unexpected_keys"])
    for kind_of_fault in loading.keys() - {"missing_keys", "unexpected_keys"}:
        assert not loading[kind_of_fault], kind_of_fault


@every_place
@every_class
def test_a_class_has_the_weights_that_bertpt_reads(run, place, name):
    ours = dict(from_pretrained(BertForPreTraining, run / place).named_parameters())
    model = getattr(transformers, name).from_pretrained(run / place)
    known = 0
    for theirs, parameter in model.named_parameters():
        # of next-sentence prediction alone, and of a BertModel
        full = theirs if theirs.startswith(("bert.", "cls.")) else f"bert.{theirs}"
        if theirs not in CLASSES[name]:
            assert torch.equal(parameter, ours[full]), theirs
            known += 1
    assert known == len(list(model.named_parameters())) - len(CLASSES[name])
    assert known > 30  # two layers of sixteen, and the embeddings


def test_checkpoints_and_model_open_as_the_class_they_are(run):
    for place in PLACES:
        config = transformers.AutoConfig.from_pretrained(run / place)
        assert (config.architectures, config.model_type) == (["BertForPreTraining"], "bert")


@every_place
def test_the_tokenizer_gives_the_ids_of_bertpt(run, place):
    ours, theirs = load_tokenizer(run / place), AutoTokenizer.from_pretrained(run / place)
    expected = [[ours.cls_id, *ids, ours.sep_id] for ids in ours.encode_batch(SENTENCES)]
    assert theirs(list(SENTENCES))["input_ids"] == expected
    assert len({i for ids in expected for i in ids}) > 60
    pair = theirs(SENTENCES[0], SENTENCES[1])
    assert pair["input_ids"] == expected[0] + expected[1][1:]
    assert pair["token_type_ids"] == [0] * len(expected[0]) + [1] * (len(expected[1]) - 1)


@every_place
def test_the_tokenizer_cuts_to_the_positions_of_the_model(run, place):
    tokens = AutoTokenizer.from_pretrained(run / place)
    assert tokens.model_max_length == POSITIONS
    model = transformers.AutoModel.from_pretrained(run / place)
    assert model.config.max_position_embeddings == POSITIONS
    inputs = tokens(" ".join(SENTENCES), truncation=True, return_tensors="pt")
    with torch.no_grad():
        assert model(**inputs).last_hidden_state.shape == (1, POSITIONS, 12)
