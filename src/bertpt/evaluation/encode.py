"""Encode texts, or each of their tokens, as vectors."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertpt.compat import require_rows
from bertpt.config import EncodeConfig
from bertpt.config.data import IGNORE_INDEX
from bertpt.data.batches import Batch, collate
from bertpt.data.example import Example
from bertpt.device import autocast, choose_device, choose_precision
from bertpt.errors import InputError, SettingError
from bertpt.model.bert import BertModel, mean_of_tokens
from bertpt.model.hf_files import find_model
from bertpt.model.pretrained import POOLER, load_model
from bertpt.text import without_surrogates
from bertpt.tokenizer.tokenizer import load_tokenizer

# Batches to read ahead and sort by length; fewer for "tokens", whose vectors take more memory.
BATCHES_AHEAD = {"mean": 64, "cls": 64, "pooler": 64, "tokens": 4}
NO_MASKS = np.zeros(0, dtype=np.int64)


class Encoded(NamedTuple):
    """A text and its vectors.

    Attributes:
        text: the text or pair, as given.
        tokens: its ids, including [CLS] and [SEP]. (L,)
        vectors: float32 (H,), or (L, H) with pooling "tokens".
        is_cut: whether the text was longer than the model's maximum and was truncated.
    """

    text: str | tuple[str, str]
    tokens: np.ndarray
    vectors: np.ndarray
    is_cut: bool


class TextEncoder:
    """A model and its tokenizer, to encode texts.

    Args:
        model_path: a run, a checkpoint or a Hugging Face folder.
        config: which vectors, and where to compute.

    Attributes:
        hidden_size: width of a vector.
        max_tokens: longest text, including [CLS] and [SEP].
        tokenizer: the model's tokenizer.
        ignored_note: names the weights in the folder that are not used, or is empty.

    Raises:
        BertptError: the folder is damaged or lacks a required part.
    """

    def __init__(self, model_path: Path, config: EncodeConfig) -> None:
        self._config = config
        folder = find_model(model_path)
        self.tokenizer = load_tokenizer(folder)
        self._device = choose_device(config.device)
        self._precision = choose_precision(config.precision, self._device)
        self._model, report = load_model(BertModel, folder)
        if config.pooling == "pooler":
            report.require(POOLER, folder)
        self._shape = self._model.config
        self.max_tokens = self._shape.max_position_embeddings
        require_rows(self._shape, len(self.tokenizer.vocab), folder)
        num_layers = self._shape.num_hidden_layers
        if config.layer is not None and config.layer > num_layers:
            raise SettingError(
                "layer", f"{config.layer} is above the {num_layers} layers of {folder}"
            )
        # Do not compute the layers above the requested one.
        self._model.encoder.layer = self._model.encoder.layer[: config.layer]
        self._model.to(self._device)
        self.hidden_size = self._shape.hidden_size
        self.ignored_note = report.ignored_note()

    def encode(
        self,
        texts: Iterable[str | tuple[str, str]],
        *,
        on_batch: Callable[[int], object] = lambda _: None,
    ) -> Iterator[Encoded]:
        """Yield the vectors of each text, or pair of texts, in order.

        Texts are read ahead and batched by length; memory does not grow with their number. As in
        transformers, a text that is too long for the model is truncated at its end, and a pair at
        the end of the longer text.

        Args:
            texts: texts or pairs, possibly endless.
            on_batch: called with the number of texts after each batch.

        Raises:
            InputError: a pair was given to a model with one segment type.
        """
        texts = iter(texts)
        num_ahead = BATCHES_AHEAD[self._config.pooling] * self._config.batch_size
        while ahead := list(islice(texts, num_ahead)):
            yield from self._encode_sorted(ahead, on_batch)

    def _encode_sorted(
        self, texts: Sequence[str | tuple[str, str]], on_batch: Callable[[int], object]
    ) -> list[Encoded]:
        examples, are_cut = self._examples(texts)
        order = np.argsort([len(example.input_ids) for example in examples], kind="stable")
        vectors: dict[int, np.ndarray] = {}
        for start in range(0, len(order), self._config.batch_size):
            rows = order[start : start + self._config.batch_size].tolist()
            batch = collate([examples[row] for row in rows], pad_id=self.tokenizer.pad_id)
            vectors.update(zip(rows, self._vectors(batch), strict=True))
            on_batch(len(rows))
        return [
            Encoded(texts[row], example.input_ids, vectors[row], is_cut)
            for row, (example, is_cut) in enumerate(zip(examples, are_cut, strict=True))
        ]

    def _examples(self, texts: Sequence[str | tuple[str, str]]) -> tuple[list[Example], list[bool]]:
        """Return [CLS] A [SEP] or [CLS] A [SEP] B [SEP], and whether it was truncated."""
        parts = [(text,) if isinstance(text, str) else text for text in texts]
        flat = [without_surrogates(part) for pair in parts for part in pair]
        ids = iter(self.tokenizer.encode_batch(flat))
        examples, are_cut = [], []
        for pair in parts:
            segments = [next(ids) for _ in pair]
            if len(segments) > self._shape.type_vocab_size:
                raise InputError("the model has type_vocab_size 1; it cannot encode pairs")
            room = self.max_tokens - 1 - len(segments)
            kept = _truncate(segments, room)
            are_cut.append(sum(map(len, kept)) < sum(map(len, segments)))
            examples.append(self._example(kept))
        return examples, are_cut

    def _example(self, segments: Sequence[np.ndarray]) -> Example:
        cls, sep = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        input_ids = np.concatenate([cls, *(part for ids in segments for part in (ids, sep))])
        b_start = 2 + len(segments[0])  # the length if there is no B
        return Example(input_ids, b_start, IGNORE_INDEX, NO_MASKS, NO_MASKS)

    @torch.no_grad()
    def _vectors(self, batch: Batch) -> list[np.ndarray]:
        config, batch = self._config, batch.to(self._device)
        with autocast(self._device, self._precision):
            output = self._model(batch.input_ids, batch.token_type_ids, batch.lengths)
        hidden: Tensor = output.last_hidden_state.float()
        if config.pooling == "pooler":
            hidden = output.pooler_output.float()
        elif config.pooling == "cls":
            hidden = hidden[:, 0]
        elif config.pooling == "mean":
            hidden = mean_of_tokens(hidden, batch.lengths)
        if config.normalize:
            hidden = F.normalize(hidden, dim=-1)
        vectors = list(hidden.cpu().numpy())
        if config.pooling == "tokens":
            vectors = [
                v[:length] for v, length in zip(vectors, batch.lengths.tolist(), strict=True)
            ]
        return vectors


def _truncate(segments: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """Truncate segments to `room` tokens: first the longer one, then both to equal lengths."""
    if len(segments) == 1:
        return [segments[0][:room]]
    shorter, longer = sorted((0, 1), key=lambda which: len(segments[which]))
    kept = min(len(segments[shorter]), room // 2)
    lengths = {shorter: kept, longer: room - kept}
    return [segments[which][: lengths[which]] for which in (0, 1)]
