"""Sentence pairs -> model inputs: cut to fit, [CLS] and [SEP] added, losses counted."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertpt.build.pairs import Pair
from bertpt.config.data import IGNORE_INDEX
from bertpt.data.ragged import ranges
from bertpt.tokenizer.tokenizer import Tokenizer

RANDOM_BITS = 53  # of a random number between 0 and 1


class Sequences(NamedTuple):
    """Uncorrupted examples, concatenated.

    Attributes:
        input_ids: of all examples.
        num_tokens: length of each example. (examples,)
        b_starts: index of B's first token in each; its length if there is no B. (examples,)
    """

    input_ids: np.ndarray
    num_tokens: np.ndarray
    b_starts: np.ndarray


def build_sequences(pairs: Sequence[Pair], tokens: np.ndarray, vocabulary: Tokenizer) -> Sequences:
    """Return [CLS] A [SEP] B [SEP] for each pair, or [CLS] A [SEP] if it has no B.

    Args:
        pairs: at least one.
        tokens: the array that pairs are positions in; the ids get its dtype.
        vocabulary: provides the ids of [CLS] and [SEP].
    """
    a_start, a_end, b_start, b_end, labels = np.array(pairs).T
    b_starts = a_end - a_start + 2
    num_tokens = b_starts + np.where(labels == IGNORE_INDEX, 0, b_end - b_start + 1)
    ends = num_tokens.cumsum()
    input_ids = np.empty(ends[-1], dtype=tokens.dtype)
    is_text = np.ones(len(input_ids), dtype=bool)
    for positions, token in (
        (ends - num_tokens, vocabulary.cls_id),
        (ends - num_tokens + b_starts - 1, vocabulary.sep_id),
        (ends - 1, vocabulary.sep_id),
    ):
        input_ids[positions] = token
        is_text[positions] = False
    starts = np.stack([a_start, b_start], axis=1).ravel()
    lengths = np.stack([a_end - a_start, b_end - b_start], axis=1).ravel()
    input_ids[is_text] = tokens[ranges(starts, lengths)]
    return Sequences(input_ids, num_tokens, b_starts)


def truncate_pair(pair: Pair, max_num_tokens: int, rng: np.random.Generator) -> Pair:
    """Cut a pair to `max_num_tokens` as google-research/bert does.

    Tokens are removed one by one, always from the longer segment (B if both are equal), from its
    front or its back with equal chance.
    """
    a_start, a_end, b_start, b_end, label = pair
    a_length, b_length = a_end - a_start, b_end - b_start
    excess = a_length + b_length - max_num_tokens
    if excess <= 0:
        return pair
    # First only the longer one loses tokens, until both are equal; then they alternate, B first.
    alone = min(excess, abs(a_length - b_length))
    from_b, from_a = (excess - alone + 1) // 2, (excess - alone) // 2
    if a_length > b_length:
        from_a += alone
    else:
        from_b += alone
    a_front, b_front = num_heads(from_a, rng), num_heads(from_b, rng)
    return Pair(
        *(a_start + a_front, a_end - (from_a - a_front)),
        *(b_start + b_front, b_end - (from_b - b_front)),
        label,
    )


def num_heads(count: int, rng: np.random.Generator) -> int:
    """Toss `count` fair coins, each a bit of a random number, and count the heads."""
    heads = 0
    for done in range(0, count, RANDOM_BITS):
        bits = int(rng.random() * (1 << RANDOM_BITS))
        heads += (bits >> max(0, RANDOM_BITS - (count - done))).bit_count()
    return heads


class PairCounts(NamedTuple):
    """What pairs consist of; text that several pairs use is counted as often.

    Attributes:
        sentences: in segments of complete sentences.
        truncated_sentences: those of them that lost tokens because the pair was too long.
        tokens: before truncation.
        truncated_tokens: tokens that truncation removed.
    """

    sentences: int
    truncated_sentences: int
    tokens: int
    truncated_tokens: int


def count_pairs(
    untruncated: Sequence[Pair], pairs: Sequence[Pair], sentence_ends: np.ndarray
) -> PairCounts:
    """Count the sentences and tokens of pairs, and what truncation removed.

    Args:
        untruncated: the pairs before truncation.
        pairs: the same pairs after it.
        sentence_ends: 0, then the end of each sentence, as in `StoredDocuments`.
    """
    # Rows of (start, end): both segments of the first pair, of the second, ...
    before, after = (
        np.array(some).reshape(-1, 5)[:, :4].reshape(-1, 2) for some in (untruncated, pairs)
    )
    first, last = np.searchsorted(sentence_ends, before).T
    is_complete = (sentence_ends[first] == before[:, 0]) & (sentence_ends[last] == before[:, 1])
    intact_first = np.searchsorted(sentence_ends, after[:, 0])
    intact_last = np.searchsorted(sentence_ends, after[:, 1], side="right") - 1
    counts = (last - first)[is_complete]
    num_intact = np.maximum(0, intact_last - intact_first)[is_complete]
    num_tokens, num_kept = (int((ends - starts).sum()) for starts, ends in (before.T, after.T))
    return PairCounts(
        sentences=int(counts.sum()),
        truncated_sentences=int((counts - num_intact).sum()),
        tokens=num_tokens,
        truncated_tokens=num_tokens - num_kept,
    )
