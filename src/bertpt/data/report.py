"""What a person should see of a data folder: a few examples, decoded, their masks shown."""

from typing import Any

from bertpt.config import InspectConfig
from bertpt.data.dataset import DataFolder, Example, evenly_spaced
from bertpt.data.pairs import IS_NEXT, NO_PAIR, RANDOM
from bertpt.data.tokenizer import Tokenizer

LABELS = {IS_NEXT: "B follows A", RANDOM: "B is random", NO_PAIR: "no pair"}


def describe(data: DataFolder, config: InspectConfig) -> dict[str, Any]:
    """The manifest, and evenly spaced examples of a split as `describe_example` shows them."""
    examples = data.examples(config.split)
    rows = evenly_spaced(len(examples), config.examples)
    shown = [
        {"row": row, **describe_example(example, data.tokenizer)}
        for row, example in zip(rows, examples.take(rows), strict=True)
    ]
    return {**data.manifest, "split": config.split, "shown": shown}


def describe_example(example: Example, tokenizer: Tokenizer) -> dict[str, Any]:
    """An example as text.

    Returns:
        label, num_tokens, num_predictions, and a and b: the segments, each token to predict written
        as [seen|true], where seen is what the model sees there.
    """
    words = [tokenizer.vocab[i] for i in example.input_ids]
    for position, seen in zip(example.masked_positions, example.masked_input_ids, strict=True):
        seen_word = "MASK" if seen == tokenizer.mask_id else tokenizer.vocab[seen]
        words[position] = f"[{seen_word}|{words[position]}]"
    return {
        "label": LABELS[example.next_sentence_label],
        "num_tokens": len(example.input_ids),
        "num_predictions": len(example.masked_positions),
        "a": _joined(words[1 : example.b_start - 1]),
        "b": _joined(words[example.b_start : -1]),
    }


def _joined(words: list[str]) -> str:
    """Word pieces put together again, except at a marked token."""
    text = ""
    for before, word in zip(["", *words], words, strict=False):
        glued = word.startswith("##") and before and not before.endswith("]")
        text += word[2:] if glued else f" {word}"
    return text.strip()
