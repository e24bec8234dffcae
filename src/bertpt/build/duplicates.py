"""Repeated sentences and documents, found by their hashes."""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from bertpt.build.documents import DocumentWriter, StoredDocuments

# Ten million different sentences have two equal hashes in one of 370,000 runs.
HASH_BYTES = 8
SENTENCES_AT_ONCE = 1 << 16
HASHES_AT_ONCE = 1 << 21


def hash_parts(data: "bytes | memoryview", ends: np.ndarray) -> bytearray:
    """Hash consecutive parts of `data` to `HASH_BYTES` each.

    Args:
        data: the parts, concatenated.
        ends: the end of each part, int64.
    """
    view, start, hashes = memoryview(data), 0, bytearray()
    for end in ends.data:
        hashes += hashlib.blake2b(view[start:end], digest_size=HASH_BYTES).digest()
        start = end
    return hashes


def count_repeated(hashes: np.ndarray) -> int:
    """Return how many hashes equal an earlier one."""
    num_repeated = 0
    for numbers in _buckets(hashes):
        # Not np.unique: it may build a hash table, which takes several times the memory.
        in_order = np.sort(hashes[numbers])
        num_repeated += int((in_order[1:] == in_order[:-1]).sum())
    return num_repeated


def _buckets(hashes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the indices of all hashes in parts, such that equal hashes are in the same part.

    Sorting part by part takes a fraction of the memory.
    """
    num_buckets = 1 << (len(hashes) // HASHES_AT_ONCE).bit_length()
    mask = np.uint64(num_buckets - 1)
    for bucket in range(num_buckets):
        parts = [
            start + np.flatnonzero(hashes[start : start + HASHES_AT_ONCE] & mask == bucket)
            for start in range(0, len(hashes), HASHES_AT_ONCE)
        ]
        yield np.concatenate(parts) if parts else np.zeros(0, np.int64)


def document_hashes(hashes: np.ndarray, document_ends: np.ndarray) -> np.ndarray:
    """Return the hash of each document: uint64, (documents,).

    Args:
        hashes: of all sentences, uint64.
        document_ends: 0, then the end of each document in `hashes`.
    """
    found = hash_parts(hashes.data.cast("B"), document_ends[1:] * HASH_BYTES)
    return np.frombuffer(found, dtype=np.uint64)


def is_first(hashes: np.ndarray) -> np.ndarray:
    """Return whether each hash equals no earlier one: bool, (len(hashes),)."""
    first = np.ones(len(hashes), dtype=bool)
    for numbers in _buckets(hashes):
        found = hashes[numbers]
        order = np.argsort(found, kind="stable")
        first[numbers[order[1:]]] = found[order[1:]] != found[order[:-1]]
    return first


def keep_sentences(
    documents: StoredDocuments, is_kept: np.ndarray, document_ends: np.ndarray, folder: Path
) -> StoredDocuments:
    """Rewrite the files of documents with some of their sentences, and open them again.

    Args:
        documents: all documents of a `DocumentWriter` in `folder`.
        is_kept: whether to keep each sentence; bool, (sentences,).
        document_ends: 0, then the end of each document in `is_kept`.
        folder: of the files.
    """
    lengths, dtype = np.diff(documents.sentence_ends), documents.tokens.dtype
    is_last = np.zeros(len(is_kept), dtype=bool)
    is_last[document_ends[1:] - 1] = True
    with closing(DocumentWriter(folder / "kept", dtype)) as writer:
        for start in range(0, len(is_kept), SENTENCES_AT_ONCE):
            some = slice(start, start + SENTENCES_AT_ONCE)
            first, last = documents.sentence_ends[[start, start + len(is_kept[some])]]
            has_kept = np.repeat(is_kept[some], lengths[some])
            writer.add(
                documents.tokens[first:last][has_kept],
                np.where(is_kept[some], lengths[some], 0),
                is_last[some],
            )
            documents.release_memory()
        writer.finish()
    for path in (folder / "kept").iterdir():
        path.replace(folder / path.name)
    return StoredDocuments.open(folder, dtype)
