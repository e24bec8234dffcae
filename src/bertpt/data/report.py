"""What a person should see of a data folder: counts, warnings, examples decoded."""

from typing import Any

from bertpt.config import BuildConfig, InspectConfig, TokenizerConfig
from bertpt.data.dataset import DataFolder
from bertpt.data.documents import StoredDocuments
from bertpt.data.example import Example, evenly_spaced
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


def counts_by_split(
    parts: dict[str, StoredDocuments], written: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """What was counted in each split, turned around: a name, then the split."""
    by_split = {
        split: {
            "documents": len(part),
            "sentences": part.num_sentences,
            "tokens": part.num_tokens,
            **{key: value for key, value in written[split].items() if key != "shards"},
        }
        for split, part in parts.items()
    }
    names = next(iter(by_split.values()))
    return {name: {split: counts[name] for split, counts in by_split.items()} for name in names}


def find_warnings(
    counts: dict[str, Any],
    vocabulary: Tokenizer,
    config: BuildConfig,
    learned: TokenizerConfig | None,
) -> list[str]:
    """What a user should know about the data before training on it."""
    found = []
    num_documents = sum(counts["documents"].values())
    if learned and len(vocabulary.vocab) < learned.vocab_size:
        found.append(
            f"the text gave {len(vocabulary.vocab)} vocabulary entries, fewer than the "
            f"{learned.vocab_size} asked for"
        )
    if config.valid_fraction and not counts["documents"]["valid"]:
        found.append(f"{num_documents} documents are too few to hold any out, so valid/ is empty")
    if single := counts["single_sentence_documents"]:
        found.append(
            f"{single} of {num_documents} documents have one sentence and give random pairs only; "
            "is there a blank line after every line?"
        )
    if counts["unknown_tokens"] > 0.01 * counts["tokens"]["train"]:
        share = counts["unknown_tokens"] / counts["tokens"]["train"]
        found.append(f"{share:.1%} of the tokens are [UNK]; the vocabulary does not fit the text")
    for key, what in (
        ("empty_sentences", "sentences were empty after cleaning and left out"),
        ("replaced_lines", "lines were not valid UTF-8; the bad bytes became U+FFFD"),
        ("repeated_files", "inputs were given more than once, and read once"),
        ("nul_lines", "lines held NUL characters, which were removed"),
        ("surrogate_rows", "rows held half a surrogate pair, which became U+FFFD"),
        ("empty_rows", "rows held no text and were left out"),
        ("cut_sentences", "times a sentence of more than 65,536 characters was cut"),
        ("json_like_files", "inputs begin as JSONL but were read as text; give .jsonl or jsonl:-"),
    ):
        if counts[key]:
            found.append(f"{counts[key]} {what}")
    return found
