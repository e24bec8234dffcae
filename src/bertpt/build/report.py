"""What a person should see of a data folder: counts, warnings, examples decoded."""

from typing import Any

import numpy as np

from bertpt.build.documents import StoredDocuments
from bertpt.build.pairs import IS_NEXT, NO_PAIR, RANDOM
from bertpt.config import BuildConfig, InspectConfig, TokenizerConfig
from bertpt.data.dataset import Dataset
from bertpt.data.example import Example
from bertpt.errors import InputError
from bertpt.rng import evenly_spaced
from bertpt.tokenizer.tokenizer import Tokenizer

NUM_BINS = 8  # of the histogram of lengths

# When to warn.
MAX_UNKNOWN = 0.01
MIN_CHARACTERS = 2.0  # a token
MAX_CONTINUING = 0.5
MAX_DUPLICATES = 0.2
LONG_DOCUMENT = 1000  # sentences

LABELS = {IS_NEXT: "B follows A", RANDOM: "B is random", NO_PAIR: "no pair"}
SOP_LABELS = {**LABELS, RANDOM: "B stood before A"}


def describe(data: Dataset, config: InspectConfig) -> dict[str, Any]:
    """The manifest, and evenly spaced examples of a split as `describe_example` shows them."""
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
    """An example as text.

    Args:
        example: uncorrupted, and its stored masks.
        tokenizer: that made it.
        objective: which decides what its label says.

    Returns:
        label, num_tokens, num_predictions, and a and b: the segments, each token to predict written
        as [seen|true], where seen is what the model sees there.
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
            **written[split],
        }
        for split, part in parts.items()
    }
    names = next(iter(by_split.values()))
    return {name: {split: counts[name] for split, counts in by_split.items()} for name in names}


def derived_counts(
    counts: dict[str, Any],
    *,
    token_counts: np.ndarray,
    lengths: dict[str, np.ndarray],
    vocabulary: Tokenizer,
    config: BuildConfig,
) -> dict[str, Any]:
    """The shares, means and the histogram that follow from what was counted.

    Args:
        counts: of each split and of the text.
        token_counts: how often each id occurs in the training documents.
        lengths: how many examples have each number of tokens, from 0 on, by split.
        vocabulary: what made the ids.
        config: how the examples were made.

    Returns:
        Shares between 0 and 1, and `None` where there is nothing to share:

        - characters_per_token: of all documents, spaces counted.
        - unknown_share: of the training documents' tokens.
        - continuing_share: of their tokens, pieces that go on with a word (`None`, too, where the
          tokenizer does not mark them).
        - duplicate_sentences_share, duplicate_documents_share: of those of all documents.
        - truncated_share: of the sentences in pairs, by split.
        - majority_baseline: the share of the commoner label, by split.
        - masked_tokens_per_sequence: mean, by split.
        - slots_filled: share of the positions that hold a token, by split.
        - capped_examples: those with fewer tokens to predict for `max_predictions_per_seq`.
        - length_histogram: up_to, the greatest length in each bin, and the examples, by split.
    """
    num_examples = counts["examples"]
    return {
        "characters_per_token": share(counts["characters"], sum(counts["tokens"].values())),
        "unknown_share": share(counts["unknown_tokens"], counts["tokens"]["train"]),
        "continuing_share": _continuing_share(token_counts, vocabulary),
        **{
            f"duplicate_{what}_share": share(
                counts[f"duplicate_{what}"], sum(counts[what].values())
            )
            for what in ("sentences", "documents")
        },
        "truncated_share": {
            split: share(truncated, counts["paired_sentences"][split])
            for split, truncated in counts["truncated_sentences"].items()
        },
        "majority_baseline": {
            split: share(max(labels.values()), sum(labels.values()))
            for split, labels in counts["label_counts"].items()
        },
        "masked_tokens_per_sequence": {
            split: share(masked, num_examples[split])
            for split, masked in counts["masked_tokens"].items()
        },
        "slots_filled": {
            split: share(filled, num_examples[split] * config.seq_len)
            for split, filled in counts["example_tokens"].items()
        },
        "capped_examples": {
            split: _num_capped(of_split, config) for split, of_split in lengths.items()
        },
        "length_histogram": length_histogram(lengths),
    }


def share(part: int, whole: int) -> float | None:
    """What part of the whole it is; `None` where there is no whole."""
    return part / whole if whole else None


def _continuing_share(token_counts: np.ndarray, vocabulary: Tokenizer) -> float | None:
    try:
        continues = vocabulary.continues
    except InputError:
        return None
    return share(int(token_counts[continues].sum()), int(token_counts.sum()))


def _num_capped(lengths: np.ndarray, config: BuildConfig) -> int:
    cap = config.max_predictions_per_seq
    wanted = np.rint(np.arange(len(lengths)) * config.masked_lm_prob)
    return int(lengths[wanted > cap].sum()) if cap else 0


def length_histogram(lengths: dict[str, np.ndarray]) -> dict[str, list[int]]:
    """Examples by length, in bins of equal width.

    Args:
        lengths: how many examples have each number of tokens, from 0 to the greatest, by split.

    Returns:
        up_to: the greatest length in each bin; and under each split's name how many are in it.
    """
    longest = len(next(iter(lengths.values()))) - 1
    bins = min(NUM_BINS, longest)
    up_to = [-(-longest * i // bins) for i in range(1, bins + 1)]
    starts = [0, *(end + 1 for end in up_to[:-1])]
    counted = {
        split: np.add.reduceat(of_split, starts).tolist() for split, of_split in lengths.items()
    }
    return {"up_to": up_to, **counted}


def find_warnings(
    counts: dict[str, Any],
    vocabulary: Tokenizer,
    config: BuildConfig,
    learned: TokenizerConfig | None,
    *,
    is_sample: bool = False,
) -> list[str]:
    """What a user should know about the data before training on it, and what can be done.

    Of a sample, what more text would mend is not told.
    """
    found = []
    num_documents = sum(counts["documents"].values())
    if learned and len(vocabulary.vocab) < learned.vocab_size and not is_sample:
        found.append(
            f"the text gave {len(vocabulary.vocab)} vocabulary entries, fewer than the "
            f"{learned.vocab_size} asked for"
        )
    if config.valid_fraction and not counts["documents"]["valid"] and not is_sample:
        found.append(f"{num_documents} documents are too few to hold any out, so valid/ is empty")
    if single := counts["single_sentence_documents"]:
        is_nsp = config.objective == "nsp"
        effect = " and give random pairs only" if is_nsp else ""
        offer = " If they are that short, take `objective` mlm" if is_nsp else ""
        found.append(
            f"{single} of {num_documents} documents have one sentence{effect}; is there a blank "
            f"line after every line?{offer}"
        )
    found += filter(
        None,
        (
            _few_documents(counts),
            _duplicates(counts),
            _misfit(counts),
            _cap_binds(counts, config),
        ),
    )
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
    return [f"in the sample, {warning}" for warning in found] if is_sample else found


def _few_documents(counts: dict[str, Any]) -> str | None:
    """Whether it looks as if no blank lines parted the documents.

    That is so where documents have more than `LONG_DOCUMENT` sentences on average, or where one
    with more than that holds at least half of all sentences. A novel has some 5,000 sentences, but
    nearly always blank lines between its paragraphs or chapters.
    """
    num_documents = sum(counts["documents"].values())
    num_sentences = sum(counts["sentences"].values())
    longest = counts["longest_document"]
    is_huge = longest > LONG_DOCUMENT and 2 * longest >= num_sentences
    if not is_huge and num_sentences <= LONG_DOCUMENT * num_documents:
        return None
    return (
        f"only {num_documents:,} documents for {num_sentences:,} sentences, {longest:,} of them in "
        "one; were no blank lines found? put one between documents"
    )


def _duplicates(counts: dict[str, Any]) -> str | None:
    repeated = counts["duplicate_sentences_share"]
    if repeated is None or repeated <= MAX_DUPLICATES:
        return None
    return (
        f"{repeated:.1%} of the sentences repeat an earlier one, and nothing was removed; awk 'NF "
        "== 0 || !seen[$0]++' keeps blank lines and the first of equal lines"
    )


def _misfit(counts: dict[str, Any]) -> str | None:
    """Whether the vocabulary was made for another language, or is much too small.

    It is if it lacks the characters. Or it has them and little else: then words fall apart into
    characters, which shows in few characters a token and in most tokens going on with a word. A
    Chinese character is a token in every vocabulary but never goes on with a word, and a Thai word
    or a part of one goes on with its sentence but has more than two characters, so neither is
    taken for such a case.
    """
    unknown, characters = counts["unknown_share"], counts["characters_per_token"]
    continuing = counts["continuing_share"]
    if unknown is not None and unknown > MAX_UNKNOWN:
        what = f"{unknown:.1%} of the tokens are [UNK]"
    elif continuing and continuing > MAX_CONTINUING and characters < MIN_CHARACTERS:
        what = f"{characters:.2f} characters a token, {continuing:.1%} of them parts of words"
    else:
        return None
    return f"{what}; the vocabulary does not fit the text: learn one from it, or a larger one"


def _cap_binds(counts: dict[str, Any], config: BuildConfig) -> str | None:
    capped, num_examples = counts["capped_examples"]["train"], counts["examples"]["train"]
    if not capped:
        return None
    rate = counts["masked_tokens"]["train"] / counts["example_tokens"]["train"]
    return (
        f"`max_predictions_per_seq` {config.max_predictions_per_seq} binds in "
        f"{capped / num_examples:.1%} of the examples: {rate:.1%} of the tokens are predicted, not "
        f"{config.masked_lm_prob:.1%}; {round(config.seq_len * config.masked_lm_prob)} would not"
    )
