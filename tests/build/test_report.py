"""Counts and warnings of a build."""

import gzip

import numpy as np
import pytest

from bertpt.build.build import build_data
from bertpt.build.report import find_warnings, length_histogram, share
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.tokenizer.tokenizer import from_vocab

VOCAB = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "un", "##aff", "##able", "man", "."]


# ---------------------------------------------------------------------------------------- figures


def test_a_histogram_is_that_of_a_count_by_hand():
    lengths = {"train": [5, 16, 17, 32, 33, 128, 128], "valid": []}
    counts = {name: np.bincount(np.array(n, int), minlength=129) for name, n in lengths.items()}
    assert length_histogram(counts) == {
        "up_to": [16, 32, 48, 64, 80, 96, 112, 128],
        "train": [2, 2, 1, 0, 0, 0, 0, 2],
        "valid": [0] * 8,
    }


@pytest.mark.parametrize("longest", [5, 7, 8, 9, 15, 100, 511, 65_535])
def test_the_bins_of_a_histogram_are_equal_and_hold_every_length_once(longest):
    histogram = length_histogram({"train": np.array([0] + [1] * longest)})
    up_to, widths = histogram["up_to"], np.diff([0, *histogram["up_to"]])
    assert up_to[-1] == longest
    assert len(up_to) == min(8, longest)
    assert widths.min() >= max(1, widths.max() - 1)
    assert histogram["train"] == widths.tolist()


def test_a_share_of_nothing_is_none():
    assert share(1, 4) == 0.25
    assert share(0, 0) is None


# --------------------------------------------------------------------------------------- warnings

NONE_FOUND = (
    *("single_sentence_documents", "empty_sentences", "replaced_lines", "repeated_files"),
    *("nul_lines", "surrogate_rows", "empty_rows", "cut_sentences", "row_like_files"),
    *("cut_lines", "wrapped_files", "gutenberg_files"),
)
SOUND = {
    "documents": {"train": 10, "valid": 2},
    "sentences": {"train": 1000, "valid": 200},
    "examples": {"train": 100, "valid": 20},
    "example_tokens": {"train": 10_000, "valid": 2_000},
    "masked_tokens": {"train": 1_500, "valid": 300},
    "longest_document": 100,
    "unknown_share": 0.0,
    "continuing_share": 0.1,
    "characters_per_token": 4.0,
    "duplicate_sentences_share": 0.0,
    "capped_examples": {"train": 0, "valid": 0},
    **dict.fromkeys(NONE_FOUND, 0),
}


def warnings(config=None, **counts):
    tokenizer = from_vocab(VOCAB, lowercase=True, strip_accents=True)
    return find_warnings({**SOUND, **counts}, tokenizer, config or BuildConfig(), None)


def test_sound_data_gives_no_warning():
    assert warnings() == []


@pytest.mark.parametrize(("repeated", "warned"), [(0.2, False), (0.2001, True), (None, False)])
def test_over_a_fifth_of_duplicates_gives_a_warning(repeated, warned):
    assert any("repeat an earlier" in w for w in warnings(duplicate_sentences_share=repeated)) == (
        warned
    )


@pytest.mark.parametrize(("unknown", "warned"), [(0.01, False), (0.0101, True), (None, False)])
def test_over_a_hundredth_of_unknown_tokens_gives_a_warning(unknown, warned):
    found = warnings(unknown_share=unknown)
    assert any("[UNK]" in w and "does not fit the text" in w for w in found) == warned


@pytest.mark.parametrize(
    ("characters", "continuing", "warned"),
    [
        (1.99, 0.51, True),
        (2.0, 0.51, False),
        (1.99, 0.5, False),
        (1.0, 0.0, False),
        (1.99, None, False),
        (None, None, False),
    ],
)
def test_words_that_fall_apart_into_characters_give_a_warning(characters, continuing, warned):
    found = warnings(characters_per_token=characters, continuing_share=continuing)
    assert any("parts of words" in w and "learn one" in w for w in found) == warned


@pytest.mark.parametrize(
    ("documents", "sentences", "longest", "warned"),
    [
        # more than a thousand sentences a document
        (12, 12_000, 1_001, False),
        (12, 12_001, 1_001, True),
        # one document with half of all, and more than a thousand
        (12, 2_002, 1_001, True),
        (12, 2_003, 1_001, False),
        (12, 1_100, 1_000, False),
        (2, 40, 30, False),
    ],
)
def test_missing_blank_lines_give_a_warning(documents, sentences, longest, warned):
    found = warnings(
        documents={"train": documents - 1, "valid": 1},
        sentences={"train": sentences - 10, "valid": 10},
        longest_document=longest,
    )
    assert any("blank lines" in w for w in found) == warned


def test_a_cap_that_limits_examples_gives_a_warning_with_the_rate():
    config = BuildConfig(max_predictions_per_seq=12, seq_len=100)
    binding = {
        "capped_examples": {"train": 75, "valid": 0},
        "masked_tokens": {"train": 1_130, "valid": 0},
    }
    [warning] = warnings(config, **binding)
    for words in (
        "`max_predictions_per_seq` 12",
        "75.0% of",
        "11.3% of",
        "15.0%",
        "raise it to 15",
    ):
        assert words in warning
    assert warnings(config) == []


@pytest.mark.parametrize(
    ("objective", "gives_random"), [("nsp", True), ("sop", False), ("mlm", False)]
)
def test_single_sentence_documents_give_a_warning_with_their_effect(objective, gives_random):
    [warning] = warnings(BuildConfig(objective=objective), single_sentence_documents=1)
    assert "1 of 12 documents have one sentence" in warning
    assert ("random pairs only" in warning) == gives_random
    assert "blank line after every line" in warning


@pytest.mark.parametrize(
    ("corpus", "vocabulary", "fits"),
    [
        ("ar.xquad", None, True),
        ("th.xquad", None, True),
        ("zh.songci", "bert-base-chinese", True),
        ("en.wikitext2_test", "bert-base-uncased", True),
        ("th.xquad", "bert-base-uncased", False),
        ("zh.songci", "bert-base-uncased", False),
        ("ru.xquad", "bert-base-chinese", False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("hi.xquad", None, True),
                ("ru.xquad", None, True),
                ("ar.xquad", "bert-base-uncased", False),
                ("hi.xquad", "bert-base-uncased", False),
                ("ru.xquad", "bert-base-uncased", False),
            )
        ),
    ],
)
def test_only_a_vocabulary_of_another_language_gives_a_warning(
    shared, tmp_path, corpus, vocabulary, fits
):
    with gzip.open(shared / f"corpora/{corpus}.txt.gz", "rt", encoding="utf-8") as file:
        (tmp_path / "text.txt").write_text(file.read(1 << 16), encoding="utf-8")
    manifest = build_data(
        [str(tmp_path / "text.txt")],
        tmp_path / "data",
        tokenizer_path=shared / f"vocab/{vocabulary}.txt" if vocabulary else None,
        config=BuildConfig(sentence_per_line=True),
        tokenizer_config=TokenizerConfig(vocab_size=1500, strip_accents=False),
    )
    warned = any("the vocabulary does not fit the text" in w for w in manifest["warnings"])
    assert warned == (not fits)
