"""Tokenized documents: views of one flat array, written once and read through a memory map."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np


class Document:
    """Sentences of token ids, side by side in one array.

    Args:
        tokens: the array, which may hold more than this document.
        ends: where the first sentence starts, then where each ends. (sentences + 1,)
    """

    def __init__(self, tokens: np.ndarray, ends: np.ndarray) -> None:
        self._tokens = tokens
        self.ends = ends

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]]) -> "Document":
        """Makes one from lists of ids."""
        arrays = [np.asarray(sentence, dtype=np.int32) for sentence in sentences]
        return cls(np.concatenate(arrays), np.cumsum([0, *map(len, arrays)]))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.tokens(i, i + 1) for i in range(len(self)))

    def tokens(self, start: int, end: int) -> np.ndarray:
        """The ids of sentences `start` to `end` (exclusive), joined."""
        return self._tokens[self.ends[start] : self.ends[end]]


class Documents(Protocol):
    """Anything that hands out documents by number; a list of them, too."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Document: ...


class DocumentWriter:
    """Writes documents to a flat file of token ids, sentence by sentence.

    Args:
        path: the file to make.
        dtype: uint16, or int32 where the vocabulary needs it.
    """

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.path = path
        self.dtype = dtype
        self._file: BinaryIO = path.open("wb")
        self._sentence_ends = array("q", [0])
        self._document_ends = array("q", [0])

    def add_sentence(self, ids: np.ndarray) -> None:
        """Adds a sentence to the document being written; one without ids is not kept."""
        if len(ids):
            self._file.write(ids.astype(self.dtype).tobytes())
            self._sentence_ends.append(self._sentence_ends[-1] + len(ids))

    def end_document(self) -> None:
        """Ends a document; one without sentences is not kept."""
        if len(self._sentence_ends) - 1 > self._document_ends[-1]:
            self._document_ends.append(len(self._sentence_ends) - 1)

    def close(self) -> None:
        """Closes the file; harmless when it is closed."""
        self._file.close()

    def finish(self) -> "StoredDocuments":
        """Closes the file and opens it for reading."""
        self.close()
        empty = self._sentence_ends[-1] == 0  # and an empty file cannot be mapped
        return StoredDocuments(
            np.zeros(0, self.dtype) if empty else np.memmap(self.path, self.dtype, mode="r"),
            np.frombuffer(self._sentence_ends, dtype=np.int64),
            np.frombuffer(self._document_ends, dtype=np.int64),
        )


class StoredDocuments:
    """The documents of a `DocumentWriter`, or some of them.

    Args:
        tokens: all ids.
        sentence_ends: 0, then where each sentence ends in `tokens`.
        document_ends: 0, then where each document ends in `sentence_ends`.
        numbers: the documents meant, in order; all by default.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        sentence_ends: np.ndarray,
        document_ends: np.ndarray,
        numbers: np.ndarray | None = None,
    ) -> None:
        self._tokens = tokens
        self._sentence_ends = sentence_ends
        self._document_ends = document_ends
        self._numbers = np.arange(len(document_ends) - 1) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: int) -> Document:
        document = self._numbers[number]
        first, last = self._document_ends[document], self._document_ends[document + 1]
        return Document(self._tokens, self._sentence_ends[first : last + 1])

    @property
    def _lengths(self) -> np.ndarray:
        """Sentences in each of these documents."""
        return np.diff(self._document_ends)[self._numbers]

    @property
    def num_sentences(self) -> int:
        """Sentences in these documents."""
        return int(self._lengths.sum())

    @property
    def num_tokens(self) -> int:
        """Tokens in these documents."""
        ends = self._sentence_ends[self._document_ends]
        return int((ends[self._numbers + 1] - ends[self._numbers]).sum())

    @property
    def num_single_sentences(self) -> int:
        """How many of these documents have only one sentence."""
        return int((self._lengths == 1).sum())

    def count_tokens(self, vocab_size: int) -> np.ndarray:
        """How often each id occurs in these documents: int64, (vocab_size,)."""
        counts = np.zeros(vocab_size, dtype=np.int64)
        for number in range(len(self)):
            document = self[number]
            ids, times = np.unique(document.tokens(0, len(document)), return_counts=True)
            counts[ids] += times
        return counts

    def part(self, numbers: np.ndarray) -> "StoredDocuments":
        """Only the documents of these numbers."""
        return StoredDocuments(
            self._tokens, self._sentence_ends, self._document_ends, self._numbers[numbers]
        )
