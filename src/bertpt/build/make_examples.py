"""Documents of token ids -> examples, on every core."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertpt.build.documents import StoredDocuments
from bertpt.build.google import google_examples
from bertpt.build.pairs import (
    NUM_SPECIAL,
    OrderMaker,
    Pair,
    PairMaker,
    SegmentMaker,
    count_sentences,
    join,
    truncate_pair,
)
from bertpt.build.workers import Workers
from bertpt.config import BuildConfig
from bertpt.data.example import Rows
from bertpt.data.masking import Masking
from bertpt.rng import generator
from bertpt.tokenizer import tokenizer
from bertpt.tokenizer.tokenizer import Tokenizer

EXAMPLES_AT_ONCE = 1 << 12
Maker = PairMaker | OrderMaker | SegmentMaker
MAKERS: dict[str, type[Maker]] = {"nsp": PairMaker, "sop": OrderMaker, "mlm": SegmentMaker}
TOKENS_PER_TASK = 1 << 17


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


class Made(NamedTuple):
    """Examples, and how many sentences went into them.

    Attributes:
        rows: the examples.
        num_sentences: in them, counted each time they are used.
        num_truncated: of those, how many lost tokens because the pair was too long.
    """

    rows: Rows
    num_sentences: int
    num_truncated: int


def make_rows(
    split: Split, workers: Workers, *, on_documents: Callable[[int], object]
) -> Iterator[Made]:
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
    for task, made in zip(tasks, workers.map(_make, tasks), strict=True):
        yield made
        on_documents(task.stop - task.start)
    _tools.cache_clear()  # which holds the files open


# ------------------------------------------------------------------------------------ as Google's


def _google_rows(split: Split, on_documents: Callable[[int], object]) -> Iterator[Made]:
    config, documents = split.config, split.documents()
    drawn: list[tuple[Pair, Pair]] = []
    counts = np.zeros(2, dtype=np.int64)

    def count(*, at_least: int) -> None:
        if len(drawn) >= at_least:
            wholes, pairs = zip(*drawn, strict=True)
            counts[:] += count_sentences(wholes, pairs, documents.sentence_ends)
            drawn.clear()

    def on_pair(whole: Pair, pair: Pair) -> None:
        drawn.append((whole, pair))
        count(at_least=EXAMPLES_AT_ONCE)

    examples = google_examples(
        documents,
        seq_len=config.seq_len,
        short_seq_prob=config.short_seq_prob,
        masked_lm_prob=config.masked_lm_prob,
        max_predictions_per_seq=config.max_predictions_per_seq or config.seq_len,
        dupe_factor=config.dupe_factor,
        whole_word=config.whole_word,
        seed=config.seed,
        vocabulary=tokenizer.load(split.tokenizer_path),
        scratch=split.folder,
        on_pair=on_pair,
        on_document=lambda: on_documents(1),
    )
    while batch := list(islice(examples, EXAMPLES_AT_ONCE)):
        count(at_least=1)
        yield Made(Rows.of(batch, split.dtype), *counts.tolist())
        counts[:] = 0


# --------------------------------------------------------------------------------------- balanced


@dataclass(frozen=True)
class _Task:
    split: Split
    dupe: int
    start: int
    stop: int


class _Drawn(NamedTuple):
    """An example before its ids are put together: what was to go in, what fits, its masks."""

    whole: Pair
    pair: Pair
    masks: np.ndarray


def _make(task: _Task) -> Made:
    tools = _tools(task.split)
    parts = [_put_together(drawn, tools) for drawn in _batches(_draw(task, tools))]
    tools.documents.release()
    return Made(
        Rows.joined([Rows.of([], task.split.dtype), *(part.rows for part in parts)]),
        sum(part.num_sentences for part in parts),
        sum(part.num_truncated for part in parts),
    )


def _draw(task: _Task, tools: "_Tools") -> Iterator[_Drawn]:
    config = task.split.config
    name = config.of_part(f"pairs of {task.split.name}")
    for number in range(task.start, task.stop):
        rng = generator(config.seed, name, task.dupe, number)
        for whole in tools.maker.pairs(number, rng):
            pair = truncate_pair(whole, tools.max_num_tokens, rng)
            yield _Drawn(whole, pair, tools.masking.draws(pair.num_tokens, rng))


def _batches(drawn: Iterable[_Drawn]) -> Iterator[list[_Drawn]]:
    """So many that they fit into memory, though one document may give millions."""
    batch: list[_Drawn] = []
    num_tokens = 0
    for one in drawn:
        batch.append(one)
        num_tokens += one.pair.num_tokens
        if num_tokens >= TOKENS_PER_TASK:
            yield batch
            batch, num_tokens = [], 0
    if batch:
        yield batch


def _put_together(drawn: list[_Drawn], tools: "_Tools") -> Made:
    wholes, pairs, draws = zip(*drawn, strict=True)
    documents = tools.documents
    input_ids, num_tokens, b_starts = join(pairs, documents.tokens, tools.vocabulary)
    labels = np.array([pair.next_sentence_label for pair in pairs])
    masks = tools.masking.draw(input_ids, num_tokens, draws)
    rows = Rows.of_columns(input_ids.dtype, (input_ids, num_tokens, b_starts, labels, *masks))
    return Made(rows, *count_sentences(wholes, pairs, documents.sentence_ends))


class _Tools(NamedTuple):
    documents: StoredDocuments
    vocabulary: Tokenizer
    masking: Masking
    maker: Maker
    max_num_tokens: int


@lru_cache(maxsize=1)
def _tools(split: Split) -> _Tools:
    documents, vocabulary = split.documents(), tokenizer.load(split.tokenizer_path)
    config = split.config
    room = config.seq_len - NUM_SPECIAL + (config.objective == "mlm")
    maker = MAKERS[config.objective](
        documents, max_num_tokens=room, short_seq_prob=config.short_seq_prob
    )
    return _Tools(documents, vocabulary, Masking.of(vocabulary, config), maker, room)
