"""Examples as `bertpt inspect` shows them."""

import numpy as np
import pytest

from bertpt.build.describe import describe_example
from bertpt.data.example import Example
from bertpt.tokenizer.tokenizer import from_vocab

VOCAB = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "un", "##aff", "##able", "man", "."]


@pytest.fixture(scope="module")
def tokenizer():
    return from_vocab(VOCAB, lowercase=True, strip_accents=True)


def test_a_target_is_shown_as_the_model_sees_it_and_as_it_is(tokenizer):
    ids = np.array([2, 5, 6, 7, 8, 9, 3, 8, 5, 6, 9, 3])
    example = Example(ids, 7, 1, np.array([4, 7, 9]), np.array([4, 5, 6]))
    assert describe_example(example, tokenizer) == {
        "label": "B is random",
        "num_tokens": 12,
        "num_predictions": 3,
        "a": "unaffable [MASK|man] .",
        "b": "[un|man] un [##aff|##aff] .",
    }


def test_an_example_without_b_has_no_pair(tokenizer):
    alone = Example(np.array([2, 8, 9, 3]), 4, -100, np.array([1]), np.array([4]))
    shown = describe_example(alone, tokenizer)
    assert (shown["label"], shown["a"], shown["b"]) == ("no pair", "[MASK|man] .", "")


@pytest.mark.parametrize(("label", "words"), [(0, "B follows A"), (1, "B before A")])
def test_sentence_order_has_its_own_label(tokenizer, label, words):
    example = Example(np.array([2, 8, 3, 9, 3]), 3, label, np.array([1]), np.array([4]))
    assert describe_example(example, tokenizer, "sop")["label"] == words
