"""Tokenize each distinct chunk of text only once, since most chunks repeat."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bertpt.build.arrow import to_arrow, to_numpy, to_strings
from bertpt.data.ragged import ranges
from bertpt.tokenizer.tokenizer import Tokenizer

# Marks that BERT always splits at and that cleaning does not change; RE2's syntax.
MARKS = "([!-/:-@\\[-`{-~\u2013\u2014\u2018\u2019\u201c\u201d\u2026])"
SPACE = to_strings([" "])[0]
MAX_CHUNKS = 1 << 19
MAX_CHARS = 1 << 24  # text without spaces makes few chunks, but long ones


class ChunkTokenizer:
    """A tokenizer with a cache of chunks; the ids are the same as without it.

    BERT's cleaning and splitting look at single characters, and no word piece crosses a space or
    a punctuation mark. So the ids of a text are the concatenated ids of its chunks between ASCII
    spaces and common marks. Tokenizers of other kinds get full texts instead.

    Args:
        tokenizer: the tokenizer to cache.
        max_chunks: size of the cache before it is cleared.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_chunks: int = MAX_CHUNKS) -> None:
        self._tokenizer = tokenizer
        self._max_chunks = max_chunks
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        self._num_known = self._num_chars = 0
        self._ids = np.zeros(0, dtype=np.int32)  # of all chunks, concatenated
        self._ends = np.zeros(1, dtype=np.int64)  # 0, then the end of each chunk in `_ids`

    def encode(self, texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize texts, without [CLS] and [SEP].

        Returns:
            The ids of all texts, concatenated, int32, and the number of ids in each text, int64.
        """
        if not len(texts):
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
        if not self._tokenizer.splits_at_spaces:
            encoded = self._tokenizer.encode_batch(texts.to_pylist())
            return np.concatenate(encoded), np.array([len(ids) for ids in encoded])
        split = pc.split_pattern(pc.replace_substring_regex(texts, MARKS, r" \1 "), " ")
        chunks = split.values.dictionary_encode()
        numbers = self._numbers_of(_strings(chunks.dictionary))[to_numpy(chunks.indices)]
        lengths = np.diff(self._ends)[numbers]
        ids = self._ids[ranges(self._ends[numbers], lengths)]
        # Every text has at least one chunk.
        lengths_of_texts = np.add.reduceat(lengths, to_numpy(split.offsets)[:-1])
        if self._num_known > self._max_chunks or self._num_chars > MAX_CHARS:
            self._clear()
        return ids, lengths_of_texts

    def _numbers_of(self, chunks: list[str]) -> np.ndarray:
        """Return the numbers of chunks, and tokenize new ones."""
        numbers = np.fromiter(map(self._numbers.__getitem__, chunks), np.int64, len(chunks))
        if new := list(self._numbers)[self._num_known :]:
            encoded = self._tokenizer.encode_batch(new)
            ends = np.cumsum([len(ids) for ids in encoded]) + self._ends[-1]
            self._ids = np.concatenate([self._ids, *encoded])
            self._ends = np.concatenate([self._ends, ends])
            self._num_known += len(new)
            self._num_chars += sum(map(len, new))
        return numbers


def _strings(chunks: pa.StringArray) -> list[str]:
    """Convert to Python strings, faster than to_pylist, since no chunk contains a space."""
    one_list = pa.ListArray.from_arrays(to_arrow(np.array([0, len(chunks)], np.int32)), chunks)
    joined = pc.binary_join(one_list, SPACE)
    words: list[str] = joined[0].as_py().split(" ")
    return words


class _Numbers(dict[str, int]):
    """Numbers chunks in the order of their first occurrence."""

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = len(self)
        return number
