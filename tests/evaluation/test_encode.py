"""Vectors of texts against transformers' model and tokenizer, opened from the same folder."""

import random

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from bertpt.config import BertConfig, EncodeConfig
from bertpt.errors import InputError, MismatchError, SettingError
from bertpt.evaluation.encode import BATCHES_AHEAD, TextEncoder
from bertpt.model.bert import BertForPreTraining
from bertpt.model.pretrained import save_pretrained
from bertpt.tokenizer.tokenizer import from_vocab

# The special tokens stand where no default would have them.
VOCAB = [
    *("the", "cat", "[SEP]", "sees", "##s", "[PAD]", "dog", "a", "red", "[UNK]", "hill", "."),
    *("?", "[MASK]", "[", "]", "sep", "mask", "cafe", "日", "[CLS]", "bird", "##x"),
]
WORDS = ("the", "cats", "sees", "dog", "a", "red", "hill", "CAFÉ", "bird.", "日日", "unheard")
POSITIONS, LAYERS, HIDDEN = 13, 3, 12
SHAPE = {
    "vocab_size": len(VOCAB) + 2,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-7,
}
TEXTS = [
    "The cats sees a red dog.",
    ("a bird sees", "the hill ?"),
    "",
    "cat",
    ("dog", ""),
    ("", "the red cats . . ."),
    ("", ""),
    "日日 CAFÉ unheard",
    "a " * 50,
    ("the " * 4, "dogx " * 40),
    ("hill " * 40, "sees " * 4),
    ("red " * 30, "bird " * 31),
]

BARE = "BertModel"
WITHOUT_POOLER = "BertModel without pooler"
CLASSIFIER = "BertForSequenceClassification"
UNTIED = "BertForMaskedLM, untied"
KINDS = ["bertpt", BARE, WITHOUT_POOLER, CLASSIFIER, UNTIED]
HAVE_POOLER = ["bertpt", BARE, CLASSIFIER]
POOLINGS_OF_KIND = [
    (kind, pooling)
    for kind in KINDS
    for pooling in BATCHES_AHEAD
    if pooling != "pooler" or kind in HAVE_POOLER
]


def randomized(model):
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5, generator=generator)
    return model


def save_tokenizer(folder):
    from_vocab(VOCAB, lowercase=True, strip_accents=True).save(folder)


def save(kind, folder, **changes):
    """Makes a folder of a kind, its model at random."""
    if kind == "bertpt":
        save_pretrained(randomized(BertForPreTraining(BertConfig(**{**SHAPE, **changes}))), folder)
    else:
        name = kind.split(",")[0].split(" ")[0]
        config = transformers.BertConfig(
            **{**SHAPE, **changes}, num_labels=5, tie_word_embeddings=kind != UNTIED
        )
        options = {"add_pooling_layer": False} if kind == WITHOUT_POOLER else {}
        randomized(getattr(transformers, name)(config, **options)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


class Oracle:
    """Transformers' encoder and tokenizer, which take one text at a time, without padding."""

    def __init__(self, folder, max_length=POSITIONS):
        self.model = transformers.BertModel.from_pretrained(
            folder, attn_implementation="eager"
        ).eval()
        self.tokens = transformers.AutoTokenizer.from_pretrained(folder)
        self.max_length = max_length

    def ids(self, text, *, truncation=True):
        parts = (text,) if isinstance(text, str) else text
        return self.tokens(
            *([part] for part in parts),  # alone, an empty second text would count as none
            truncation=truncation,
            max_length=self.max_length if truncation else None,
            split_special_tokens=True,
            return_tensors="pt",
        )

    @torch.no_grad()
    def vector(self, text, pooling, layer=LAYERS):
        output = self.model(**self.ids(text), output_hidden_states=True)
        hidden = output.hidden_states[layer][0]
        return {
            "mean": hidden.mean(dim=0),
            "cls": hidden[0],
            "pooler": output.pooler_output[0],
            "tokens": hidden,
        }[pooling].numpy()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: save(kind, tmp_path_factory.mktemp("model")) for kind in KINDS}


