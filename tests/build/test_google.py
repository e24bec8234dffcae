"""Google's script as the oracle: its recorded output, and its algorithm written for strings."""

import hashlib
import json
import random
import tempfile
import tracemalloc
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from bertpt.build.documents import StoredDocuments
from bertpt.build.google import google_examples
from bertpt.build.pairs import IS_NEXT, RANDOM
from bertpt.corpus.corpus import Corpus
from bertpt.tokenizer.tokenizer import SPECIAL_TOKENS, from_vocab, load_tokenizer

# Special tokens not first, since Google draws replacements from all entries alike.
VOCAB = ["a", "##a", "b", "##b", *SPECIAL_TOKENS, "c", "##c", "d", "e", "##", "##d"]
SETTINGS = {
    "seq_len": 24,
    "short_seq_prob": 0.1,
    "masked_lm_prob": 0.15,
    "max_predictions_per_seq": 5,
    "dupe_factor": 1,
    "whole_word": False,
    "seed": 12345,
}


def instances(texts, *, vocab=VOCAB, scratch=None, **settings):
    """Make examples of documents, given as lists of sentences, which are lists of tokens."""
    vocabulary = from_vocab(vocab, lowercase=False, strip_accents=False)
    documents = stored(texts, vocab)
    scratch = scratch or Path(tempfile.gettempdir())
    settings = SETTINGS | settings
    return list(google_examples(documents, vocabulary=vocabulary, scratch=scratch, **settings))


def stored(texts, vocab):
    return StoredDocuments.from_lists(
        [[[vocab.index(t) for t in s] for s in text] for text in texts]
    )


def row(example):
    """An example in plain lists, as Google writes it: what the model sees, and the labels."""
    ids = example.input_ids.tolist()
    positions = example.masked_positions.tolist()
    seen = list(ids)
    for position, token in zip(positions, example.masked_input_ids.tolist(), strict=True):
        seen[position] = token
    return {
        "input_ids": seen,
        "b_start": example.b_start,
        "next_sentence_label": example.next_sentence_label,
        "masked_positions": positions,
        "labels": [ids[position] for position in positions],
    }


# ------------------------------------------------------------- what Google's script really wrote

# SHA-256 of the rows as json.dumps(rows, separators=(",", ":")), with the keys in `row`'s order.
RECORDED = {
    (1, False): "206d2b93024c84a1c2c06aa0540db6db7114fcc417f02c6eec49b42822143aab",
    (5, False): "a1f92c24816b524c1c850cec14c0ad6173b668c2d0c1fbc73d167553961adb3d",
    (10, False): "4ad9ef488c156d5437964bf083e6ae387a46cd46b9fcfed86433eb514f1a07c6",
    (1, True): "71d290f1cefab9aba12b66b41dc0302ca16f26a087f4625a70215b990fcd9854",
    (5, True): "9e47f2d46ab2ad173f0313a94f60884fe6f723d259b1bb00d9de53f6af7fa232",
    (10, True): "e766346cd5e4f20c642f09bc7aaa6649b13fff1989beb1ce5c19272a3d7fda0c",
}


