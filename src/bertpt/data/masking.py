"""Masking: which tokens to predict, and what the model sees in their place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from bertpt.config import BuildConfig
from bertpt.data.ragged import ranges
from bertpt.tokenizer.tokenizer import Tokenizer

SHARE_MASKED = 0.8
SHARE_RANDOM = 0.1  # the rest is kept

# Joshi et al. (2020), section 3.1: a span's length in words is geometrically distributed.
SPAN_STOPS = 0.2  # probability to end after a word
MAX_SPAN = 10
_LONGER = np.cumprod(np.full(MAX_SPAN, 1 - SPAN_STOPS))  # share of spans longer than 1, 2, ...
SHARES_UP_TO = (1 - _LONGER) / (1 - _LONGER[-1])  # share of spans up to 1, 2, ... words

# Bits of a sort key: example, random number, position in the example.
POSITION_BITS = 16
RANDOM_BITS = 29
MAX_EXAMPLES = 1 << (64 - RANDOM_BITS - POSITION_BITS)


class Masks(NamedTuple):
    """The masks of several examples, concatenated.

    Attributes:
        positions: positions to predict in each example, ascending.
        input_ids: what the model sees there.
        num_masked: number of positions in each example. (examples,)
    """

    positions: np.ndarray
    input_ids: np.ndarray
    num_masked: np.ndarray


@dataclass(frozen=True)
class Masking:
    """BERT's masking (Devlin et al., 2019, section 3.1) with one set of settings.

    It chooses single tokens, as in the paper; whole words, as in the later models of
    google-research/bert; or spans of whole words, as in SpanBERT (Joshi et al., 2020).

    Attributes:
        never_predicted: true for [PAD], [CLS], [SEP] and [MASK]. bool, (vocab_size,)
        ordinary_ids: ids to draw random replacements from.
        mask_id: the id of [MASK].
        masked_lm_prob: share of an example's tokens to predict.
        max_predictions_per_seq: maximum number of tokens to predict; `None` for no limit.
        unit: what is chosen.
        continues: true for a piece that continues a word; not needed for unit "token". bool,
            (vocab_size,)
    """

    never_predicted: np.ndarray
    ordinary_ids: np.ndarray
    mask_id: int
    masked_lm_prob: float
    max_predictions_per_seq: int | None = None
    unit: Literal["token", "word", "span"] = "token"
    continues: np.ndarray | None = None

    @classmethod
    def from_config(cls, tokenizer: Tokenizer, config: BuildConfig) -> "Masking":
        """Create the masking of a build configuration for a tokenizer's ids.

        Raises:
            InputError: words or spans are requested, but the tokenizer does not mark the pieces
                that continue a word.
        """
        return cls(
            never_predicted=tokenizer.never_predicted,
            ordinary_ids=tokenizer.ordinary_ids,
            mask_id=tokenizer.mask_id,
            masked_lm_prob=config.masked_lm_prob,
            max_predictions_per_seq=config.max_predictions_per_seq,
            unit="span" if config.span else "word" if config.whole_word else "token",
            continues=tokenizer.continues if config.span or config.whole_word else None,
        )

    def num_to_predict(self, num_tokens: np.ndarray, num_candidates: np.ndarray) -> np.ndarray:
        """Return the number of tokens to predict in each example, as in google-research/bert.

        The share is that of all tokens, [CLS] and [SEP] included, but at least one token, and at
        most all candidates. Words and spans may give slightly fewer, if no word fits the rest.
        """
        share = np.rint(num_tokens * self.masked_lm_prob).astype(np.int64)
        wanted: np.ndarray = np.minimum(np.maximum(1, share), num_candidates)
        return np.minimum(wanted, cap) if (cap := self.max_predictions_per_seq) else wanted

    def random_numbers(self, num_tokens: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the random numbers that determine the masks of one example.

        Returns:
            Numbers between 0 and 1 for each token: its rank, its fate, its replacement, and for
            spans the length of a span that starts there. (3 or 4, num_tokens)
        """
        return rng.random((4 if self.unit == "span" else 3, num_tokens))

    def apply(
        self,
        input_ids: np.ndarray,
        num_tokens: np.ndarray,
        random_numbers: Iterable[np.ndarray],
    ) -> Masks:
        """Choose the tokens to predict, and what the model sees in their place.

        80% become [MASK], 10% a random ordinary token, and 10% are kept. This is decided for each
        piece of a word separately, as in google-research/bert, but for a span as a unit, as in
        SpanBERT.

        Args:
            input_ids: examples, concatenated, uncorrupted, without padding.
            num_tokens: length of each example, at most 65,536. (examples,)
            random_numbers: from the method `random_numbers`, for each example.
        """
        assert len(num_tokens) <= MAX_EXAMPLES
        ranks, fates, replacements, *span_lengths = np.concatenate(list(random_numbers), axis=1)
        starts = num_tokens.cumsum() - num_tokens
        if self.unit == "token":
            chosen = self._choose_tokens(input_ids, num_tokens, ranks)
        else:
            chosen = self._choose_words(input_ids, num_tokens, ranks, *span_lengths)
        fate = fates[chosen]
        if self.unit == "span":
            # Adjacent spans are merged, as in facebookresearch/SpanBERT's merge_intervals.
            begins = _begins_run(chosen)
            fate = fate[begins][np.cumsum(begins) - 1]
        seen = input_ids[chosen].astype(np.int64)
        is_random = (fate >= SHARE_MASKED) & (fate < SHARE_MASKED + SHARE_RANDOM)
        indices = (replacements[chosen[is_random]] * len(self.ordinary_ids)).astype(np.int64)
        seen[is_random] = self.ordinary_ids[indices]
        seen[fate < SHARE_MASKED] = self.mask_id
        of_example = np.searchsorted(starts, chosen, side="right") - 1
        num_masked = np.bincount(of_example, minlength=len(num_tokens))
        return Masks(chosen - starts[of_example], seen, num_masked)

    def _choose_tokens(
        self, input_ids: np.ndarray, num_tokens: np.ndarray, ranks: np.ndarray
    ) -> np.ndarray:
        """Return the indices in `input_ids` of the tokens with the lowest ranks, ascending."""
        example = np.repeat(np.arange(len(num_tokens), dtype=np.uint64), num_tokens)
        starts = num_tokens.cumsum() - num_tokens
        candidates = np.flatnonzero(~self.never_predicted[input_ids])
        of_example = example[candidates]
        num_candidates = np.bincount(of_example.astype(np.int64), minlength=len(num_tokens))
        position = (candidates - starts[of_example]).astype(np.uint64)
        # No two keys are equal, so every sorting algorithm gives the same order.
        random = (ranks[candidates] * (1 << RANDOM_BITS)).astype(np.uint64)
        keys = np.sort(((of_example << RANDOM_BITS | random) << POSITION_BITS) | position)
        num_to_predict = self.num_to_predict(num_tokens, num_candidates)
        first = keys[ranges(num_candidates.cumsum() - num_candidates, num_to_predict)]
        position = (first & ((1 << POSITION_BITS) - 1)).astype(np.int64)
        return np.sort(position + np.repeat(starts, num_to_predict))

    def _choose_words(
        self,
        input_ids: np.ndarray,
        num_tokens: np.ndarray,
        ranks: np.ndarray,
        span_lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the indices in `input_ids` of words or spans in order of rank, ascending.

        A word that does not fit the rest of `num_to_predict` is skipped, as in
        google-research/bert; a span ends before it. If no word fits, google-research/bert predicts
        nothing. Here the first word that fits `max_predictions_per_seq` is predicted, or if none
        does, as many pieces of the first word as fit.
        """
        assert self.continues is not None, "words need `continues`"
        candidates = np.flatnonzero(~self.never_predicted[input_ids])
        opens = _begins_run(candidates)  # after [CLS] or [SEP]
        # A truncated segment may begin with a continuing piece, which then counts as a word.
        words = np.flatnonzero(opens | ~self.continues[input_ids[candidates]])
        sizes = np.diff(words, append=len(candidates))
        word_starts = candidates[words]
        ends = num_tokens.cumsum()
        bounds = np.searchsorted(word_starts, np.concatenate([[0], ends]))
        num_candidates = np.diff(np.searchsorted(candidates, np.concatenate([[0], ends])))
        order = np.lexsort((ranks[word_starts], np.repeat(np.arange(len(ends)), np.diff(bounds))))
        lengths = np.ones_like(words)
        if span_lengths is not None:
            lengths = _span_lengths(span_lengths[word_starts])
        taken = np.zeros_like(sizes)
        rooms = self.num_to_predict(num_tokens, num_candidates).tolist()
        for (first, last), room in zip(pairwise(bounds.tolist()), rooms, strict=True):
            of_example = slice(first, last)
            in_order = order[of_example] - first
            taken[of_example] = _take_words(
                in_order.tolist(),
                lengths[first + in_order].tolist(),
                sizes=sizes[of_example].tolist(),
                opens=opens[words[of_example]].tolist(),
                room=room,
                cap=self.max_predictions_per_seq,
            )
        chosen: np.ndarray = candidates[ranges(words, taken)]
        return chosen


def _begins_run(positions: np.ndarray) -> np.ndarray:
    """Return whether each position begins a run; they are ascending."""
    begins = np.ones(len(positions), dtype=bool)
    begins[1:] = positions[1:] - positions[:-1] > 1
    return begins


def _span_lengths(random_numbers: np.ndarray) -> np.ndarray:
    """Return span lengths in words: geometric from 1 to `MAX_SPAN`, 3.8 on average.

    Joshi et al. (2020) call the distribution "clipped" at 10. As in facebookresearch/SpanBERT, it
    is renormalized, which gives the paper's mean of 3.8; setting longer spans to 10 would give 4.5.
    """
    return 1 + np.searchsorted(SHARES_UP_TO[:-1], random_numbers, side="right")


def _take_words(
    order: Sequence[int],
    lengths: Sequence[int],
    *,
    sizes: Sequence[int],
    opens: Sequence[bool],
    room: int,
    cap: int | None,
) -> list[int]:
    """Return the number of tokens to predict of each word of one example.

    Args:
        order: words, or starts of spans, in order of rank.
        lengths: length in words of what starts there, in the same order.
        sizes: tokens in each word.
        opens: whether a word is the first of its segment.
        room: tokens to predict.
        cap: maximum number of tokens.
    """
    taken = [0] * len(sizes)
    left = room
    for start, length in zip(order, lengths, strict=True):
        for word in range(start, min(start + length, len(sizes))):
            if taken[word] or sizes[word] > left or (opens[word] and word > start):
                break
            taken[word] = sizes[word]
            left -= sizes[word]
        if left == 0:
            break
    if order and left == room:
        word = next((word for word in order if sizes[word] <= (cap or sizes[word])), order[0])
        taken[word] = min(sizes[word], cap or sizes[word])
    return taken
