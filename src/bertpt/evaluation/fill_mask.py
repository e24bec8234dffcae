"""What a model would put in the place of each [MASK]."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertpt.compat import require_rows
from bertpt.device import choose_device
from bertpt.errors import InputError, SettingError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import find_model
from bertpt.model.pretrained import MLM_HEAD, load_model
from bertpt.text import without_surrogates
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer

MASK = "[MASK]"


class MaskFiller:
    """A model with its tokenizer, ready to fill masks.

    Args:
        model_path: a run, a checkpoint or a Hugging Face folder.
        device: "auto", "cpu" or "cuda".

    Attributes:
        ignored_note: names what the folder has beside the model; empty if nothing.

    Raises:
        BertptError: the folder is damaged or has no MLM head.
    """

    def __init__(self, model_path: Path, *, device: str = "auto") -> None:
        folder = find_model(model_path)
        self.tokenizer = load_tokenizer(folder)
        self._device = choose_device(device)
        self._model, report = load_model(BertForPreTraining, folder)
        report.require(MLM_HEAD, folder)
        self.ignored_note = report.ignored_note()
        self._model.to(self._device)
        require_rows(self._model.config, len(self.tokenizer.vocab), folder)

    def fill(
        self, text: str, *, top_k: int = 5, joint: bool = False, mask_word: str | None = None
    ) -> dict[str, Any]:
        """The likeliest tokens for each [MASK] of a text.

        Args:
            text: with one [MASK] or more.
            top_k: candidates for each mask.
            joint: fill the masks one after another, the surest first, each with the ones before it
                in place, instead of each on its own with the others staying masks.
            mask_word: mask this word wherever it stands in the text, one mask for each of its
                tokens.

        Returns:
            text, and masks: for each mask a list of candidates, the best first, with token, score
            (probability), and sequence (the text with the token put in). With `joint` also
            order (the masks in the order in which they were filled, from 0), sequence (the text
            with all of them filled), and score (the product of those of the tokens put in).

        Raises:
            InputError: there is nothing to fill, or the text is too long for the model.
            SettingError: the word to mask is not in the vocabulary.
        """
        ids = encode_with_masks(text, self.tokenizer)
        if mask_word is not None:
            found = self._places_of_word(mask_word, ids)
            if not found:
                raise InputError(
                    f"no {mask_word!r} in the text, so nothing to fill: {_beginning(text)}"
                )
            for place in found:
                ids[place] = self.tokenizer.mask_id
        places = np.flatnonzero(ids == self.tokenizer.mask_id).tolist()
        if not places:
            raise InputError(f"no {MASK} in the text, so nothing to fill: {_beginning(text)}")
        positions = self._model.config.max_position_embeddings
        if len(ids) > positions:
            raise InputError(
                f"the text has {len(ids)} tokens, and the model reads {positions}: "
                f"{_beginning(text)}"
            )
        if joint:
            return {"text": text, **self._fill_jointly(ids, places, top_k)}
        masks = [
            self._candidates(ids, place, log_scores, top_k)
            for place, log_scores in zip(places, self._log_scores(ids, places), strict=True)
        ]
        return {"text": text, "masks": masks}

    def _places_of_word(self, word: str, ids: np.ndarray) -> list[slice]:
        """Where a word stands in a text, no two places overlapping."""
        wanted = self.tokenizer.encode_batch([without_surrogates(word)])[0]
        if not len(wanted) or self.tokenizer.unk_id in wanted:
            raise SettingError("mask_word", f"{word!r} is not in the vocabulary")
        places: list[slice] = []
        start = 1
        while (end := start + len(wanted)) < len(ids):
            goes_on = self.tokenizer.continues[ids[end]]
            if np.array_equal(ids[start:end], wanted) and not goes_on:
                places.append(slice(start, end))
                start = end
            else:
                start += 1
        return places

    def _fill_jointly(self, ids: np.ndarray, places: list[int], top_k: int) -> dict[str, Any]:
        masks: list[list[dict[str, Any]]] = [[] for _ in places]
        order: list[int] = []
        ids, log_product = ids.copy(), 0.0
        impossible = torch.from_numpy(self.tokenizer.never_predicted).to(self._device)
        while len(order) < len(places):
            left = [mask for mask in range(len(places)) if mask not in order]
            log_scores = self._log_scores(ids, [places[mask] for mask in left])
            best = log_scores.masked_fill(impossible, -torch.inf).max(dim=-1)
            surest = int(best.values.argmax())
            mask, token = left[surest], int(best.indices[surest])
            masks[mask] = self._candidates(ids, places[mask], log_scores[surest], top_k)
            ids[places[mask]] = token
            order.append(mask)
            log_product += float(best.values[surest])
        return {
            "masks": masks,
            "order": order,
            "sequence": self.tokenizer.text(ids[1:-1]),
            "score": math.exp(log_product),
        }

    @torch.no_grad()
    def _log_scores(self, ids: np.ndarray, places: Sequence[int]) -> Tensor:
        """Log probabilities of the vocabulary at some places of a text: (places, vocabulary)."""
        inputs = torch.from_numpy(ids).to(self._device)[None]
        at = torch.tensor(places, device=self._device)
        logits = self._model(inputs, masked_positions=at).prediction_logits
        # An embedding may be padded with rows that stand for no token.
        return logits[:, : len(self.tokenizer.vocab)].log_softmax(dim=-1)

    def _candidates(
        self, ids: np.ndarray, place: int, log_scores: Tensor, top_k: int
    ) -> list[dict[str, Any]]:
        best = log_scores.topk(min(top_k, len(log_scores)))
        return [
            {
                "token": self.tokenizer.vocab[token],
                "score": score,
                "sequence": self.tokenizer.text([*ids[1:place], token, *ids[place + 1 : -1]]),
            }
            for score, token in zip(best.values.exp().tolist(), best.indices.tolist(), strict=True)
        ]


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def encode_with_masks(text: str, tokens: Tokenizer) -> np.ndarray:
    """[CLS] text [SEP] as ids, int64; [MASK] in the text is the mask, all else is plain."""
    ids = [tokens.cls_id]
    for number, part in enumerate(tokens.encode_batch(without_surrogates(text).split(MASK))):
        if number:
            ids.append(tokens.mask_id)
        ids.extend(part.tolist())
    return np.array([*ids, tokens.sep_id], dtype=np.int64)