@pytest.mark.parametrize(("dupe_factor", "whole_word"), RECORDED)
def test_the_examples_are_those_of_googles_script(shared, tmp_path, dupe_factor, whole_word):
    path = str(shared / "corpora" / "google_sample_text.txt")
    vocabulary = load_tokenizer(shared / "vocab" / "bert-base-uncased.txt")
    texts = Corpus([path], sentence_per_line=True)
    documents = StoredDocuments.from_lists(
        [vocabulary.encode_batch(sentences) for sentences in texts]
    )
    found = google_examples(
        documents,
        seq_len=128,
        short_seq_prob=0.1,
        masked_lm_prob=0.15,
        max_predictions_per_seq=20,
        dupe_factor=dupe_factor,
        whole_word=whole_word,
        seed=12345,
        vocabulary=vocabulary,
        scratch=tmp_path,
    )
    text = json.dumps([row(example) for example in found], separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == RECORDED[dupe_factor, whole_word]


# ---------------------------------------------------------------- the algorithm, step by step


def published(
    texts,
    *,
    seq_len,
    short_seq_prob,
    masked_lm_prob,
    max_predictions_per_seq,
    dupe_factor,
    whole_word,
    seed,
):
    """The algorithm of google-research/bert: strings, lists, one token at a time."""
    rng = random.Random(seed)
    texts = list(texts)
    rng.shuffle(texts)
    rows = []
    for _ in range(dupe_factor):
        for number in range(len(texts)):
            for a, b, label in published_pairs(texts, number, seq_len - 3, short_seq_prob, rng):
                tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
                wanted = min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))
                masks = published_masks(tokens, wanted, whole_word, rng)
                seen = [masks.get(i, token) for i, token in enumerate(tokens)]
                rows.append(
                    {
                        "input_ids": [VOCAB.index(token) for token in seen],
                        "b_start": len(a) + 2,
                        "next_sentence_label": label,
                        "masked_positions": sorted(masks),
                        "labels": [VOCAB.index(tokens[i]) for i in sorted(masks)],
                    }
                )
    rng.shuffle(rows)
    return rows


def published_pairs(texts, number, room, short_seq_prob, rng):
    target = rng.randint(2, room) if rng.random() < short_seq_prob else room
    text, chunk, i = texts[number], [], 0
    while i < len(text):
        chunk.append(text[i])
        if i == len(text) - 1 or sum(map(len, chunk)) >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a, b = list(chain(*chunk[:a_end])), []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                for _ in range(10):
                    other = rng.randint(0, len(texts) - 1)
                    if other != number:
                        break
                for sentence in texts[other][rng.randint(0, len(texts[other]) - 1) :]:
                    b = b + sentence
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - a_end
            else:
                b = list(chain(*chunk[a_end:]))
            while len(a) + len(b) > room:
                longer = a if len(a) > len(b) else b
                longer.pop(0 if rng.random() < 0.5 else -1)
            yield a, b, 1 if is_random else 0
            chunk = []
        i += 1


def published_masks(tokens, wanted, whole_word, rng):
    candidates = []
    for i, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if whole_word and len(candidates) >= 1 and token.startswith("##"):
            candidates[-1].append(i)
        else:
            candidates.append([i])
    rng.shuffle(candidates)
    masks = {}
    for indexes in candidates:
        if len(masks) >= wanted:
            break
        if len(masks) + len(indexes) > wanted:
            continue
        for i in indexes:
            if rng.random() < 0.8:
                masks[i] = "[MASK]"
            elif rng.random() < 0.5:
                masks[i] = tokens[i]
            else:
                masks[i] = VOCAB[rng.randint(0, len(VOCAB) - 1)]
    return masks


sentences = st.lists(
    st.sampled_from([token for token in VOCAB if token not in ("[CLS]", "[SEP]")]),
    min_size=1,
    max_size=12,
)
corpora = st.lists(st.lists(sentences, min_size=1, max_size=8), max_size=6)
settings = st.fixed_dictionaries(
    {
        "seq_len": st.integers(5, 60),
        "short_seq_prob": st.floats(0, 1),
        "masked_lm_prob": st.floats(0.01, 1),
        "max_predictions_per_seq": st.integers(1, 20),
        "dupe_factor": st.integers(1, 3),
        "whole_word": st.booleans(),
        "seed": st.integers(0),
    }
)


@given(texts=corpora, settings=settings)
def test_every_example_is_that_of_the_published_algorithm(texts, settings):
    assert [row(e) for e in instances(texts, **settings)] == published(texts, **settings)


# ------------------------------------------------------------------------------------ properties


