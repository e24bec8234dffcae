"""Tokenizing each distinct chunk between spaces only once, since most of them repeat."""

import re
from collections.abc import Sequence

import numpy as np

from bertpt.data.tokenizer import Tokenizer

# Marks that BERT splits at wherever they stand, and that no cleaning changes.
MARKS = re.compile(r"([!-/:-@\[-`{-~\u2013\u2014\u2018\u2019\u201c\u201d\u2026])")
MAX_CHUNKS = 1 << 19
MAX_CHARS = 1 << 24  # text without spaces makes few chunks, but long ones


class ChunkTokenizer:
    """Gives the ids that a tokenizer gives, mostly from memory.

    BERT's cleaning and splitting look at one character at a time, and no word piece crosses a
    space or a punctuation mark, so the ids of a text are those of its chunks between ASCII spaces,
    one after another, and those of a chunk are those of its parts at common marks. A tokenizer of
    another make is asked for each text as a whole.

    Args:
        tokenizer: what decides the ids.
        max_chunks: how many chunks to remember before starting anew; changes no id.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_chunks: int = MAX_CHUNKS) -> None:
        self._tokenizer = tokenizer
        self._max_chunks = max_chunks
        self._forget()

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._ids_of_part: dict[str, list[int]] = {}
        self._num_known = self._num_chars = 0
        self._ids = np.zeros(0, dtype=np.int32)  # of all chunks, one after another
        self._ends = np.zeros(1, dtype=np.int64)  # 0, then where each chunk ends in them

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of some texts, no [CLS] or [SEP] added.

        Returns:
            The ids of all of them, one after another, int32, and how many each text has, int64.
        """
        if not texts:
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
        if not self._tokenizer.splits_at_spaces:
            encoded = self._tokenizer.encode_batch(texts)
            return np.concatenate(encoded), np.array([len(ids) for ids in encoded])
        split = [text.split(" ") for text in texts]
        chunks = [chunk for part in split for chunk in part]
        numbers = np.fromiter(map(self._numbers.__getitem__, chunks), np.int64, len(chunks))
        self._learn()
        starts, lengths = self._ends[numbers], np.diff(self._ends)[numbers]
        ends = lengths.cumsum()
        places = np.arange(ends[-1]) + np.repeat(starts - ends + lengths, lengths)
        firsts = np.cumsum([0, *map(len, split)])[:-1]  # a text has one chunk at least
        ids, lengths_of_texts = self._ids[places], np.add.reduceat(lengths, firsts)
        if self._num_known > self._max_chunks or self._num_chars > MAX_CHARS:
            self._forget()
        return ids, lengths_of_texts

    def _learn(self) -> None:
        """Tokenizes the chunks that were met for the first time."""
        new = list(self._numbers)[self._num_known :]
        if new:
            parts = [MARKS.split(chunk) for chunk in new]
            known = self._ids_of_part
            unknown = list({part for chunk in parts for part in chunk} - known.keys())
            encoded = self._tokenizer.encode_batch(unknown)
            known.update(zip(unknown, (ids.tolist() for ids in encoded), strict=True))
            ids = [[i for part in chunk for i in known[part]] for chunk in parts]
            ends = np.cumsum([len(one) for one in ids]) + self._ends[-1]
            flat = np.fromiter((i for one in ids for i in one), np.int32)
            self._ids = np.concatenate([self._ids, flat])
            self._ends = np.concatenate([self._ends, ends])
            self._num_known += len(new)
            self._num_chars += sum(map(len, new))


class _Numbers(dict[str, int]):
    """Numbers chunks in the order in which they are met."""

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = len(self)
        return number
