"""Which tokens of examples are predicted, and what the model sees instead of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from bertpt.config import BuildConfig
from bertpt.data.ragged import ranges
from bertpt.tokenizer.tokenizer import Tokenizer

SHARE_MASKED = 0.8
SHARE_RANDOM = 0.1  # and the rest stays as it is

# Joshi et al. (2020), section 3.1: a span's length in words is geometrically distributed.
SPAN_STOPS = 0.2  # the chance to end after a word
MAX_SPAN = 10
_LONGER = np.cumprod(np.full(MAX_SPAN, 1 - SPAN_STOPS))  # share of those longer than 1, 2, ...
SHARES_UP_TO = (1 - _LONGER) / (1 - _LONGER[-1])  # share of those up to 1, 2, ... MAX_SPAN words

# A sort key: the number of an example, a random number, a position in the example.
POSITION_BITS = 16
RANDOM_BITS = 29
MAX_EXAMPLES = 1 << (64 - RANDOM_BITS - POSITION_BITS)


class Masks(NamedTuple):
    """What is predicted in some examples, one example after another.

    Attributes:
        positions: of each example's tokens to predict, ascending.
        input_ids: what the model sees there.
        num_masked: how many each example has. (examples,)
    """

    positions: np.ndarray
    input_ids: np.ndarray
    num_masked: np.ndarray


@dataclass(frozen=True)
class Masking:
    """BERT's masking (Devlin et al., 2019, section 3.1) with one set of settings.

    Tokens are chosen one by one, as in the paper; or whole words, as in the later models of
    google-research/bert; or runs of whole words, as in SpanBERT (Joshi et al., 2020).

    Attributes:
        never_predicted: bool, one for each id: true for [PAD], [CLS], [SEP] and [MASK].
        ordinary_ids: the ids that a random replacement is drawn from.
        mask_id: the id of [MASK].
        masked_lm_prob: share of an example's tokens to predict.
        max_predictions_per_seq: cap on their number; `None` for none.
        unit: what is drawn.
        continues: bool, one for each id: true for a piece that goes on with a word. Tokens need
            none.
    """

    never_predicted: np.ndarray
    ordinary_ids: np.ndarray
    mask_id: int
    masked_lm_prob: float
    max_predictions_per_seq: int | None = None
    unit: Literal["token", "word", "span"] = "token"
    continues: np.ndarray | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer, settings: BuildConfig) -> "Masking":
        """The masking that build-data's settings ask for, on a tokenizer's ids.

        Raises:
            InputError: whole words are asked for, and the tokenizer's pieces do not tell them.
        """
        return cls(
            never_predicted=tokenizer.never_predicted,
            ordinary_ids=tokenizer.ordinary_ids,
            mask_id=tokenizer.mask_id,
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            unit="span" if settings.span else "word" if settings.whole_word else "token",
            continues=tokenizer.continues if settings.span or settings.whole_word else None,
        )

    def num_to_predict(self, num_tokens: np.ndarray, num_candidates: np.ndarray) -> np.ndarray:
        """How many tokens of each example are to be predicted, as google-research/bert counts.

        The share is of the whole example, [CLS] and [SEP] included; one at least, and never more
        than there are tokens that may be. Words and spans may end a little below it, where what is
        left of it is shorter than any word left.
        """
        share = np.rint(num_tokens * self.masked_lm_prob).astype(np.int64)
        wanted: np.ndarray = np.minimum(np.maximum(1, share), num_candidates)
        return np.minimum(wanted, cap) if (cap := self.max_predictions_per_seq) else wanted

    def draws(self, num_tokens: int, rng: np.random.Generator) -> np.ndarray:
        """All that is random in the masks of one example.

        Returns:
            Numbers between 0 and 1, for each token: when it is chosen, what becomes of it, by which
            token it may be replaced, and for spans how long one that starts there is.
            (3 or 4, num_tokens)
        """
        return rng.random((4 if self.unit == "span" else 3, num_tokens))

    def draw(
        self, input_ids: np.ndarray, num_tokens: np.ndarray, draws: Iterable[np.ndarray]
    ) -> Masks:
        """Chooses the tokens to predict and what stands in their place.

        Of the chosen, 80% become [MASK], 10% a random ordinary token, 10% stay: each piece of a
        word for itself, as in google-research/bert, but all of a span alike, as in SpanBERT.

        Args:
            input_ids: examples one after another, uncorrupted, without padding.
            num_tokens: of each, 65,536 at most. (examples,)
            draws: what `draws` gave for each example; nothing else decides.
        """
        assert len(num_tokens) <= MAX_EXAMPLES
        when, fates, replacements, *span_lengths = np.concatenate(list(draws), axis=1)
        starts = num_tokens.cumsum() - num_tokens
        if self.unit == "token":
            chosen = self._choose_tokens(input_ids, num_tokens, when)
        else:
            chosen = self._choose_words(input_ids, num_tokens, when, *span_lengths)
        fate = fates[chosen]
        if self.unit == "span":
            # Spans that touch are one, as in facebookresearch/SpanBERT's merge_intervals.
            begins = _begins_run(chosen)
            fate = fate[begins][np.cumsum(begins) - 1]
        seen = input_ids[chosen].astype(np.int64)
        is_random = (fate >= SHARE_MASKED) & (fate < SHARE_MASKED + SHARE_RANDOM)
        drawn = (replacements[chosen[is_random]] * len(self.ordinary_ids)).astype(np.int64)
        seen[is_random] = self.ordinary_ids[drawn]
        seen[fate < SHARE_MASKED] = self.mask_id
        of_example = np.searchsorted(starts, chosen, side="right") - 1
        num_masked = np.bincount(of_example, minlength=len(num_tokens))
        return Masks(chosen - starts[of_example], seen, num_masked)

    def _choose_tokens(
        self, input_ids: np.ndarray, num_tokens: np.ndarray, when: np.ndarray
    ) -> np.ndarray:
        """The places in `input_ids` to predict, ascending: in each example, those drawn first."""
        example = np.repeat(np.arange(len(num_tokens), dtype=np.uint64), num_tokens)
        starts = num_tokens.cumsum() - num_tokens
        candidates = np.flatnonzero(~self.never_predicted[input_ids])
        of_example = example[candidates]
        num_candidates = np.bincount(of_example.astype(np.int64), minlength=len(num_tokens))
        position = (candidates - starts[of_example]).astype(np.uint64)
        # No two keys are equal, so every way of sorting them gives the same order.
        random = (when[candidates] * (1 << RANDOM_BITS)).astype(np.uint64)
        keys = np.sort(((of_example << RANDOM_BITS | random) << POSITION_BITS) | position)
        num_to_predict = self.num_to_predict(num_tokens, num_candidates)
        first = keys[ranges(num_candidates.cumsum() - num_candidates, num_to_predict)]
        position = (first & ((1 << POSITION_BITS) - 1)).astype(np.int64)
        return np.sort(position + np.repeat(starts, num_to_predict))

    def _choose_words(
        self,
        input_ids: np.ndarray,
        num_tokens: np.ndarray,
        when: np.ndarray,
        span_lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """The places in `input_ids` to predict, ascending: in each example, words or spans.

        Words, or starts of spans, come in random order. A word that does not fit into what is left
        of `num_to_predict` is passed over, as in google-research/bert; a span ends before it. Where
        no word fits at all, google-research/bert predicts nothing. Here the first that comes is
        predicted all the same, and whole: the first that fits max_predictions_per_seq, which is
        never exceeded. Where none fits that, it is the first pieces of the first word.
        """
        assert self.continues is not None, "words cannot be told"
        candidates = np.flatnonzero(~self.never_predicted[input_ids])
        opens = _begins_run(candidates)  # after [CLS] or [SEP]
        # A segment cut in front may open with a continuing piece, which is then a word of its own.
        words = np.flatnonzero(opens | ~self.continues[input_ids[candidates]])
        sizes = np.diff(words, append=len(candidates))
        places = candidates[words]
        ends = num_tokens.cumsum()
        bounds = np.searchsorted(places, np.concatenate([[0], ends]))
        num_candidates = np.diff(np.searchsorted(candidates, np.concatenate([[0], ends])))
        order = np.lexsort((when[places], np.repeat(np.arange(len(ends)), np.diff(bounds))))
        lengths = np.ones_like(words)
        if span_lengths is not None:
            lengths = _span_lengths(span_lengths[places])
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
    """Whether the position before each of some ascending ones is none of them."""
    begins = np.ones(len(positions), dtype=bool)
    begins[1:] = positions[1:] - positions[:-1] > 1
    return begins


def _span_lengths(draws: np.ndarray) -> np.ndarray:
    """Lengths of spans, in words: geometric among 1 to MAX_SPAN, 3.8 on average.

    "Clipped" at 10, say Joshi et al. (2020). As in facebookresearch/SpanBERT, none is longer and
    the others are so much likelier, which gives the paper's mean of 3.8; if the longer ones became
    10, it would be 4.5.
    """
    return 1 + np.searchsorted(SHARES_UP_TO[:-1], draws, side="right")


def _take_words(
    order: Sequence[int],
    lengths: Sequence[int],
    *,
    sizes: Sequence[int],
    opens: Sequence[bool],
    room: int,
    cap: int | None,
) -> list[int]:
    """How many tokens of each word of an example to predict.

    Args:
        order: in which words come, or starts of spans.
        lengths: in words, of what starts there, in that order.
        sizes: tokens of each word.
        opens: whether a word is the first of its segment.
        room: tokens to predict.
        cap: never exceeded.
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