@limits(max_examples=25)
@given(texts=corpora, settings=settings)
def test_every_example_keeps_the_rules(texts, settings):
    cls, sep = VOCAB.index("[CLS]"), VOCAB.index("[SEP]")
    for example in instances(texts, **settings):
        ids, positions = example.input_ids, example.masked_positions
        assert len(ids) <= settings["seq_len"]
        assert ids[0] == cls
        assert np.flatnonzero(ids == sep).tolist() == [example.b_start - 1, len(ids) - 1]
        assert 3 <= example.b_start < len(ids) - 1
        assert (np.diff(positions.astype(int)) > 0).all()
        assert not np.isin(ids[positions], [cls, sep]).any()
        assert len(positions) == len(example.masked_input_ids)
        assert len(positions) <= settings["max_predictions_per_seq"]
        assert settings["whole_word"] or len(positions) >= 1


def numbered(*documents):
    """Documents of distinct tokens, given by the lengths of their sentences; the vocabulary."""
    numbers = iter(range(10**9))
    texts = [[[f"w{next(numbers)}" for _ in range(n)] for n in lengths] for lengths in documents]
    words = [token for text in texts for sentence in text for token in sentence]
    return texts, [*SPECIAL_TOKENS, *words]


# Ten draws of a random document among ten hit A's own all ten times in 10^10 pairs.
numbered_corpora = st.lists(
    st.lists(st.integers(1, 30), min_size=1, max_size=9), min_size=10, max_size=12
).map(lambda documents: numbered(*documents))


@limits(max_examples=25)
@given(corpus=numbered_corpora, seed=st.integers(0))
def test_the_label_says_whether_b_follows_a(corpus, seed):
    texts, vocab = corpus
    owner = {t: number for number, text in enumerate(texts) for s in text for t in s}
    for example in instances(texts, vocab=vocab, seed=seed):
        a, b = example.input_ids[1 : example.b_start - 1], example.input_ids[example.b_start : -1]
        assert (np.diff(a.astype(int)) == 1).all(), "A is consecutive text"
        assert (np.diff(b.astype(int)) == 1).all(), "B is consecutive text"
        owners = [owner[vocab[segment[0]]] for segment in (a, b)]
        if example.next_sentence_label == IS_NEXT:
            assert owners[0] == owners[1]
            assert b[0] > a[-1]
        else:
            assert example.next_sentence_label == RANDOM
            assert owners[0] != owners[1]


@limits(max_examples=25)
@given(corpus=numbered_corpora, dupe_factor=st.integers(1, 3), seed=st.integers(0))
def test_every_pass_uses_every_sentence_if_nothing_is_truncated(corpus, dupe_factor, seed):
    texts, vocab = corpus
    # So long that no pair of a document of 9 x 30 tokens and another is ever cut.
    found = instances(texts, vocab=vocab, seq_len=1000, dupe_factor=dupe_factor, seed=seed)
    times = np.zeros(len(vocab), int)
    for example in found:
        end = example.b_start if example.next_sentence_label == RANDOM else None
        times[example.input_ids[:end]] += 1
    assert (times[len(SPECIAL_TOKENS) :] == dupe_factor).all()


def test_another_seed_gives_other_instances():
    texts, vocab = numbered([5] * 20, [7] * 20)
    first, second = (instances(texts, vocab=vocab, seed=seed) for seed in range(2))
    assert [row(e) for e in first] != [row(e) for e in second]


def test_the_instances_of_the_documents_are_mixed():
    texts, vocab = numbered([20] * 30, [20] * 30)
    firsts = [e.input_ids[1] for e in instances(texts, vocab=vocab, seq_len=30)]
    is_first = [vocab[i] in chain(*texts[0]) for i in firsts]
    assert sum(x != y for x, y in pairwise(is_first)) > 10