@pytest.fixture(scope="module")
def oracles(folders):
    return {kind: Oracle(folder) for kind, folder in folders.items()}


def encoder_of(folder, **chosen):
    return TextEncoder(folder, EncodeConfig(device="cpu", **chosen))


def random_texts(number, *, seed):
    """Texts of 0 to 30 words, every fourth a pair."""
    rng = random.Random(seed)

    def text():
        return " ".join(rng.choices(WORDS, k=rng.randint(0, 30)))

    return [(text(), text()) if rng.random() < 0.25 else text() for _ in range(number)]


def assert_close(found, expected):
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


# ----------------------------------------------------------------------------------- the vectors


@pytest.mark.parametrize(("kind", "pooling"), POOLINGS_OF_KIND)
def test_vectors_equal_transformers(folders, oracles, kind, pooling):
    encoder = encoder_of(folders[kind], pooling=pooling, batch_size=5)
    found = list(encoder.encode(TEXTS))
    assert [one.text for one in found] == TEXTS
    for one in found:
        assert one.tokens.tolist() == oracles[kind].ids(one.text)["input_ids"][0].tolist()
        assert_close(one.vectors, oracles[kind].vector(one.text, pooling))


@pytest.mark.parametrize("layer", range(LAYERS + 1))
@pytest.mark.parametrize("pooling", ["mean", "cls", "tokens"])
@pytest.mark.parametrize("kind", ["bertpt", WITHOUT_POOLER])
def test_a_layer_equals_transformers_hidden_states(folders, oracles, kind, pooling, layer):
    encoder = encoder_of(folders[kind], pooling=pooling, layer=layer)
    for one in encoder.encode(TEXTS):
        assert_close(one.vectors, oracles[kind].vector(one.text, pooling, layer))


def test_the_mean_equals_sentence_transformers_over_a_padded_batch(folders, oracles):
    texts = [text for text in TEXTS if isinstance(text, str)]
    oracle = oracles["bertpt"]
    batch = oracle.tokens(
        texts, padding=True, truncation=True, max_length=POSITIONS, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = oracle.model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1).float()
    expected = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    found = np.stack([one.vectors for one in encoder_of(folders["bertpt"]).encode(texts)])
    assert_close(found, expected.numpy())


@pytest.mark.parametrize("pooling", BATCHES_AHEAD)
def test_normalized_vectors_have_length_1_and_their_direction(folders, oracles, pooling):
    encoder = encoder_of(folders[BARE], pooling=pooling, normalize=True)
    for one in encoder.encode(TEXTS):
        plain = oracles[BARE].vector(one.text, pooling)
        assert_close(one.vectors, plain / np.linalg.norm(plain, axis=-1, keepdims=True))


@pytest.mark.parametrize("pooling", ["mean", "tokens"])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 64])
def test_order_and_batch_size_change_nothing(folders, oracles, pooling, batch_size):
    texts = random_texts(90, seed=batch_size)
    encoder = encoder_of(folders["bertpt"], pooling=pooling, batch_size=batch_size)
    found = list(encoder.encode(texts))
    assert [one.text for one in found] == texts
    for one in found:
        assert_close(one.vectors, oracles["bertpt"].vector(one.text, pooling))


def test_the_second_text_of_a_pair_is_the_second_segment(folders):
    [pair] = encoder_of(folders["bertpt"]).encode([("a cat", "a cat")])
    [swapped] = encoder_of(folders["bertpt"]).encode([("a cat a", "cat")])
    cls, sep, a, cat = (VOCAB.index(token) for token in ("[CLS]", "[SEP]", "a", "cat"))
    assert pair.tokens.tolist() == [cls, a, cat, sep, a, cat, sep]
    assert len(swapped.tokens) == len(pair.tokens)
    assert np.abs(pair.vectors - swapped.vectors).max() > 1e-3


