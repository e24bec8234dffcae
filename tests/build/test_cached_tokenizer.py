"""Ids from cached chunks against those of the tokenizer for the full text."""

import gzip
import random
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bertpt.build.cached_tokenizer import ChunkTokenizer
from bertpt.config import TokenizerConfig
from bertpt.tokenizer.tokenizer import SPECIAL_TOKENS, Tokenizer, from_vocab, load_tokenizer
from bertpt.tokenizer.train import learn

WORDS = [
    "the",
    "cat",
    "##s",
    "ab",
    "##b",
    "\u03c3\u03b1\u03c2",
    "##\u03c2",
    "e",
    "日",
    "한",
    ".",
    "[",
    "]",
]


def tokenizer_of(*, lowercase=True, strip_accents=True):
    vocab = [*SPECIAL_TOKENS, *WORDS]
    return from_vocab(vocab, lowercase=lowercase, strip_accents=strip_accents)


def assert_same(chunks, tokens, texts):
    ids, lengths = chunks.encode(pa.array(texts, pa.string()))
    expected = tokens.encode_batch(texts)
    assert lengths.tolist() == [len(one) for one in expected]
    assert ids.tolist() == [i for one in expected for i in one]
    assert ids.dtype == np.int32


# Letters that depend on case, accents or neighbours; many kinds of space; what cleaning removes.
CHARACTERS = st.sampled_from(
    "abceE .,;-[]#\u2014\u201d'\t\u00a0\u3000\u2028\u200d\ufeff\u0000\u0007\ufffd"
    "\u03a3\u03c3\u03c2\u0391\u0301\u0308\u0345\u00e9\u0130\u0131\u00df\ufb01"
    "한국\u1112\u1161\u11ab日本😀"
)
TEXTS = st.lists(
    st.one_of(st.text(CHARACTERS), st.text(), st.sampled_from(["[SEP]", "[MASK] a", " ", ""])),
    max_size=8,
)


@pytest.mark.parametrize(
    ("lowercase", "strip_accents"), [(True, True), (True, False), (False, False)]
)
def test_any_text_gets_the_ids_of_the_tokenizer(lowercase, strip_accents):
    tokens = tokenizer_of(lowercase=lowercase, strip_accents=strip_accents)
    chunks = ChunkTokenizer(tokens)

    @given(TEXTS)
    def check(texts):
        assert_same(chunks, tokens, texts)

    check()


@given(st.lists(TEXTS, max_size=6), st.integers(0, 5))
def test_clearing_the_cache_changes_no_id(batches, max_chunks):
    tokens = tokenizer_of()
    chunks = ChunkTokenizer(tokens, max_chunks=max_chunks)
    for texts in batches:
        assert_same(chunks, tokens, texts)


def test_the_cache_exceeds_its_limit_by_one_batch_at_most():
    tokens = tokenizer_of()
    chunks = ChunkTokenizer(tokens, max_chunks=10)
    for start in range(0, 200, 4):
        chunks.encode([f"w{n}" for n in range(start, start + 4)])
        assert len(chunks._numbers) <= 14


def test_a_word_of_over_100_characters_is_unknown():
    tokens = tokenizer_of()
    for length in (99, 100, 101, 150):
        assert_same(ChunkTokenizer(tokens), tokens, ["a" + "b" * (length - 1), "the cats"])


def test_each_distinct_chunk_is_tokenized_once(monkeypatch):
    tokens = tokenizer_of()
    asked = []
    encode = Tokenizer.encode_batch
    monkeypatch.setattr(
        Tokenizer, "encode_batch", lambda self, texts: asked.extend(texts) or encode(self, texts)
    )
    chunks = ChunkTokenizer(tokens)
    chunks.encode(["the cat the cats", "cats the"])
    chunks.encode(["the cat", "a"])
    assert sorted(asked) == ["a", "cat", "cats", "the"]


def test_a_tokenizer_that_does_not_split_at_spaces_gets_full_texts():
    tokens = tokenizer_of()
    tokens.backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("c", "isolated")
    assert not tokens.splits_at_spaces
    assert_same(ChunkTokenizer(tokens), tokens, ["the cat", "", "the cats the"])
    added = tokenizer_of()
    added.backend.add_tokens(["the cat"])
    added = Tokenizer(added.backend)
    assert not added.splits_at_spaces
    assert_same(ChunkTokenizer(added), added, ["the cat sees", "the", "cat"])


@pytest.mark.parametrize(
    ("lowercase", "lines_per_text"),
    [
        (True, 30),
        pytest.param(True, 400, marks=pytest.mark.slow),
        pytest.param(False, 400, marks=pytest.mark.slow),
    ],
)
def test_real_texts_of_every_language_get_the_same_ids(shared, lowercase, lines_per_text):
    lines = []
    for path in sorted((shared / "corpora").glob("*.txt.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            first = [line.rstrip("\n") for line in islice(file, 50 * lines_per_text)]
        lines += random.Random(1).sample(first, min(lines_per_text, len(first)))
    assert len(lines) > 10 * lines_per_text
    vocab_size = max(4000, 30 * lines_per_text)
    learned = learn(lines, TokenizerConfig(vocab_size=vocab_size, lowercase=lowercase))
    for tokens in (learned, load_tokenizer(shared / "vocab/bert-base-chinese.txt")):
        assert_same(ChunkTokenizer(tokens), tokens, lines)
