"""Which tokens of an example are predicted, and what the model sees instead of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertpt.config import BuildConfig
from bertpt.data.tokenizer import Tokenizer
from bertpt.rng import permutation

SHARE_MASKED = 0.8
SHARE_RANDOM = 0.1  # and the rest stays as it is

# Joshi et al. (2020), section 3.1: a span's length in words is geometrically distributed.
SPAN_STOPS = 0.2  # the chance to end after a word
MAX_SPAN = 10
_LONGER = np.cumprod(np.full(MAX_SPAN, 1 - SPAN_STOPS))  # share of those longer than 1, 2, ...
SHARES_UP_TO = (1 - _LONGER) / (1 - _LONGER[-1])  # share of those up to 1, 2, ... MAX_SPAN words


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

    def num_to_predict(self, input_ids: np.ndarray) -> int:
        """How many tokens of an example are to be predicted, as google-research/bert counts.

        The share is of the whole example, [CLS] and [SEP] included; one at least, and never more
        than there are tokens that may be. Words and spans may end a little below it, where what is
        left of it is shorter than any word left.
        """
        wanted = max(1, round(len(input_ids) * self.masked_lm_prob))
        candidates = int((~self.never_predicted[input_ids]).sum())
        return min(wanted, candidates, self.max_predictions_per_seq or candidates)

    def draw(
        self, input_ids: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Chooses the tokens to predict and what stands in their place.

        Of the chosen, 80% become [MASK], 10% a random ordinary token, 10% stay: each piece of a
        word for itself, as in google-research/bert, but all of a span alike, as in SpanBERT.

        Args:
            input_ids: the example, uncorrupted, without padding. (length,)
            rng: decides everything that is random here.

        Returns:
            masked_positions: ascending. (predictions,)
            masked_input_ids: the ids that the model sees there. (predictions,)
        """
        positions = self._choose(input_ids, rng)
        fate = rng.random(len(positions))
        drawn = (rng.random(len(positions)) * len(self.ordinary_ids)).astype(np.int64)
        if self.unit == "span":
            # Spans that touch are one, as in facebookresearch/SpanBERT's merge_intervals.
            fate = fate[np.cumsum(_begins_run(positions)) - 1]
        seen = input_ids[positions].astype(np.int64)
        is_random = (fate >= SHARE_MASKED) & (fate < SHARE_MASKED + SHARE_RANDOM)
        seen[is_random] = self.ordinary_ids[drawn[is_random]]
        seen[fate < SHARE_MASKED] = self.mask_id
        return positions, seen

    def _choose(self, input_ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The positions to predict, ascending."""
        candidates = np.flatnonzero(~self.never_predicted[input_ids])
        num_to_predict = self.num_to_predict(input_ids)
        if self.unit == "token":
            order = permutation(rng, len(candidates))
            return np.sort(candidates[order[:num_to_predict]])
        assert self.continues is not None, "words cannot be told"
        opens = _begins_run(candidates)  # after [CLS] or [SEP]
        # A segment cut in front may open with a continuing piece, which is then a word of its own.
        begins = opens | ~self.continues[input_ids[candidates]]
        sizes = np.bincount(np.cumsum(begins) - 1)
        chosen = self._choose_words(sizes, opens[begins], num_to_predict, rng)
        # The cap cuts only the one word that is taken where none fits it.
        positions: np.ndarray = candidates[np.repeat(chosen, sizes)]
        return positions[: self.max_predictions_per_seq]

    def _choose_words(
        self, sizes: np.ndarray, opens: np.ndarray, num_to_predict: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Which words to predict, for an example's words in their order.

        Words, or starts of spans, come in random order. A word that does not fit into what is left
        of `num_to_predict` is passed over, as in google-research/bert; a span ends before it. Where
        no word fits at all, google-research/bert predicts nothing. Here the first that comes is
        predicted all the same, and whole: the first that fits max_predictions_per_seq, which is
        never exceeded. Where none fits that, it is the first pieces of the first word.

        Args:
            sizes: tokens of each word. (words,)
            opens: bool: whether a word is the first of its segment. (words,)
            num_to_predict: tokens.
            rng: decides.
        """
        order = permutation(rng, len(sizes))
        is_span = self.unit == "span"
        lengths = _span_lengths(rng, len(sizes)).tolist() if is_span else [1] * len(sizes)
        chosen = _fill(
            order.tolist(),
            lengths,
            sizes=sizes.tolist(),
            opens=opens.tolist(),
            room=num_to_predict,
        )
        if len(order) and not chosen.any():
            cap = self.max_predictions_per_seq or sizes.max()
            # argmax: the first in the order that fits, or the very first
            chosen[order[np.argmax(sizes[order] <= cap)]] = True
        return chosen


def _begins_run(positions: np.ndarray) -> np.ndarray:
    """Whether the position before each of some ascending ones is none of them."""
    begins = np.ones(len(positions), dtype=bool)
    begins[1:] = positions[1:] - positions[:-1] > 1
    return begins


def _span_lengths(rng: np.random.Generator, number: int) -> np.ndarray:
    """Lengths of spans, in words: geometric among 1 to MAX_SPAN, 3.8 on average.

    "Clipped" at 10, say Joshi et al. (2020). As in facebookresearch/SpanBERT, none is longer and
    the others are so much likelier, which gives the paper's mean of 3.8; if the longer ones became
    10, it would be 4.5.
    """
    return 1 + np.searchsorted(SHARES_UP_TO[:-1], rng.random(number), side="right")


def _fill(
    starts: Sequence[int],
    lengths: Sequence[int],
    *,
    sizes: Sequence[int],
    opens: Sequence[bool],
    room: int,
) -> np.ndarray:
    """Takes runs of words until `room` tokens are taken or no word is left that fits.

    A run ends early before a word that is taken, opens the next segment, or does not fit.
    """
    is_taken = [False] * len(sizes)
    for start, length in zip(starts, lengths, strict=True):
        for word in range(start, min(start + length, len(sizes))):
            if is_taken[word] or sizes[word] > room or (opens[word] and word > start):
                break
            is_taken[word] = True
            room -= sizes[word]
        if room == 0:
            break
    return np.array(is_taken, dtype=bool)
