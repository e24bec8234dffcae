"""Documents of sentences -> documents of token ids, on every core."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path

import numpy as np

from bertpt.data import tokenizer
from bertpt.data.chunks import ChunkTokenizer
from bertpt.data.documents import DocumentWriter, StoredDocuments
from bertpt.data.workers import Workers
from bertpt.progress import Progress

CHARS_PER_TASK = 1 << 20


def tokenize(
    documents: Iterable[list[str]],
    tokenizer_path: Path,
    folder: Path,
    dtype: np.dtype,
    *,
    workers: Workers,
    progress: Progress,
) -> tuple[StoredDocuments, int]:
    """Tokenizes documents; sentences of which nothing is left are dropped.

    Args:
        documents: of sentences, any number of them.
        tokenizer_path: a tokenizer folder.
        folder: where to write the ids.
        dtype: of the ids.
        workers: who does it.
        progress: where to tell how far it is.

    Returns:
        The documents, and how many sentences were dropped.
    """
    num_empty = 0
    ends: deque[np.ndarray] = deque()  # of the batches that are being tokenized

    def tasks() -> Iterator[tuple[Path, np.dtype, list[str]]]:
        for sentences, is_last in _batches(documents):
            ends.append(is_last)
            yield tokenizer_path, dtype, sentences

    with (
        closing(DocumentWriter(folder, dtype)) as writer,
        progress.bar("tokenizing", unit="sentence", unit_scale=True) as bar,
    ):
        for ids, lengths in workers.map(_encode, tasks()):
            writer.add(ids, lengths, ends.popleft())
            num_empty += int((lengths == 0).sum())
            bar.update(len(lengths))
        _chunk_tokenizer.cache_clear()
        return writer.finish(), num_empty


def _batches(documents: Iterable[list[str]]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Sentences, and whether a document ends with each, about `CHARS_PER_TASK` at a time."""
    sentences: list[str] = []
    is_last: list[bool] = []
    num_chars = 0
    for document in documents:
        for sentence in document:
            sentences.append(sentence)
            is_last.append(False)
            num_chars += len(sentence)
            if num_chars >= CHARS_PER_TASK and len(is_last) > 1:
                # The last one is kept back: its document may end with it.
                yield sentences[:-1], np.array(is_last[:-1])
                sentences, is_last, num_chars = [sentence], [False], len(sentence)
        if document:
            is_last[-1] = True
    yield sentences, np.array(is_last, dtype=bool)


def _encode(task: tuple[Path, np.dtype, list[str]]) -> tuple[np.ndarray, np.ndarray]:
    tokenizer_path, dtype, sentences = task
    ids, lengths = _chunk_tokenizer(tokenizer_path).encode(sentences)
    return ids.astype(dtype), lengths.astype(np.int32)


@lru_cache(maxsize=1)
def _chunk_tokenizer(path: Path) -> ChunkTokenizer:
    return ChunkTokenizer(tokenizer.load(path))