def test_an_empty_text_is_cls_and_sep(folders):
    [empty] = encoder_of(folders["bertpt"], pooling="tokens").encode([""])
    assert [VOCAB[token] for token in empty.tokens] == ["[CLS]", "[SEP]"]
    assert empty.vectors.shape == (2, HIDDEN)
    assert not empty.is_cut


def test_no_texts_give_no_vectors(folders):
    assert list(encoder_of(folders["bertpt"]).encode([])) == []


def test_a_separator_spelled_in_a_text_is_plain_text(folders, oracles):
    text = "a [SEP] cat [MASK] [CLS]"
    [one] = encoder_of(folders["bertpt"]).encode([text])
    spelled = [VOCAB[token] for token in one.tokens]
    assert spelled[:6] == ["[CLS]", "a", "[", "sep", "]", "cat"]
    assert spelled[6:] == ["[", "mask", "]", "[", "[UNK]", "]", "[SEP]"]
    assert_close(one.vectors, oracles["bertpt"].vector(text, "mean"))


def test_a_lone_surrogate_is_the_replacement_character(folders):
    """A shell hands over bytes that are no UTF-8 as these."""
    encoder = encoder_of(folders["bertpt"])
    broken, replaced = encoder.encode(["the \udcff cat", "the \ufffd cat"])
    assert broken.tokens.tolist() == replaced.tokens.tolist()
    assert np.array_equal(broken.vectors, replaced.vectors)
    pair, replaced = encoder.encode([("a", "\ud800"), ("a", "\ufffd")])
    assert pair.text == ("a", "\ud800")
    assert np.array_equal(pair.vectors, replaced.vectors)


def test_bfloat16_is_close_and_returned_as_float32(folders, oracles):
    [one] = encoder_of(folders["bertpt"], precision="bfloat16").encode(["the cats sees a dog"])
    expected = oracles["bertpt"].vector("the cats sees a dog", "mean")
    assert one.vectors.dtype == np.float32
    assert 0 < np.abs(one.vectors - expected).max() < 0.1


# -------------------------------------------------------------------------------------------- cuts


@pytest.fixture(scope="module")
def cutters(tmp_path_factory):
    """Encoder and oracle by the number of the model's positions."""
    made = {}
    for positions in (3, 4, 5, 8, POSITIONS):
        folder = save("bertpt", tmp_path_factory.mktemp("model"), max_position_embeddings=positions)
        made[positions] = encoder_of(folder, layer=0), Oracle(folder, positions)
    return made


@given(
    positions=st.sampled_from((3, 4, 5, 8, POSITIONS)),
    first=st.integers(0, 20),
    second=st.none() | st.integers(0, 20),
)
@settings(max_examples=150, deadline=None)
def test_a_text_is_cut_as_by_transformers(cutters, positions, first, second):
    encoder, oracle = cutters[positions]
    text = " ".join((WORDS * 2)[:first])
    if second is not None:
        text = (text, " ".join((WORDS[::-1] * 2)[:second]))
    [one] = encoder.encode([text])
    expected = oracle.ids(text)["input_ids"][0]
    assert one.tokens.tolist() == expected.tolist()
    whole = oracle.ids(text, truncation=False)["input_ids"][0]
    assert one.is_cut == (len(whole) > positions)
    assert_close(one.vectors, oracle.vector(text, "mean", 0))


def test_a_text_that_fills_the_models_positions_is_not_cut(folders):
    room = POSITIONS - 2
    texts = ["a " * (room - 1), "a " * room, "a " * (room + 1)]
    found = list(encoder_of(folders["bertpt"]).encode(texts))
    assert [len(one.tokens) for one in found] == [POSITIONS - 1, POSITIONS, POSITIONS]
    assert [one.is_cut for one in found] == [False, False, True]


# ----------------------------------------------------------------------------------------- streams


class Stream:
    """Texts from a generator that counts how many were taken."""

    def __init__(self, texts):
        self.num_read = 0
        self.texts = texts

    def __iter__(self):
        for text in self.texts:
            self.num_read += 1
            yield text


