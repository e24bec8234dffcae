"""What a model would put in the place of each [MASK]."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertpt.data import tokenizer
from bertpt.data.tokenizer import Tokenizer
from bertpt.device import choose_device
from bertpt.errors import InputError
from bertpt.evaluation.mlm import require_rows
from bertpt.model.bert import BertForPreTraining
from bertpt.model.folder import MLM_HEAD, find_model, load_model

MASK = "[MASK]"


class MaskFiller:
    """A model with its tokenizer, ready to fill masks.

    Args:
        model_path: a run, a checkpoint or a Hugging Face folder.
        device: "auto", "cpu" or "cuda".
    """

    def __init__(self, model_path: Path, *, device: str = "auto") -> None:
        folder = find_model(model_path)
        self.tokenizer = tokenizer.load(folder)
        self._device = choose_device(device)
        self._model, account = load_model(BertForPreTraining, folder)
        account.require(MLM_HEAD, folder)
        self._model.to(self._device)
        require_rows(self._model.config, len(self.tokenizer.vocab), folder)

    @torch.no_grad()
    def fill(self, text: str, *, top_k: int = 5) -> dict[str, Any]:
        """The likeliest tokens for each [MASK] of a text, each mask on its own.

        Returns:
            text, and masks: for each [MASK] a list of candidates, the best first, with token,
            score (probability), and sequence (the text with the token put in).

        Raises:
            InputError: the text has no [MASK], or is too long for the model.
        """
        ids = encode_with_masks(text, self.tokenizer)
        positions = self._model.config.max_position_embeddings
        if len(ids) > positions:
            raise InputError(
                f"the text has {len(ids)} tokens, and the model reads {positions}: {text[:40]!r}..."
            )
        places = torch.from_numpy(np.flatnonzero(ids == self.tokenizer.mask_id))
        inputs = torch.from_numpy(ids).to(self._device)[None]
        lengths = torch.tensor([len(ids)], device=self._device)
        output = self._model(inputs, torch.zeros_like(inputs), lengths, places.to(self._device))
        # An embedding may be padded with rows that stand for no token.
        logits = output.prediction_logits[:, : len(self.tokenizer.vocab)]
        best = logits.softmax(dim=-1).topk(min(top_k, logits.shape[1]))
        return {
            "text": text,
            "masks": [
                list(self._candidates(ids, int(place), scores, tokens))
                for place, scores, tokens in zip(
                    places, best.values.tolist(), best.indices.tolist(), strict=True
                )
            ],
        }

    def _candidates(
        self, ids: np.ndarray, place: int, scores: Sequence[float], tokens: Sequence[int]
    ) -> Iterator[dict[str, Any]]:
        for score, token in zip(scores, tokens, strict=True):
            filled = ids[1:-1].copy()
            filled[place - 1] = token
            yield {
                "token": self.tokenizer.vocab[token],
                "score": score,
                "sequence": self.tokenizer.text(filled),
            }


def encode_with_masks(text: str, tokens: Tokenizer) -> np.ndarray:
    """[CLS] text [SEP] as ids, int64; [MASK] in the text is the mask, all else is plain.

    Raises:
        InputError: there is no [MASK].
    """
    # A shell hands over bytes that are no UTF-8 as lone surrogates.
    parts = text.encode("utf-8", "replace").decode().split(MASK)
    if len(parts) == 1:
        raise InputError(f"no {MASK} in the text: {text[:60]!r}")
    ids = [tokens.cls_id]
    for number, part in enumerate(tokens.encode_batch(parts)):
        if number:
            ids.append(tokens.mask_id)
        ids.extend(part.tolist())
    return np.array([*ids, tokens.sep_id], dtype=np.int64)
