"""Tokenized documents: one flat array, written once and read through a memory map."""

import mmap
import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

TOKENS_AT_ONCE = 1 << 20
TOKENS, SENTENCES, DOCUMENTS = "tokens", "sentence_ends", "document_ends.npy"


class DocumentWriter:
    """Writes documents to a flat file of token ids.

    Args:
        folder: where to create its files.
        dtype: of the ids.
    """

    def __init__(self, folder: Path, dtype: np.dtype) -> None:
        self._folder = folder
        self._dtype = dtype
        folder.mkdir(parents=True, exist_ok=True)
        self._tokens: BinaryIO = (folder / TOKENS).open("wb")
        self._sentence_ends: BinaryIO = (folder / SENTENCES).open("wb")
        self._num_tokens = self._num_sentences = 0
        self._document_ends = array("q", [0])
        try:
            self._sentence_ends.write(np.zeros(1, np.int64).tobytes())
        except OSError:
            self.close()
            raise

    def add(self, ids: np.ndarray, lengths: np.ndarray, is_last: np.ndarray) -> None:
        """Add sentences; empty sentences and empty documents are dropped.

        Args:
            ids: of all sentences, concatenated.
            lengths: number of ids in each sentence. (sentences,)
            is_last: whether each sentence is the last of its document. (sentences,)
        """
        self._tokens.write(ids.astype(self._dtype, copy=False).tobytes())
        is_kept = lengths > 0
        sentence_ends = self._num_tokens + lengths.cumsum(dtype=np.int64)[is_kept]
        self._sentence_ends.write(sentence_ends.tobytes())
        ends = self._num_sentences + is_kept.cumsum()[is_last]
        is_filled = np.diff(ends, prepend=self._document_ends[-1]) > 0
        self._document_ends.frombytes(ends[is_filled].astype(np.int64).tobytes())
        self._num_tokens += int(lengths.sum())
        self._num_sentences += int(is_kept.sum())

    def close(self) -> None:
        """Close the files, if they are open."""
        self._tokens.close()
        self._sentence_ends.close()

    def finish(self) -> "StoredDocuments":
        """Close the files and open them for reading."""
        self.close()
        document_ends = np.frombuffer(self._document_ends, dtype=np.int64)
        save_array(self._folder / DOCUMENTS, document_ends)
        return StoredDocuments.open(self._folder, self._dtype)


def save_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file; unlike np.save, raise the system's OSError."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def map_array(path: Path, dtype: np.dtype) -> tuple[np.ndarray, mmap.mmap | None]:
    """Map a file of numbers into memory; an empty file has no map."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # mmap rejects an empty file
            return np.zeros(0, dtype), None
        source = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Slicing a plain array is much faster than slicing an np.memmap.
    return np.frombuffer(source, dtype), source


def release(source: mmap.mmap | None) -> None:
    """Free the memory of pages that were read; they can be read again."""
    if source is not None and hasattr(mmap, "MADV_DONTNEED"):
        source.madvise(mmap.MADV_DONTNEED)


class StoredDocuments:
    """The documents of a `DocumentWriter`, or a selection of them.

    Consecutive sentences of a document are a slice of `tokens`, between two of its `ends`.

    Args:
        tokens: ids of all documents, concatenated.
        sentence_ends: 0, then the end of each sentence in `tokens`.
        document_ends: 0, then the end of each document in `sentence_ends`.
        numbers: the selected documents, in order; all by default.
        sources: the memory maps of `tokens` and `sentence_ends`, if there are any.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        sentence_ends: np.ndarray,
        document_ends: np.ndarray,
        numbers: np.ndarray | None = None,
        sources: Sequence[mmap.mmap | None] = (),
    ) -> None:
        self.tokens = tokens
        self.sentence_ends = sentence_ends
        self._sources = sources
        self._document_ends = document_ends
        self._numbers = np.arange(len(document_ends) - 1) if numbers is None else numbers

    @classmethod
    def from_lists(cls, documents: Sequence[Sequence[Sequence[int]]]) -> "StoredDocuments":
        """Create documents in memory from lists of sentences of ids."""
        sentences = [sentence for document in documents for sentence in document]
        tokens = np.array([token for sentence in sentences for token in sentence], dtype=np.int32)
        return cls(
            tokens, np.cumsum([0, *map(len, sentences)]), np.cumsum([0, *map(len, documents)])
        )

    @classmethod
    def open(cls, folder: Path, dtype: np.dtype) -> "StoredDocuments":
        """Open the files of a `DocumentWriter` as memory maps."""
        tokens, of_tokens = map_array(folder / TOKENS, dtype)
        sentence_ends, of_ends = map_array(folder / SENTENCES, np.dtype(np.int64))
        document_ends = np.load(folder / DOCUMENTS, mmap_mode="r").view(np.ndarray)
        return cls(tokens, sentence_ends, document_ends, sources=(of_tokens, of_ends))

    def release_memory(self) -> None:
        """Free the memory of pages that were read; they can be read again."""
        for source in self._sources:
            release(source)

    def __len__(self) -> int:
        return len(self._numbers)

    def ends(self, number: int) -> np.ndarray:
        """Return the start of a document in `tokens`, then the end of each sentence."""
        document = self._numbers[number]
        first, last = self._document_ends[document], self._document_ends[document + 1]
        return self.sentence_ends[first : last + 1]

    @property
    def lengths(self) -> np.ndarray:
        """Number of sentences in each document."""
        return np.diff(self._document_ends)[self._numbers]

    @property
    def num_sentences(self) -> int:
        """Number of sentences in all documents."""
        return int(self.lengths.sum())

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all documents."""
        ends = self.sentence_ends[self._document_ends]
        return int((ends[self._numbers + 1] - ends[self._numbers]).sum())

    @property
    def num_single_sentences(self) -> int:
        """Number of documents with a single sentence."""
        return int((self.lengths == 1).sum())

    def num_tokens_before(self) -> np.ndarray:
        """Return the tokens before each document, then in all: int64, (documents + 1,)."""
        ends = self.sentence_ends[self._document_ends]
        return np.cumsum([0, *(ends[self._numbers + 1] - ends[self._numbers])])

    def count_tokens(
        self, vocab_size: int, *, on_tokens: Callable[[int], object] | None = None
    ) -> np.ndarray:
        """Count the occurrences of each id: int64, (vocab_size,).

        `on_tokens` is called with the number of tokens counted since the last call.
        """
        counts = np.zeros(vocab_size, dtype=np.int64)
        ends = self.sentence_ends[self._document_ends]
        # Count adjacent documents together.
        for run in np.split(self._numbers, np.flatnonzero(np.diff(self._numbers) != 1) + 1):
            if len(run):
                start, end = int(ends[run[0]]), int(ends[run[-1] + 1])
                for first in range(start, end, TOKENS_AT_ONCE):
                    ids = self.tokens[first : min(first + TOKENS_AT_ONCE, end)]
                    counts += np.bincount(ids, minlength=vocab_size)
                    self.release_memory()
                    if on_tokens:
                        on_tokens(len(ids))
        return counts

    def select(self, numbers: np.ndarray) -> "StoredDocuments":
        """Return a selection of these documents."""
        return StoredDocuments(
            self.tokens,
            self.sentence_ends,
            self._document_ends,
            self._numbers[numbers],
            self._sources,
        )
