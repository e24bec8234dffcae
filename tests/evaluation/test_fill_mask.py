"""Filled masks against transformers' model and tokenizer, opened from the same folder."""

import dataclasses

import pytest
import torch
import transformers

from bertpt.config import BertConfig
from bertpt.errors import InputError, SettingError
from bertpt.evaluation.fill_mask import MaskFiller, encode_with_masks
from bertpt.model.bert import BertForPreTraining
from bertpt.model.pretrained import from_pretrained, save_pretrained
from bertpt.tokenizer.tokenizer import SPECIAL_TOKENS, from_vocab, load_tokenizer

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
    save_pretrained(model, folder)
    from_vocab(VOCAB, lowercase=True, strip_accents=True).save(folder)
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
def test_candidates_equal_transformers(filler, oracle, text):
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
        with pytest.raises(InputError, match=r"no \[MASK\] to fill in the text"):
            filler.fill(text)


def test_a_text_that_fills_the_models_positions_is_read_and_a_longer_one_refused(filler):
    assert len(filler.fill("[MASK]" + " cat" * 8)["masks"]) == 1
    with pytest.raises(InputError, match=r"12 tokens.* at most 11"):
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


def test_padding_rows_of_the_embedding_are_never_candidates(folder, tmp_path):
    whole = from_pretrained(BertForPreTraining, folder)
    padded = BertForPreTraining(dataclasses.replace(whole.config, vocab_size=len(VOCAB) + 5))
    with torch.no_grad():
        for name, parameter in padded.named_parameters():
            source = dict(whole.named_parameters())[name]
            parameter.zero_()
            parameter[: len(source)] = source
        padded.cls.predictions.bias[len(VOCAB) :] = 100.0  # would win every mask
    save_pretrained(padded, tmp_path)
    load_tokenizer(folder).save(tmp_path)
    text = "the [MASK] sees"
    expected = MaskFiller(folder, device="cpu").fill(text, top_k=len(VOCAB))
    found = MaskFiller(tmp_path, device="cpu").fill(text, top_k=200)
    for one, other in zip(found["masks"][0], expected["masks"][0], strict=True):
        assert one["token"] == other["token"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-6)


# ----------------------------------------------------------------------- transformers' own pipeline


@pytest.fixture(scope="module")
def pipeline(folder):
    return transformers.pipeline(
        "fill-mask", model=str(folder), tokenizer=str(folder), device="cpu"
    )


@pytest.mark.parametrize("top_k", [1, 3, len(VOCAB)])
@pytest.mark.parametrize(
    "text",
    ["the [MASK] sees a red dog.", "[MASK]", "Cats[MASK] 日 ?", "the [MASK][MASK] a [MASK]!"],
)
def test_candidates_equal_the_transformers_pipeline(filler, pipeline, text, top_k):
    expected = pipeline(text, top_k=top_k)
    if text.count("[MASK]") == 1:
        expected = [expected]
    found = filler.fill(text, top_k=top_k)["masks"]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [c["token"] for c in ours] == [VOCAB[c["token"]] for c in theirs]
        scores = [c["score"] for c in theirs]
        assert [c["score"] for c in ours] == pytest.approx(scores, abs=1e-4)


def test_the_sequence_of_a_single_mask_equals_the_pipeline(filler, pipeline):
    text = "the [MASK] sees a red dog"
    [ours] = filler.fill(text, top_k=len(VOCAB))["masks"]
    theirs = {VOCAB[c["token"]]: c["sequence"] for c in pipeline(text, top_k=len(VOCAB))}
    words = [c for c in ours if c["token"] not in SPECIAL_TOKENS]  # which the pipeline leaves out
    assert len(words) == len(VOCAB) - len(SPECIAL_TOKENS)
    for candidate in words:
        assert candidate["sequence"] == theirs[candidate["token"]]


# ----------------------------------------------------------------------------------------- jointly

SEVERAL = [
    "[MASK] [MASK]",
    "the [MASK] sees [MASK][MASK].",
    "[MASK] cat [MASK] red [MASK] [MASK]",
    "[MASK]" * 9,
]
NEVER = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")