@pytest.mark.parametrize("pooling", BATCHES_AHEAD)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_only_a_few_batches_are_read_ahead(folders, pooling, batch_size):
    ahead = BATCHES_AHEAD[pooling] * batch_size
    stream = Stream(["a cat"] * (3 * ahead + 1))
    encoder = encoder_of(folders["bertpt"], pooling=pooling, batch_size=batch_size)
    encoded = encoder.encode(stream)
    assert stream.num_read == 0
    num_given = 0
    for num_given, _ in enumerate(encoded, start=1):
        assert stream.num_read < num_given + ahead
    assert num_given == stream.num_read == 3 * ahead + 1


@pytest.mark.parametrize("batch_size", [1, 4, 50])
def test_every_text_is_counted_once_in_batches_of_the_size(folders, batch_size):
    sizes = []
    encoder = encoder_of(folders["bertpt"], pooling="tokens", batch_size=batch_size)
    texts = random_texts(23, seed=0)
    assert len(list(encoder.encode(texts, on_batch=sizes.append))) == 23
    assert sum(sizes) == 23
    assert max(sizes) == min(batch_size, 23)


def test_texts_of_one_length_share_a_batch(folders, monkeypatch):
    encoder = encoder_of(folders["bertpt"], batch_size=4)
    shapes = []
    forward = encoder._model.forward
    monkeypatch.setattr(
        encoder._model,
        "forward",
        lambda ids, *rest: shapes.append(tuple(ids.shape)) or forward(ids, *rest),
    )
    list(encoder.encode(["a", "a a a a a"] * 4))
    assert sorted(shapes) == [(4, 3), (4, 7)]


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", [WITHOUT_POOLER, UNTIED])
def test_the_pooler_of_a_model_without_one_is_refused(folders, kind):
    with pytest.raises(InputError, match="has no pooler") as caught:
        encoder_of(folders[kind], pooling="pooler")
    assert str(folders[kind]) in str(caught.value)


def test_a_layer_that_the_model_lacks_is_refused(folders):
    with pytest.raises(SettingError, match=f"`layer` {LAYERS + 1} .* {LAYERS} ") as caught:
        encoder_of(folders["bertpt"], layer=LAYERS + 1)
    assert caught.value.setting == "layer"


@pytest.mark.parametrize("layer", [0, LAYERS])
def test_the_pooler_of_a_layer_is_refused(layer):
    with pytest.raises(SettingError, match=r"`layer` .*pooler"):
        EncodeConfig(pooling="pooler", layer=layer)


def test_a_model_of_one_segment_encodes_texts_and_refuses_pairs(tmp_path):
    folder = save("bertpt", tmp_path, type_vocab_size=1)
    encoder = encoder_of(folder)
    [one] = encoder.encode(["a cat"])
    assert_close(one.vectors, Oracle(folder).vector("a cat", "mean"))
    with pytest.raises(InputError, match=r"type_vocab_size 1; it cannot encode pairs"):
        list(encoder.encode([("a", "cat")]))


def test_a_tokenizer_with_more_entries_than_the_model_is_refused_with_both_numbers(tmp_path):
    save("bertpt", tmp_path, vocab_size=len(VOCAB) - 1)
    with pytest.raises(MismatchError, match=f"{len(VOCAB)} entries.* {len(VOCAB) - 1}"):
        encoder_of(tmp_path)


def test_an_encoder_reports_its_sizes_and_unused_weights(folders):
    encoder = encoder_of(folders["bertpt"])
    assert (encoder.hidden_size, encoder.max_tokens) == (HIDDEN, POSITIONS)
    assert encoder.tokenizer.vocab == VOCAB
    for kind in ("bertpt", BARE, WITHOUT_POOLER):
        assert encoder_of(folders[kind]).ignored_note == ""
    assert encoder_of(folders[CLASSIFIER]).ignored_note == (
        "ignored classifier.bias, classifier.weight"
    )
