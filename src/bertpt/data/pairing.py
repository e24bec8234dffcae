"""Documents of token ids -> examples, on every core."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertpt.config import BuildConfig
from bertpt.data import tokenizer
from bertpt.data.documents import StoredDocuments
from bertpt.data.example import Example, Rows
from bertpt.data.google import google_examples
from bertpt.data.masking import Masking
from bertpt.data.pairs import NUM_SPECIAL, OrderMaker, PairMaker, SegmentMaker, join
from bertpt.data.tokenizer import Tokenizer
from bertpt.data.workers import Workers
from bertpt.rng import generator

EXAMPLES_AT_ONCE = 1 << 12
Maker = PairMaker | OrderMaker | SegmentMaker
MAKERS: dict[str, type[Maker]] = {"nsp": PairMaker, "sop": OrderMaker, "mlm": SegmentMaker}
TOKENS_PER_TASK = 1 << 18


@dataclass(frozen=True)
class Split:
    """Some documents of a `DocumentWriter`'s folder, and what is to be made of them.

    Attributes:
        name: "train" or "valid".
        folder: of the documents.
        dtype: of their ids.
        numbers: a file with the numbers of the documents that belong to the split.
        tokenizer_path: a tokenizer folder.
        config: how examples are made.
    """

    name: str
    folder: Path
    dtype: np.dtype
    numbers: Path
    tokenizer_path: Path
    config: BuildConfig

    def documents(self) -> StoredDocuments:
        """Opens them."""
        return StoredDocuments.open(self.folder, self.dtype).part(np.load(self.numbers))


def make_rows(
    split: Split, workers: Workers, *, on_documents: Callable[[int], object]
) -> Iterator[Rows]:
    """The examples of every pass over a split.

    Balanced pairs come in the order of the documents, and the draws for one depend on the seed,
    the split, the pass and its number alone. Google's depend on all draws before, so no worker can
    help there, and come in an order of their own.

    Args:
        split: which documents, and what to make of them.
        workers: who does it.
        on_documents: told how many documents were gone through since the last time.
    """
    if split.config.pairing == "google":
        yield from _google_rows(split, on_documents)
        return
    tokens = split.documents().num_tokens_before()
    stops = np.searchsorted(tokens, np.arange(0, tokens[-1], TOKENS_PER_TASK)[1:])
    edges = np.unique(np.concatenate([[0], stops, [len(tokens) - 1]])).tolist()
    tasks = [
        _Task(split, dupe, start, stop)
        for dupe in range(split.config.dupe_factor)
        for start, stop in pairwise(edges)
    ]
    for task, rows in zip(tasks, workers.map(_rows, tasks), strict=True):
        yield rows
        on_documents(task.stop - task.start)
    _tools.cache_clear()  # which holds the files open


def _google_rows(split: Split, on_documents: Callable[[int], object]) -> Iterator[Rows]:
    config = split.config
    examples = google_examples(
        split.documents(),
        seq_len=config.seq_len,
        short_seq_prob=config.short_seq_prob,
        masked_lm_prob=config.masked_lm_prob,
        max_predictions_per_seq=config.max_predictions_per_seq or config.seq_len,
        dupe_factor=config.dupe_factor,
        whole_word=config.whole_word,
        seed=config.seed,
        vocabulary=tokenizer.load(split.tokenizer_path),
        scratch=split.folder,
        on_document=lambda: on_documents(1),
    )
    while batch := list(islice(examples, EXAMPLES_AT_ONCE)):
        yield Rows.of(batch, split.dtype)


@dataclass(frozen=True)
class _Task:
    split: Split
    dupe: int
    start: int
    stop: int


def _rows(task: _Task) -> Rows:
    rows = Rows.of(list(_examples(task)), task.split.dtype)
    _tools(task.split).documents.release()
    return rows


def _examples(task: _Task) -> Iterator[Example]:
    split = task.split
    tools = _tools(split)
    for number in range(task.start, task.stop):
        rng = generator(split.config.seed, f"pairs of {split.name}", task.dupe, number)
        for pair in tools.maker.pairs(number, rng):
            ids = join(pair, tools.vocabulary)
            label = pair.next_sentence_label
            yield Example(ids, len(pair.a) + 2, label, *tools.masking.draw(ids, rng))


class _Tools(NamedTuple):
    documents: StoredDocuments
    vocabulary: Tokenizer
    masking: Masking
    maker: Maker


@lru_cache(maxsize=1)
def _tools(split: Split) -> _Tools:
    documents, vocabulary = split.documents(), tokenizer.load(split.tokenizer_path)
    config = split.config
    num_special = NUM_SPECIAL - (config.objective == "mlm")
    maker = MAKERS[config.objective](
        documents,
        max_num_tokens=config.seq_len - num_special,
        short_seq_prob=config.short_seq_prob,
    )
    return _Tools(documents, vocabulary, Masking.of(vocabulary, config), maker)