@torch.no_grad()
def fill_greedily(folder, text):
    """The surest token of all masks, again and again: ids, order, probabilities at each."""
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokens(text)["input_ids"]
    masks = [place for place, token in enumerate(ids) if token == tokens.mask_token_id]
    order, seen, score = [], {}, 1.0
    while len(order) < len(masks):
        probabilities = model(torch.tensor([ids])).logits[0].double().softmax(dim=-1)
        surest = None
        for number, place in enumerate(masks):
            if number in order:
                continue
            for token, name in enumerate(VOCAB):
                p = probabilities[place, token].item()
                if name not in NEVER and (surest is None or p > surest[0]):
                    surest = (p, number, token)
        p, number, token = surest
        seen[number] = probabilities[masks[number]].tolist()
        ids[masks[number]] = token
        order.append(number)
        score *= p
    return ids[1:-1], order, seen, score


@pytest.fixture(scope="module")
def prone(folder, tmp_path_factory):
    """Makes a model to which the tokens that are never predicted are likelier than any other."""

    def make(bias):
        model = from_pretrained(BertForPreTraining, folder)
        with torch.no_grad():
            for token in NEVER:
                model.cls.predictions.bias[VOCAB.index(token)] += bias
        path = tmp_path_factory.mktemp("prone")
        save_pretrained(model, path)
        load_tokenizer(folder).save(path)
        return path

    return make


@pytest.mark.parametrize("text", SEVERAL)
@pytest.mark.parametrize("bias", [0, 20])
def test_joint_filling_equals_a_slow_greedy_loop(prone, text, bias):
    path = prone(bias)
    ids, order, seen, score = fill_greedily(path, text)
    found = MaskFiller(path, device="cpu").fill(text, joint=True, top_k=len(VOCAB))
    assert found["text"] == text
    assert found["order"] == order
    assert found["score"] == pytest.approx(score, rel=1e-4)
    tokens = transformers.AutoTokenizer.from_pretrained(path)
    assert found["sequence"] == tokens.decode(ids)
    assert not any(token in found["sequence"] for token in NEVER)
    for number, candidates in enumerate(found["masks"]):
        by_token = {c["token"]: c["score"] for c in candidates}
        for token, probability in zip(VOCAB, seen[number], strict=True):
            assert by_token[token] == pytest.approx(probability, abs=1e-5)


def test_the_texts_of_the_greedy_loop_are_not_filled_from_left_to_right(folder):
    orders = [fill_greedily(folder, text)[1] for text in SEVERAL]
    assert any(order != sorted(order) for order in orders)


@pytest.mark.parametrize("bias", [0, 90, 400])
def test_joint_filling_never_inserts_special_tokens(prone, bias):
    """With the largest bias, no other token has a probability that float32 can hold."""
    path = prone(bias)
    found = MaskFiller(path, device="cpu").fill("the [MASK] sees [MASK]", joint=True)
    expected, order, _, score = fill_greedily(path, "the [MASK] sees [MASK]")
    assert found["order"] == order
    tokens = transformers.AutoTokenizer.from_pretrained(path)
    assert found["sequence"] == tokens.decode(expected)
    assert found["score"] == pytest.approx(score, rel=1e-4, abs=1e-30)


def test_joint_filling_of_one_mask_equals_single_filling(filler):
    for text in ("the [MASK] sees", "[MASK]", "the cats[MASK] dog ."):
        alone = filler.fill(text, top_k=len(VOCAB))
        joint = filler.fill(text, top_k=len(VOCAB), joint=True)
        assert joint["masks"] == alone["masks"]
        best = next(c for c in alone["masks"][0] if c["token"] not in NEVER)
        assert joint["order"] == [0]
        assert joint["sequence"] == best["sequence"]
        assert joint["score"] == pytest.approx(best["score"], rel=1e-6)


# -------------------------------------------------------------------------------- masking a word


