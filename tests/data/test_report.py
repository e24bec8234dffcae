import numpy as np

from bertpt.data.dataset import Example
from bertpt.data.report import describe_example
from bertpt.data.tokenizer import from_vocab

VOCAB = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "un", "##aff", "##able", "man", "."]


def test_an_example_is_spelled_with_what_is_seen_and_what_is_true():
    tokenizer = from_vocab(VOCAB, lowercase=True, strip_accents=True)
    ids = np.array([2, 5, 6, 7, 8, 9, 3, 8, 5, 6, 9, 3])
    example = Example(ids, 7, 1, np.array([4, 7, 9]), np.array([4, 5, 6]))
    assert describe_example(example, tokenizer) == {
        "label": "B is random",
        "num_tokens": 12,
        "num_predictions": 3,
        "a": "unaffable [MASK|man] .",
        "b": "[un|man] un [##aff|##aff] .",
    }


def test_an_example_without_a_pair_says_so():
    tokenizer = from_vocab(VOCAB, lowercase=True, strip_accents=True)
    alone = Example(np.array([2, 8, 9, 3]), 4, -100, np.array([1]), np.array([4]))
    shown = describe_example(alone, tokenizer)
    assert (shown["label"], shown["a"], shown["b"]) == ("no pair", "[MASK|man] .", "")
