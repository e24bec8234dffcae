"""Which tokens of an example are predicted, and what the model sees instead of them."""

from dataclasses import dataclass

import numpy as np

from bertpt.config import BuildConfig
from bertpt.data.tokenizer import Tokenizer

SHARE_MASKED = 0.8
SHARE_RANDOM = 0.1  # and the rest stays as it is


@dataclass(frozen=True)
class Masking:
    """BERT's masking (Devlin et al., 2019, section 3.1) with one set of settings.

    Attributes:
        never_predicted: bool, one for each id: true for [PAD], [CLS], [SEP] and [MASK].
        ordinary_ids: the ids that a random replacement is drawn from.
        mask_id: the id of [MASK].
        masked_lm_prob: share of an example's tokens to predict.
        max_predictions_per_seq: cap on their number; `None` for none.
    """

    never_predicted: np.ndarray
    ordinary_ids: np.ndarray
    mask_id: int
    masked_lm_prob: float
    max_predictions_per_seq: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer, settings: BuildConfig) -> "Masking":
        """The masking that build-data's settings ask for, on a tokenizer's ids."""
        return cls(
            never_predicted=tokenizer.never_predicted,
            ordinary_ids=tokenizer.ordinary_ids,
            mask_id=tokenizer.mask_id,
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
        )

    def num_to_predict(self, input_ids: np.ndarray) -> int:
        """How many tokens of an example are predicted, as google-research/bert counts.

        The share is of the whole example, [CLS] and [SEP] included; one at least, and never more
        than there are tokens that may be.
        """
        wanted = max(1, round(len(input_ids) * self.masked_lm_prob))
        candidates = int((~self.never_predicted[input_ids]).sum())
        return min(wanted, candidates, self.max_predictions_per_seq or candidates)

    def draw(
        self, input_ids: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Chooses the tokens to predict and what stands in their place.

        Of the chosen, 80% become [MASK], 10% a random ordinary token, 10% stay.

        Args:
            input_ids: the example, uncorrupted, without padding. (length,)
            rng: decides everything that is random here.

        Returns:
            masked_positions: ascending. (num_to_predict,)
            masked_input_ids: the ids that the model sees there. (num_to_predict,)
        """
        candidates = np.flatnonzero(~self.never_predicted[input_ids])
        order = np.argsort(rng.random(len(candidates)), kind="stable")
        positions = np.sort(candidates[order[: self.num_to_predict(input_ids)]])
        fate = rng.random(len(positions))
        drawn = (rng.random(len(positions)) * len(self.ordinary_ids)).astype(np.int64)
        seen = input_ids[positions].astype(np.int64)
        is_random = (fate >= SHARE_MASKED) & (fate < SHARE_MASKED + SHARE_RANDOM)
        seen[is_random] = self.ordinary_ids[drawn[is_random]]
        seen[fate < SHARE_MASKED] = self.mask_id
        return positions, seen