@pytest.mark.parametrize(
    ("text", "word", "masked"),
    [
        ("the cat sees a dog", "cat", "the [MASK] sees a dog"),
        ("The cat sees the CAT.", "Cat", "The [MASK] sees the [MASK]."),
        ("cat", "cat", "[MASK]"),
        ("cat cat cat", "cat", "[MASK] [MASK] [MASK]"),
        ("cat, a cat!cat?", "cat", "[MASK], a [MASK]![MASK]?"),
        ("the cats sees a cat", "cat", "the cats sees a [MASK]"),
        ("the dogs sees a dog", "dogs", "the [MASK][MASK] sees a dog"),
        ("dogs dogsx dogs", "dogs", "[MASK][MASK] dogsx [MASK][MASK]"),
        ("a Café, a CAFE", "café", "a [MASK], a [MASK]"),
        ("日日the日", "日", "[MASK][MASK]the[MASK]"),
        ("a日日cat日", "日日", "a[MASK][MASK]cat日"),
        ("the red dog sees red", "red dog", "the [MASK][MASK] sees red"),
        ("a red red red.", "red red", "a [MASK][MASK] red."),
        ("the cat sees.", ".", "the cat sees[MASK]"),
        ("the cat [MASK] a cat", "cat", "the [MASK] [MASK] a [MASK]"),
    ],
)
def test_a_word_is_masked_everywhere(filler, oracle, text, word, masked):
    expected = oracle(masked)
    result = filler.fill(text, mask_word=word, top_k=len(VOCAB))
    assert result["text"] == text
    assert len(result["masks"]) == len(expected) == masked.count("[MASK]")
    for candidates, probabilities in zip(result["masks"], expected, strict=True):
        by_token = {c["token"]: c["score"] for c in candidates}
        for token, probability in zip(VOCAB, probabilities.tolist(), strict=True):
            assert by_token[token] == pytest.approx(probability, abs=1e-5)


def test_a_cased_vocabulary_distinguishes_words_by_case(folder, tmp_path):
    vocab = ["Cat" if token == "bird" else token for token in VOCAB]
    save_pretrained(from_pretrained(BertForPreTraining, folder), tmp_path)
    from_vocab(vocab, lowercase=False, strip_accents=False).save(tmp_path)
    cased = MaskFiller(tmp_path, device="cpu")
    masks = cased.fill("Cat sees a cat", mask_word="cat")["masks"]
    assert masks == cased.fill("Cat sees a [MASK]")["masks"]
    masks = cased.fill("Cat sees a cat", mask_word="Cat")["masks"]
    assert masks == cased.fill("[MASK] sees a cat")["masks"]


def test_a_word_that_becomes_several_masks_is_filled_jointly(filler):
    by_word = filler.fill("the dogs sees a cat", mask_word="dogs", joint=True)
    by_mask = filler.fill("the [MASK][MASK] sees a cat", joint=True)
    assert len(by_word["order"]) == 2
    assert {**by_word, "text": by_mask["text"]} == by_mask


@pytest.mark.parametrize("word", ["zebra", "cat zebra", "", "  ", "Σ"])
def test_a_word_that_is_not_in_the_vocabulary_is_refused(filler, word):
    with pytest.raises(SettingError, match=r"`mask_word` .* is not in the vocabulary") as caught:
        filler.fill("the cat sees a zebra", mask_word=word)
    assert caught.value.setting == "mask_word"
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize("text", ["the cats sees", "", "dog", "c at", "caT_"])
def test_a_word_that_is_not_in_the_text_is_refused(filler, text):
    with pytest.raises(InputError, match=r"no 'bird' to mask in the text"):
        filler.fill(text, mask_word="bird")


def test_a_word_that_only_begins_longer_ones_is_not_in_the_text(filler):
    with pytest.raises(InputError, match="no 'cat' to mask in the text"):
        filler.fill("the cats sees catx", mask_word="cat")


def test_a_mask_spelled_as_the_word_to_mask_is_plain_text(filler):
    masks = filler.fill("a [ mask ] dog", mask_word="[MASK]")["masks"]
    assert masks == filler.fill("a [MASK][MASK][MASK] dog")["masks"]


# ------------------------------------------------------------------------- folders of other classes


@pytest.mark.parametrize(
    "kind",
    [
        "BertModel",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "BertForNextSentencePrediction",
    ],
)
def test_a_model_without_an_mlm_head_is_refused_and_the_head_named(folder, tmp_path, kind):
    model = getattr(transformers, kind)(transformers.BertConfig.from_pretrained(folder))
    model.save_pretrained(tmp_path)
    load_tokenizer(folder).save(tmp_path)
    with pytest.raises(InputError, match=r"has no MLM head \(cls\.predictions\.") as caught:
        MaskFiller(tmp_path, device="cpu")
    assert str(tmp_path) in str(caught.value)


def test_a_model_with_the_mlm_head_only_fills_as_one_with_both(folder, filler, tmp_path):
    transformers.BertForMaskedLM.from_pretrained(folder).save_pretrained(tmp_path)
    load_tokenizer(folder).save(tmp_path)
    only_mlm = MaskFiller(tmp_path, device="cpu")
    for text in SEVERAL:
        assert only_mlm.fill(text, joint=True) == filler.fill(text, joint=True)
    assert filler.ignored_note == only_mlm.ignored_note == ""
