"""Counts of a DATA folder for its manifest, and the warnings that follow from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertpt.build.splits import WrittenSplit
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.corpus import findings
from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError
from bertpt.tokenizer.tokenizer import Tokenizer
from bertpt.tokenizer.train import describe_shortfall

NUM_BINS = 8  # of the length histogram

# Thresholds of the warnings.
MAX_UNKNOWN = 0.01
MIN_CHARACTERS = 2.0  # per token
MAX_CONTINUING = 0.5
MAX_DUPLICATES = 0.2
LONG_DOCUMENT = 1000  # sentences


def collect_counts(
    corpus: Corpus,
    text_counts: dict[str, Any],
    token_counts: np.ndarray,
    splits: dict[str, WrittenSplit],
    vocabulary: Tokenizer,
) -> dict[str, Any]:
    """Return all counts of the manifest.

    Args:
        corpus: the text, read to its end.
        text_counts: counts made by `tokenize`.
        token_counts: occurrences of each id in the training documents. (vocab_size,)
        splits: the written splits by name.
        vocabulary: the tokenizer that made the ids.
    """
    counts = {
        **_counts_by_split(splits),
        **text_counts,
        "unknown_tokens": int(token_counts[vocabulary.unk_id]),
        "single_sentence_documents": sum(
            split.documents.num_single_sentences for split in splits.values()
        ),
        **{key: corpus.counts[key] for key in findings.COUNTS},
    }
    lengths = {name: split.lengths for name, split in splits.items()}
    continuing_share = _continuing_share(token_counts, vocabulary)
    return counts | _derived_counts(counts, lengths, continuing_share, splits["train"].config)


def _counts_by_split(splits: dict[str, WrittenSplit]) -> dict[str, dict[str, Any]]:
    """Return each count as {split: value}."""
    by_split = {
        name: {
            "documents": len(split.documents),
            "sentences": split.documents.num_sentences,
            "tokens": split.documents.num_tokens,
            **split.counts,
        }
        for name, split in splits.items()
    }
    return {
        key: {name: counts[key] for name, counts in by_split.items()} for key in by_split["train"]
    }


def _derived_counts(
    counts: dict[str, Any],
    lengths: dict[str, np.ndarray],
    continuing_share: float | None,
    config: BuildConfig,
) -> dict[str, Any]:
    """Return shares between 0 and 1 (`None` of nothing), means and the length histogram.

    - characters_per_token: in all documents, before `dedup`, spaces included.
    - unknown_share: [UNK] among the tokens of the training documents.
    - continuing_share: among the same tokens, pieces that continue a word (`None`, too, if the
      tokenizer does not mark them).
    - duplicate_sentences_share, duplicate_documents_share: in all documents, before `dedup`.
    - truncated_share: of the sentences in pairs, by split.
    - truncated_tokens_share: of the tokens in pairs, by split.
    - majority_baseline: share of the more frequent label, by split.
    - masked_tokens_per_sequence: mean, by split.
    - slots_filled: share of the positions that hold a token, by split.
    - capped_examples: those with fewer targets because of `max_predictions_per_seq`, by split.
    - length_histogram: see `length_histogram`.
    """
    labels = counts["label_counts"]
    majority = {split: max(of_split.values()) for split, of_split in labels.items()}
    num_pairs = {split: sum(of_split.values()) for split, of_split in labels.items()}
    num_slots = {split: number * config.seq_len for split, number in counts["examples"].items()}
    totals = {what: sum(counts[what].values()) for what in ("documents", "sentences", "tokens")}
    found = {what: totals[what] + counts[f"removed_{what}"] for what in totals}
    return {
        "characters_per_token": share(counts["characters"], found["tokens"]),
        "unknown_share": share(counts["unknown_tokens"], counts["tokens"]["train"]),
        "continuing_share": continuing_share,
        "duplicate_sentences_share": share(counts["duplicate_sentences"], found["sentences"]),
        "duplicate_documents_share": share(counts["duplicate_documents"], found["documents"]),
        "truncated_share": _shares(counts["truncated_sentences"], counts["paired_sentences"]),
        "truncated_tokens_share": _shares(counts["truncated_tokens"], counts["paired_tokens"]),
        "majority_baseline": _shares(majority, num_pairs),
        "masked_tokens_per_sequence": _shares(counts["masked_tokens"], counts["examples"]),
        "slots_filled": _shares(counts["example_tokens"], num_slots),
        "capped_examples": {
            name: _num_capped(of_split, config) for name, of_split in lengths.items()
        },
        "length_histogram": length_histogram(lengths),
    }


def share(part: int, total: int) -> float | None:
    """Return part / total, or `None` if the total is 0."""
    return part / total if total else None


def _shares(parts: dict[str, int], totals: dict[str, int]) -> dict[str, float | None]:
    return {split: share(part, totals[split]) for split, part in parts.items()}


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
    """Count examples by length, in bins of equal width.

    Args:
        lengths: for each split, the number of examples of each length from 0 to the maximum.

    Returns:
        up_to: the largest length in each bin; and for each split, the number of examples in it.
    """
    longest = len(next(iter(lengths.values()))) - 1
    bins = min(NUM_BINS, longest)
    up_to = [-(-longest * i // bins) for i in range(1, bins + 1)]
    starts = [0, *(end + 1 for end in up_to[:-1])]
    counted = {
        split: np.add.reduceat(of_split, starts).tolist() for split, of_split in lengths.items()
    }
    return {"up_to": up_to, **counted}


# ---------------------------------------------------------------------------------------- warnings


def find_warnings(
    counts: dict[str, Any],
    vocabulary: Tokenizer,
    config: BuildConfig,
    learned: TokenizerConfig | None,
    *,
    problems: Mapping[str, str] | None = None,
    is_sample: bool = False,
) -> list[str]:
    """Return what to know about the data before training on it.

    Args:
        counts: as returned by `collect_counts`.
        vocabulary: the tokenizer.
        config: how the examples were made.
        learned: how the vocabulary was learned, if it was.
        problems: where each kind of repair was needed first, as in `Corpus.problems`.
        is_sample: leave out warnings that more text would resolve.
    """
    candidates = [
        None if is_sample else _small_vocabulary(vocabulary, learned),
        None if is_sample else _empty_valid(counts, config),
        _single_sentences(counts, config),
        _few_documents(counts),
        _duplicates(counts) if config.dedup == "none" else None,
        _poor_vocabulary(counts),
        _cap_binds(counts, config),
        _empty_sentences(counts),
        *findings.describe(counts, problems or {}),
    ]
    prefix = "in the sample, " if is_sample else ""
    return [f"{prefix}{warning}" for warning in candidates if warning]


def _small_vocabulary(vocabulary: Tokenizer, learned: TokenizerConfig | None) -> str | None:
    return describe_shortfall(vocabulary, learned) if learned else None


def _empty_sentences(counts: dict[str, Any]) -> str | None:
    number = counts["empty_sentences"]
    return f"{number} sentences were empty after cleaning and left out" if number else None


def _empty_valid(counts: dict[str, Any], config: BuildConfig) -> str | None:
    if not config.valid_fraction or counts["documents"]["valid"]:
        return None
    num_documents = sum(counts["documents"].values())
    return f"{num_documents} documents are too few to hold any out, so valid/ is empty"


def _single_sentences(counts: dict[str, Any], config: BuildConfig) -> str | None:
    num_single = counts["single_sentence_documents"]
    if not num_single:
        return None
    effect = advice = ""
    if config.objective == "nsp":
        effect = " and give random pairs only"
        advice = " If they really are that short, use `objective` mlm"
    return (
        f"{num_single} of {sum(counts['documents'].values())} documents have one sentence{effect}; "
        f"is there a blank line after every line?{advice}"
    )


def _few_documents(counts: dict[str, Any]) -> str | None:
    """Warn if blank lines between documents seem to be missing.

    They do if documents have more than `LONG_DOCUMENT` sentences on average, or if a document
    longer than that holds at least half of all sentences. A novel has about 5,000 sentences, but
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
        "one; are there no blank lines? put one between documents"
    )


def _duplicates(counts: dict[str, Any]) -> str | None:
    repeated = counts["duplicate_sentences_share"]
    if repeated is None or repeated <= MAX_DUPLICATES:
        return None
    return (
        f"{repeated:.1%} of the sentences repeat an earlier one; leave them out with `dedup` "
        "sentences or documents"
    )


def _poor_vocabulary(counts: dict[str, Any]) -> str | None:
    """Warn if the vocabulary was made for another language, or is much too small.

    Either it lacks the characters, or it has little else. Then words fall apart into characters:
    few characters a token, and most tokens continue a word. Chinese characters are single tokens
    in every vocabulary but never continue a word, and Thai pieces continue their sentence but
    have more than two characters, so neither is mistaken for such a case.
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
        f"`max_predictions_per_seq` {config.max_predictions_per_seq} limits "
        f"{capped / num_examples:.1%} of the examples: {rate:.1%} of the tokens are predicted "
        f"instead of {config.masked_lm_prob:.1%}; raise it to "
        f"{round(config.seq_len * config.masked_lm_prob)}"
    )
