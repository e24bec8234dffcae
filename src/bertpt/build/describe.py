"""What `bertpt inspect` shows: the manifest, and examples as text."""

from typing import Any

from bertpt.build.pairs import IS_NEXT, RANDOM
from bertpt.config import InspectConfig
from bertpt.config.data import IGNORE_INDEX
from bertpt.data.dataset import Dataset
from bertpt.data.example import Example
from bertpt.rng import evenly_spaced
from bertpt.tokenizer.tokenizer import Tokenizer

LABELS = {IS_NEXT: "B follows A", RANDOM: "B is random", IGNORE_INDEX: "no pair"}
SOP_LABELS = {**LABELS, RANDOM: "B before A"}


def describe(data: Dataset, config: InspectConfig) -> dict[str, Any]:
    """Return the manifest with evenly spaced examples of a split, as `describe_example`."""
    examples = data.examples(config.split)
    rows = evenly_spaced(len(examples), config.examples)
    shown = [
        {"row": row, **describe_example(example, data.tokenizer, data.settings.objective)}
        for row, example in zip(rows, examples.take(rows), strict=True)
    ]
    return {**data.manifest, "split": config.split, "shown": shown}


def describe_example(
    example: Example, tokenizer: Tokenizer, objective: str = "nsp"
) -> dict[str, Any]:
    """Return an example as text.

    Args:
        example: uncorrupted, with its stored masks.
        tokenizer: the one that made it.
        objective: decides what the label means.

    Returns:
        label, num_tokens, num_predictions, and the segments a and b. A token to predict is written
        [seen|true], where seen is what the model sees.
    """
    words = [tokenizer.vocab[i] for i in example.input_ids]
    for position, seen in zip(example.masked_positions, example.masked_input_ids, strict=True):
        seen_word = "MASK" if seen == tokenizer.mask_id else tokenizer.vocab[seen]
        words[position] = f"[{seen_word}|{words[position]}]"
    labels = SOP_LABELS if objective == "sop" else LABELS
    return {
        "label": labels[example.next_sentence_label],
        "num_tokens": len(example.input_ids),
        "num_predictions": len(example.masked_positions),
        "a": _join_pieces(words[1 : example.b_start - 1]),
        "b": _join_pieces(words[example.b_start : -1]),
    }


def _join_pieces(pieces: list[str]) -> str:
    """Join word pieces into words, except after a marked token."""
    text = ""
    for before, piece in zip(["", *pieces], pieces, strict=False):
        continues = piece.startswith("##") and before and not before.endswith("]")
        text += piece[2:] if continues else f" {piece}"
    return text.strip()