@limits(max_examples=25)
@given(texts=corpora, seed=st.integers(0), prob=st.floats(0.01, 1))
def test_all_pieces_of_a_word_are_predicted_or_none(texts, seed, prob):
    for example in instances(texts, whole_word=True, masked_lm_prob=prob, seed=seed):
        masked = set(example.masked_positions.tolist())
        tokens = [VOCAB[i] for i in example.input_ids]
        for position in range(2, len(tokens)):
            if tokens[position].startswith("##") and tokens[position - 1] not in ("[CLS]", "[SEP]"):
                assert (position in masked) == (position - 1 in masked)


def test_an_example_whose_words_are_all_too_long_has_nothing_to_predict():
    (example,) = instances([[["a", "##b", "##c", "##d"]]], whole_word=True)
    assert len(example.input_ids) == 11
    assert len(example.masked_positions) == len(example.masked_input_ids) == 0


def test_a_single_document_is_paired_with_itself():
    texts, vocab = numbered([6] * 40)
    found = instances(texts, vocab=vocab)
    assert {e.next_sentence_label for e in found} == {IS_NEXT, RANDOM}


def test_replacements_are_drawn_from_all_entries():
    """As Google does it: 80% [MASK], 10% the token itself, 10% any entry of the vocabulary."""
    found = instances([[["e"] * 10] * 400] * 2, masked_lm_prob=1, dupe_factor=10)
    seen = np.concatenate([e.masked_input_ids for e in found])
    share = np.bincount(seen, minlength=len(VOCAB)) / len(seen)
    assert len(seen) > 3000
    assert share[VOCAB.index("[MASK]")] == pytest.approx(0.8 + 0.1 / len(VOCAB), abs=0.02)
    assert share[VOCAB.index("e")] == pytest.approx(0.1 + 0.1 / len(VOCAB), abs=0.02)
    assert (share > 0).all()


def test_no_documents_give_no_instances():
    assert instances([]) == []


def test_every_document_is_reported_once_a_pass():
    calls = []
    instances([[["a"]]] * 3, dupe_factor=4, on_document=lambda: calls.append(1))
    assert len(calls) == 12


# ---------------------------------------------------------------------------------- the disk


def test_ids_beyond_sixteen_bits_are_stored():
    texts, vocab = numbered([3, 3], [3, 3])
    vocab += [f"x{i}" for i in range(70_000)] + ["last"]
    texts[0][0] = ["last"] * 3
    found = instances(texts, vocab=vocab, dupe_factor=5)
    assert max(e.input_ids.max() for e in found) == len(vocab) - 1


def test_the_scratch_folder_is_empty_afterwards(tmp_path):
    texts, vocab = numbered([20] * 30, [20] * 30)
    assert len(instances(texts, vocab=vocab, scratch=tmp_path)) > 10
    assert list(tmp_path.iterdir()) == []
    vocabulary = from_vocab(vocab, lowercase=False, strip_accents=False)
    documents = stored(texts, vocab)
    left = google_examples(documents, vocabulary=vocabulary, scratch=tmp_path, **SETTINGS)
    next(left)
    left.close()
    assert list(tmp_path.iterdir()) == []


def test_examples_are_not_kept_in_memory(tmp_path):
    """As arrays of int64 they would take 8 bytes a token, as lists more."""
    documents = StoredDocuments(
        np.full(80_000, VOCAB.index("e")),
        np.arange(0, 80_001, 100),
        np.array([0, 400, 800]),
    )
    vocabulary = from_vocab(VOCAB, lowercase=False, strip_accents=False)
    tracemalloc.start()
    try:
        found = google_examples(
            documents,
            vocabulary=vocabulary,
            scratch=tmp_path,
            **{**SETTINGS, "seq_len": 1000, "short_seq_prob": 0},
        )
        num_tokens = sum(len(example.input_ids) for example in found)
        assert num_tokens > 100_000
        assert tracemalloc.get_traced_memory()[1] < 2 * num_tokens
    finally:
        tracemalloc.stop()
