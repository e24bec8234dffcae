"""Tokenized documents on disk and in memory."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bertpt.build.documents import DocumentWriter, StoredDocuments


@pytest.fixture(params=[1, 2, 3, 100], ids=lambda n: f"{n} at a time")
def stored(tmp_path, request):
    writer = DocumentWriter(tmp_path, np.dtype(np.uint16))
    # An empty sentence and an empty document are not kept.
    documents = ([[5, 6], [], [7]], [[8]], [[]], [[], []], [[9, 9, 65_535], [5], [5, 6]])
    sentences = [
        (sentence, number == len(document))
        for document in documents
        for number, sentence in enumerate(document, start=1)
    ]
    for start in range(0, len(sentences), request.param):
        part = sentences[start : start + request.param]
        writer.add(
            np.array([i for sentence, _ in part for i in sentence]),
            np.array([len(sentence) for sentence, _ in part]),
            np.array([is_last for _, is_last in part]),
        )
    return writer.finish()


def spelled(documents, number):
    ends = documents.ends(number).tolist()
    return [documents.tokens[start:end].tolist() for start, end in pairwise(ends)]


def test_what_was_written_is_read_back(stored):
    assert len(stored) == 3
    assert spelled(stored, 0) == [[5, 6], [7]]
    assert spelled(stored, 2) == [[9, 9, 65_535], [5], [5, 6]]


def test_sentences_of_a_document_lie_side_by_side(stored):
    _, first, _, last = stored.ends(2)
    assert stored.tokens[first:last].tolist() == [5, 5, 6]
    assert stored.lengths.tolist() == [2, 1, 3]


def test_a_selection_counts_only_its_documents(stored):
    selected = stored.select(np.array([2, 0]))
    assert spelled(selected, 1) == [[5, 6], [7]]
    assert (len(selected), selected.num_sentences, selected.num_tokens) == (2, 5, 9)
    assert stored.num_single_sentences == 1
    assert selected.num_single_sentences == 0
    counts = selected.count_tokens(65_536)
    assert {int(i): int(counts[i]) for i in np.flatnonzero(counts)} == {
        5: 3,
        6: 2,
        7: 1,
        9: 2,
        65_535: 1,
    }


def resident_megabytes():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Rss:\s+(\d+)", text, re.MULTILINE)[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_released_memory_is_free_and_can_be_read_again(tmp_path):
    writer = DocumentWriter(tmp_path, np.dtype(np.uint16))
    ids = np.tile(np.arange(50_000, dtype=np.uint16), 300)
    writer.add(ids, np.array([len(ids)]), np.array([True]))
    stored = writer.finish().select(np.array([0]))
    before = resident_megabytes()
    total = int(stored.tokens.sum(dtype=np.int64))
    read = resident_megabytes()
    stored.release_memory()
    assert read - before > 24  # of the 30 MB
    assert resident_megabytes() - before < 6
    assert int(stored.tokens.sum(dtype=np.int64)) == total == int(ids.sum(dtype=np.int64))


def test_there_may_be_no_documents(tmp_path):
    stored = DocumentWriter(tmp_path, np.dtype(np.int32)).finish()
    assert (len(stored), stored.num_tokens, stored.num_sentences) == (0, 0, 0)


def test_documents_can_be_made_of_lists():
    documents = StoredDocuments.from_lists([[[1, 2], [3]], [[4, 5, 6]]])
    assert [spelled(documents, number) for number in range(2)] == [[[1, 2], [3]], [[4, 5, 6]]]
