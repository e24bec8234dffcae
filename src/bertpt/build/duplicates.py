"""Repeated sentences and documents, found by their hashes."""

import hashlib
from contextlib import closing
from pathlib import Path

import numpy as np

from bertpt.build.documents import DocumentWriter, StoredDocuments

# Ten million different sentences have two equal hashes in one of 370,000 runs.
HASH_BYTES = 8
SENTENCES_AT_ONCE = 1 << 16


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
    # Not np.unique: it may build a hash table, which takes several times the memory.
    in_order = np.sort(hashes)
    return int((in_order[1:] == in_order[:-1]).sum())


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
    order = np.argsort(hashes, kind="stable")
    first = np.ones(len(hashes), dtype=bool)
    first[order[1:]] = hashes[order[1:]] != hashes[order[:-1]]
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
