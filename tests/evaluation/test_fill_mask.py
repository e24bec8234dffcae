"""Filled masks against transformers' model and tokenizer, opened from the same folder."""

import dataclasses

import pytest
import torch
import transformers

from bertpt.config import BertConfig
from bertpt.data import tokenizer
from bertpt.data.tokenizer import SPECIAL_TOKENS
from bertpt.errors import InputError
from bertpt.evaluation.fill_mask import MaskFiller, encode_with_masks
from bertpt.model.bert import BertForPreTraining

VOCAB = [
    *SPECIAL_TOKENS,
    *(
        "the",
        "cat",
        "sees",
        "dog",
        "##s",
        "a",
        "##x",
        "red",
        ".",
        "?",
        "!",
        "[",
        "]",
        "sep",
        "mask",
    ),
    *("hill", "cafe", "日", "bird"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = BertForPreTraining(
        BertConfig(
            vocab_size=len(VOCAB),
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=20,
            max_position_embeddings=11,
        )
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5, generator=generator)
    model.save_folder(folder)
    tokenizer.from_vocab(VOCAB, lowercase=True, strip_accents=True).save(folder)
    return folder


@pytest.fixture(scope="module")
def filler(folder):
    return MaskFiller(folder, device="cpu")


@pytest.fixture(scope="module")
def oracle(folder):
    """Gives transformers' ids of a text, and its probabilities at each mask."""
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def probabilities(text):
        encoded = tokens(text, return_tensors="pt")
        is_mask = encoded["input_ids"][0] == tokens.mask_token_id
        return model(**encoded).logits[0, is_mask].softmax(dim=-1)

    probabilities.tokens = tokens
    return probabilities


@pytest.mark.parametrize(
    "text",
    [
        "the [MASK] sees a red dog.",
        "[MASK]",
        "the cats sees[MASK]",
        "The CAFÉ [MASK] 日!",
        "the [MASK] sees [MASK][MASK].",
    ],
)
def test_candidates_are_those_of_transformers(filler, oracle, text):
    expected = oracle(text)
    masks = filler.fill(text, top_k=len(VOCAB))["masks"]
    assert len(masks) == len(expected) == text.count("[MASK]")
    for candidates, probabilities in zip(masks, expected, strict=True):
        by_token = {c["token"]: c["score"] for c in candidates}
        assert by_token.keys() == set(VOCAB)
        for token, probability in zip(VOCAB, probabilities.tolist(), strict=True):
            assert by_token[token] == pytest.approx(probability, abs=1e-5)


def test_candidates_come_best_first_and_as_many_as_asked_for(filler):
    every = filler.fill("the [MASK] sees", top_k=10_000)["masks"][0]
    assert len(every) == len(VOCAB)
    scores = [candidate["score"] for candidate in every]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) == pytest.approx(1.0, abs=1e-5)
    assert filler.fill("the [MASK] sees", top_k=3)["masks"][0] == every[:3]
    assert filler.fill("the [MASK] sees")["masks"][0] == every[:5]


def test_the_sequence_is_the_text_with_one_mask_filled(filler):
    result = filler.fill("The [MASK] sees [MASK]", top_k=len(VOCAB))
    assert result["text"] == "The [MASK] sees [MASK]"
    first, second = (
        {candidate["token"]: candidate["sequence"] for candidate in mask}
        for mask in result["masks"]
    )
    assert first["cat"] == "the cat sees [MASK]"
    assert second["cat"] == "the [MASK] sees cat"
    assert second["##s"] == "the [MASK] seess"


def test_each_mask_is_filled_while_the_others_stay_masked(filler, oracle):
    one = filler.fill("the cat [MASK] a dog")["masks"][0]
    two = filler.fill("the [MASK] [MASK] a dog")["masks"][1]
    assert [c["score"] for c in one] != pytest.approx([c["score"] for c in two])
    best = oracle("the [MASK] [MASK] a dog")[1].max().item()
    assert two[0]["score"] == pytest.approx(best, abs=1e-5)


def test_a_text_without_a_mask_is_refused(filler):
    for text in ("the cat sees", "", "the [mask] sees", "the [ MASK ] sees"):
        with pytest.raises(InputError, match=r"no \[MASK\] in the text"):
            filler.fill(text)


def test_a_text_that_fills_the_models_positions_is_read_and_a_longer_one_refused(filler):
    assert len(filler.fill("[MASK]" + " cat" * 8)["masks"]) == 1
    with pytest.raises(InputError, match=r"12 tokens.* reads 11"):
        filler.fill("[MASK]" + " cat" * 9)


def test_a_separator_spelled_in_the_text_is_plain_text(filler):
    ids = encode_with_masks("the [SEP] [MASK] [CLS]", filler.tokenizer)
    spelled = [VOCAB[i] for i in ids]
    assert spelled == ["[CLS]", "the", "[", "sep", "]", "[MASK]", "[", "[UNK]", "]", "[SEP]"]
    sequence = filler.fill("a [SEP] [MASK]", top_k=1)["masks"][0][0]["sequence"]
    assert sequence.startswith("a [ sep ]")


def test_ids_are_those_of_transformers(filler, oracle):
    for text in ("The cats sees [MASK] . ?", "[MASK]a[MASK]", "  a\t[MASK]\nred "):
        ids = encode_with_masks(text, filler.tokenizer)
        assert ids.tolist() == oracle.tokens(text)["input_ids"]


def test_a_lone_surrogate_does_not_crash(filler):
    """A shell hands over bytes that are no UTF-8 as these."""
    assert len(filler.fill("the \udcff [MASK]")["masks"]) == 1
    with pytest.raises(InputError, match=r"no \[MASK\]") as caught:
        filler.fill("the \udcff cat")
    str(caught.value).encode("utf-8")
    with pytest.raises(InputError, match="tokens") as caught:
        filler.fill("\udcff [MASK]" + " cat" * 20)
    str(caught.value).encode("utf-8")


def test_rows_that_pad_the_embedding_are_no_candidates(folder, tmp_path):
    whole = BertForPreTraining.from_folder(folder)
    padded = BertForPreTraining(dataclasses.replace(whole.config, vocab_size=len(VOCAB) + 5))
    with torch.no_grad():
        for name, parameter in padded.named_parameters():
            source = dict(whole.named_parameters())[name]
            parameter.zero_()
            parameter[: len(source)] = source
        padded.cls.predictions.bias[len(VOCAB) :] = 100.0  # would win every mask
    padded.save_folder(tmp_path)
    tokenizer.load(folder).save(tmp_path)
    text = "the [MASK] sees"
    expected = MaskFiller(folder, device="cpu").fill(text, top_k=len(VOCAB))
    found = MaskFiller(tmp_path, device="cpu").fill(text, top_k=200)
    for one, other in zip(found["masks"][0], expected["masks"][0], strict=True):
        assert one["token"] == other["token"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-6)
