"""Documents of sentences -> documents of token ids, on every core."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bertpt.build.arrow import to_strings
from bertpt.build.cached_tokenizer import ChunkTokenizer
from bertpt.build.documents import (
    DOCUMENTS,
    DocumentWriter,
    StoredDocuments,
    map_array,
    release,
)
from bertpt.build.duplicates import (
    count_repeated,
    document_hashes,
    hash_parts,
    is_first,
    keep_sentences,
)
from bertpt.build.workers import Workers
from bertpt.corpus.corpus import Piece
from bertpt.progress import Progress
from bertpt.tokenizer.tokenizer import load_tokenizer

CHARS_PER_TASK = 1 << 19
HASHES = "hashes"  # a file with the hash of each sentence


def tokenize(
    documents: Iterable[Piece],
    tokenizer_path: Path,
    folder: Path,
    dtype: np.dtype,
    *,
    workers: Workers,
    progress: Progress,
    dedup: str = "none",
    num_sentences: int | None = None,
    is_large: bool = False,
) -> tuple[StoredDocuments, dict[str, Any]]:
    """Tokenize documents; drop sentences without tokens.

    Args:
        documents: pieces of documents, in order.
        tokenizer_path: a tokenizer folder.
        folder: where to write the ids.
        dtype: of the ids.
        workers: processes to use.
        progress: where to report progress.
        dedup: leave out repeated "sentences" or "documents", or "none".
        num_sentences: in all documents, if known.
        is_large: whether to start all workers at once.

    Returns:
        The stored documents, and counts of the text:

        - characters: in all sentences, spaces included.
        - empty_sentences: sentences dropped.
        - duplicate_sentences: sentences with the same ids as an earlier one.
        - duplicate_documents: documents with the same sentences as an earlier one.
        - removed_sentences, removed_documents, removed_tokens: what `dedup` left out.
        - longest_document: the number of sentences in the longest of those that are left.
        - text_sha256: of the ids of all documents, repeated ones too; independent of file names and
          compression.
    """
    num_empty = num_chars = 0
    ends: deque[np.ndarray] = deque()  # `is_last` of the batches being tokenized

    def tasks() -> Iterator[tuple[Path, np.dtype, pa.StringArray]]:
        for sentences, is_last in _batches(documents):
            ends.append(is_last)
            yield tokenizer_path, dtype, to_strings(sentences)

    if is_large:
        workers.start(partial(_chunk_tokenizer, tokenizer_path))
    with (
        closing(DocumentWriter(folder, dtype)) as writer,
        (folder / HASHES).open("wb") as hashes,
        progress.bar("tokenizing", unit="sentence", unit_scale=True, total=num_sentences) as bar,
    ):
        for encoded in workers.map(_encode, tasks()):
            writer.add(encoded.ids, encoded.lengths, ends.popleft())
            num_empty += int((encoded.lengths == 0).sum())
            num_chars += encoded.num_chars
            hashes.write(encoded.hashes)
            bar.update(len(encoded.lengths))
        _chunk_tokenizer.cache_clear()
        stored = writer.finish()
    found, mapped = map_array(folder / HASHES, np.dtype(np.uint64))
    document_ends = np.load(folder / DOCUMENTS)
    digest = hashlib.sha256(found.data)
    digest.update(document_ends.data)
    of_documents = document_hashes(found, document_ends)
    kept = stored
    if dedup != "none":
        is_kept = (
            is_first(found)
            if dedup == "sentences"
            else np.repeat(is_first(of_documents), np.diff(document_ends))
        )
        kept = keep_sentences(stored, is_kept, document_ends, folder)
    counts = {
        "characters": num_chars,
        "empty_sentences": num_empty,
        "duplicate_sentences": count_repeated(found),
        "duplicate_documents": count_repeated(of_documents),
        "removed_sentences": stored.num_sentences - kept.num_sentences,
        "removed_documents": len(stored) - len(kept),
        "removed_tokens": stored.num_tokens - kept.num_tokens,
        "longest_document": int(kept.lengths.max(initial=0)),
        "text_sha256": digest.hexdigest(),
    }
    release(mapped)
    (folder / HASHES).unlink()
    return kept, counts


def _batches(documents: Iterable[Piece]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield sentences and their `is_last`, about `CHARS_PER_TASK` characters at a time."""
    sentences: list[str] = []
    is_last: list[bool] = []
    num_chars = 0
    for piece in documents:
        for sentence in piece.sentences:
            sentences.append(sentence)
            is_last.append(False)
            num_chars += len(sentence)
            if num_chars >= CHARS_PER_TASK and len(is_last) > 1:
                # Keep back the last sentence: its document may end with it.
                yield sentences[:-1], np.array(is_last[:-1])
                sentences, is_last, num_chars = [sentence], [False], len(sentence)
        if piece.ends_document and is_last:
            is_last[-1] = True
    yield sentences, np.array(is_last, dtype=bool)


class _Encoded(NamedTuple):
    ids: np.ndarray
    lengths: np.ndarray
    num_chars: int
    hashes: bytearray


def _encode(task: tuple[Path, np.dtype, pa.StringArray]) -> _Encoded:
    tokenizer_path, dtype, sentences = task
    ids, lengths = _chunk_tokenizer(tokenizer_path).encode(sentences)
    ids = ids.astype(dtype)
    kept_ends = lengths.cumsum()[lengths > 0]
    return _Encoded(
        ids,
        lengths.astype(np.int32),
        num_chars=pc.sum(pc.utf8_length(sentences)).as_py() or 0,
        hashes=hash_parts(ids.tobytes(), kept_ends * dtype.itemsize),
    )


@lru_cache(maxsize=1)
def _chunk_tokenizer(path: Path) -> ChunkTokenizer:
    return ChunkTokenizer(load_tokenizer(path))
