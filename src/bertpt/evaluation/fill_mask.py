"""Fill each [MASK] of a text with a model's predictions."""

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
    """A model and its tokenizer, to fill masks.

    Args:
        model_path: a run, a checkpoint or a Hugging Face folder.
        device: "auto", "cpu" or "cuda".

    Attributes:
        ignored_note: names the weights in the folder that are not used, or is empty.

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
        """Return the most likely tokens for each [MASK] of a text.

        Args:
            text: a text with at least one [MASK].
            top_k: candidates per mask.
            joint: fill the masks one after another, the most certain first, each with the previous
                ones filled in, instead of each independently.
            mask_word: mask every occurrence of this word, with one mask for each of its tokens.

        Returns:
            text, and masks: for each mask a list of candidates, best first, with token, score
            (its probability), and sequence (the text with this token). With `joint` also order
            (the masks, counted from 0, in the order in which they were filled), sequence (the text
            with all masks filled), and score (the product of the scores of the chosen tokens).

        Raises:
            InputError: the text has no mask, or is too long for the model.
            SettingError: `mask_word` is not in the vocabulary.
        """
        ids = encode_with_masks(text, self.tokenizer)
        if mask_word is not None:
            found = self._find_word(mask_word, ids)
            if not found:
                raise InputError(f"no {mask_word!r} to mask in the text {_beginning(text)}")
            for position in found:
                ids[position] = self.tokenizer.mask_id
        positions = np.flatnonzero(ids == self.tokenizer.mask_id).tolist()
        if not positions:
            raise InputError(f"no {MASK} to fill in the text {_beginning(text)}")
        max_length = self._model.config.max_position_embeddings
        if len(ids) > max_length:
            raise InputError(
                f"the text has {len(ids)} tokens, the model reads at most {max_length}: "
                f"{_beginning(text)}"
            )
        if joint:
            return {"text": text, **self._fill_jointly(ids, positions, top_k)}
        masks = [
            self._candidates(ids, position, log_scores, top_k)
            for position, log_scores in zip(
                positions, self._log_scores(ids, positions), strict=True
            )
        ]
        return {"text": text, "masks": masks}

    def _find_word(self, word: str, ids: np.ndarray) -> list[slice]:
        """Find the occurrences of a word, which do not overlap."""
        wanted = self.tokenizer.encode_batch([without_surrogates(word)])[0]
        if not len(wanted) or self.tokenizer.unk_id in wanted:
            raise SettingError("mask_word", f"{word!r} is not in the vocabulary")
        found: list[slice] = []
        start = 1
        while (end := start + len(wanted)) < len(ids):
            continues = self.tokenizer.continues[ids[end]]
            if np.array_equal(ids[start:end], wanted) and not continues:
                found.append(slice(start, end))
                start = end
            else:
                start += 1
        return found

    def _fill_jointly(self, ids: np.ndarray, positions: list[int], top_k: int) -> dict[str, Any]:
        masks: list[list[dict[str, Any]]] = [[] for _ in positions]
        order: list[int] = []
        ids, log_product = ids.copy(), 0.0
        impossible = torch.from_numpy(self.tokenizer.never_predicted).to(self._device)
        while len(order) < len(positions):
            left = [mask for mask in range(len(positions)) if mask not in order]
            log_scores = self._log_scores(ids, [positions[mask] for mask in left])
            best = log_scores.masked_fill(impossible, -torch.inf).max(dim=-1)
            most_certain = int(best.values.argmax())
            mask, token = left[most_certain], int(best.indices[most_certain])
            masks[mask] = self._candidates(ids, positions[mask], log_scores[most_certain], top_k)
            ids[positions[mask]] = token
            order.append(mask)
            log_product += float(best.values[most_certain])
        return {
            "masks": masks,
            "order": order,
            "sequence": self.tokenizer.text(ids[1:-1]),
            "score": math.exp(log_product),
        }

    @torch.no_grad()
    def _log_scores(self, ids: np.ndarray, positions: Sequence[int]) -> Tensor:
        """Return log probabilities at some positions: (positions, vocabulary)."""
        inputs = torch.from_numpy(ids).to(self._device)[None]
        masked_positions = torch.tensor(positions, device=self._device)
        logits = self._model(inputs, masked_positions=masked_positions).prediction_logits
        # The embedding may have extra rows, as padding.
        return logits[:, : len(self.tokenizer.vocab)].log_softmax(dim=-1)

    def _candidates(
        self, ids: np.ndarray, position: int, log_scores: Tensor, top_k: int
    ) -> list[dict[str, Any]]:
        best = log_scores.topk(min(top_k, len(log_scores)))
        return [
            {
                "token": self.tokenizer.vocab[token],
                "score": score,
                "sequence": self.tokenizer.text([*ids[1:position], token, *ids[position + 1 : -1]]),
            }
            for score, token in zip(best.values.exp().tolist(), best.indices.tolist(), strict=True)
        ]


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def encode_with_masks(text: str, tokenizer: Tokenizer) -> np.ndarray:
    """Encode [CLS] text [SEP] as int64 ids; only [MASK] is special in the text."""
    ids = [tokenizer.cls_id]
    for number, part in enumerate(tokenizer.encode_batch(without_surrogates(text).split(MASK))):
        if number:
            ids.append(tokenizer.mask_id)
        ids.extend(part.tolist())
    return np.array([*ids, tokenizer.sep_id], dtype=np.int64)
