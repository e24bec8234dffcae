"""Tokenized documents: views of one flat array, written once and read through a memory map."""

import mmap
import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

TOKENS_AT_ONCE = 1 << 20
TOKENS, SENTENCES, DOCUMENTS = "tokens", "sentence_ends.npy", "document_ends.npy"


class DocumentWriter:
    """Writes documents to a flat file of token ids.

    Args:
        folder: where to make its files.
        dtype: uint16, or int32 where the vocabulary needs it.
    """

    def __init__(self, folder: Path, dtype: np.dtype) -> None:
        self._folder = folder
        self._dtype = dtype
        folder.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = (folder / TOKENS).open("wb")
        self._sentence_ends = array("q", [0])
        self._document_ends = array("q", [0])

    def add(self, ids: np.ndarray, lengths: np.ndarray, is_last: np.ndarray) -> None:
        """Adds sentences; those without ids, and documents without sentences, are not kept.

        Args:
            ids: of all the sentences, one after another.
            lengths: how many ids each sentence has. (sentences,)
            is_last: whether a document ends with the sentence. (sentences,)
        """
        self._file.write(ids.astype(self._dtype, copy=False).tobytes())
        is_kept = lengths > 0
        before, num_sentences = self._sentence_ends[-1], len(self._sentence_ends) - 1
        _extend(self._sentence_ends, before + lengths.cumsum()[is_kept])
        ends = num_sentences + is_kept.cumsum()[is_last]
        is_filled = np.diff(ends, prepend=self._document_ends[-1]) > 0
        _extend(self._document_ends, ends[is_filled])

    def close(self) -> None:
        """Closes the file; harmless when it is closed."""
        self._file.close()

    def finish(self) -> "StoredDocuments":
        """Closes the file and opens it for reading."""
        self.close()
        for name, ends in ((SENTENCES, self._sentence_ends), (DOCUMENTS, self._document_ends)):
            save_array(self._folder / name, np.frombuffer(ends, dtype=np.int64))
        return StoredDocuments.open(self._folder, self._dtype)


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes a .npy file; unlike np.save, it lets the system say what is wrong."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def _extend(numbers: "array[int]", more: np.ndarray) -> None:
    numbers.frombytes(more.astype(np.int64).tobytes())


class StoredDocuments:
    """The documents of a `DocumentWriter`, or some of them.

    A run of a document's sentences is a slice of `tokens`, between two of its `ends`.

    Args:
        tokens: all ids, one document after another.
        sentence_ends: 0, then where each sentence ends in `tokens`.
        document_ends: 0, then where each document ends in `sentence_ends`.
        numbers: the documents meant, in order; all by default.
        source: the map that the tokens are read through, if there is one.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        sentence_ends: np.ndarray,
        document_ends: np.ndarray,
        numbers: np.ndarray | None = None,
        source: mmap.mmap | None = None,
    ) -> None:
        self.tokens = tokens
        self.sentence_ends = sentence_ends
        self._source = source
        self._document_ends = document_ends
        self._numbers = np.arange(len(document_ends) - 1) if numbers is None else numbers

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sequence[int]]]) -> "StoredDocuments":
        """Keeps documents, lists of sentences of ids, in memory."""
        sentences = [sentence for document in documents for sentence in document]
        tokens = np.array([token for sentence in sentences for token in sentence], dtype=np.int32)
        return cls(
            tokens, np.cumsum([0, *map(len, sentences)]), np.cumsum([0, *map(len, documents)])
        )

    @classmethod
    def open(cls, folder: Path, dtype: np.dtype) -> "StoredDocuments":
        """Opens what a `DocumentWriter` wrote, through memory maps."""
        sentences, documents = (
            # Slicing a plain array is much faster than slicing np.memmap, which is a view of one.
            np.load(folder / name, mmap_mode="r").view(np.ndarray)
            for name in (SENTENCES, DOCUMENTS)
        )
        with (folder / TOKENS).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                return cls(np.zeros(0, dtype), sentences, documents)
            source = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return cls(np.frombuffer(source, dtype), sentences, documents, source=source)

    def release(self) -> None:
        """Lets go of the memory that reading took; what is read again comes from the file again."""
        if self._source is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._source.madvise(mmap.MADV_DONTNEED)

    def __len__(self) -> int:
        return len(self._numbers)

    def ends(self, number: int) -> np.ndarray:
        """Where a document's first sentence begins in `tokens`, then where each of them ends."""
        document = self._numbers[number]
        first, last = self._document_ends[document], self._document_ends[document + 1]
        return self.sentence_ends[first : last + 1]

    @property
    def lengths(self) -> np.ndarray:
        """Sentences in each of these documents."""
        return np.diff(self._document_ends)[self._numbers]

    @property
    def num_sentences(self) -> int:
        """Sentences in these documents."""
        return int(self.lengths.sum())

    @property
    def num_tokens(self) -> int:
        """Tokens in these documents."""
        ends = self.sentence_ends[self._document_ends]
        return int((ends[self._numbers + 1] - ends[self._numbers]).sum())

    @property
    def num_single_sentences(self) -> int:
        """How many of these documents have only one sentence."""
        return int((self.lengths == 1).sum())

    def num_tokens_before(self) -> np.ndarray:
        """Tokens before each of these documents, and in all of them: int64, (documents + 1,)."""
        ends = self.sentence_ends[self._document_ends]
        return np.cumsum([0, *(ends[self._numbers + 1] - ends[self._numbers])])

    def count_tokens(
        self, vocab_size: int, *, on_tokens: Callable[[int], object] | None = None
    ) -> np.ndarray:
        """How often each id occurs in these documents: int64, (vocab_size,).

        `on_tokens` is told how many were counted.
        """
        counts = np.zeros(vocab_size, dtype=np.int64)
        ends = self.sentence_ends[self._document_ends]
        # Documents that stand side by side are counted in one go.
        for run in np.split(self._numbers, np.flatnonzero(np.diff(self._numbers) != 1) + 1):
            if len(run):
                start, end = int(ends[run[0]]), int(ends[run[-1] + 1])
                for first in range(start, end, TOKENS_AT_ONCE):
                    ids = self.tokens[first : min(first + TOKENS_AT_ONCE, end)]
                    counts += np.bincount(ids, minlength=vocab_size)
                    self.release()
                    if on_tokens:
                        on_tokens(len(ids))
        return counts

    def part(self, numbers: np.ndarray) -> "StoredDocuments":
        """Only the documents of these numbers."""
        return StoredDocuments(
            self.tokens,
            self.sentence_ends,
            self._document_ends,
            self._numbers[numbers],
            self._source,
        )
