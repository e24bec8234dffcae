"""Documents of token ids -> examples, on every core."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertpt.build.columns import Columns
from bertpt.build.documents import StoredDocuments
from bertpt.build.google import google_examples
from bertpt.build.pairs import NUM_SPECIAL, OrderMaker, Pair, PairMaker, SegmentMaker
from bertpt.build.sequences import PairCounts, build_sequences, count_pairs, truncate_pair
from bertpt.build.workers import Workers
from bertpt.config import BuildConfig
from bertpt.data.masking import Masking
from bertpt.rng import generator
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer

EXAMPLES_AT_ONCE = 1 << 12
Maker = PairMaker | OrderMaker | SegmentMaker
MAKERS: dict[str, type[Maker]] = {"nsp": PairMaker, "sop": OrderMaker, "mlm": SegmentMaker}
TOKENS_PER_TASK = 1 << 17
# A longer document is not for a worker, whose result must fit in memory.
TOKENS_OF_HUGE_TASK = 1 << 23


@dataclass(frozen=True)
class Split:
    """Some stored documents, and how to make examples of them.

    Attributes:
        name: "train" or "valid".
        folder: where a `DocumentWriter` wrote the documents.
        dtype: of their ids.
        indices: a .npy file with the indices of the split's documents.
        tokenizer_path: a tokenizer folder.
        config: how to make examples.
    """

    name: str
    folder: Path
    dtype: np.dtype
    indices: Path
    tokenizer_path: Path
    config: BuildConfig

    def documents(self) -> StoredDocuments:
        """Open the split's documents."""
        return StoredDocuments.open(self.folder, self.dtype).select(np.load(self.indices))


class ExampleBatch(NamedTuple):
    """Examples by column, and counts of the pairs that they were made from."""

    examples: Columns
    counts: PairCounts


def make_examples(
    split: Split, workers: Workers, *, on_documents: Callable[[int], object]
) -> Iterator[ExampleBatch]:
    """Yield the examples of every pass over a split, in batches.

    Balanced pairs come in the order of the documents, and their randomness depends only on the
    seed, the split, the pass and the document. Google's algorithm has one random stream for all
    documents, so it runs in this process only, and it shuffles the examples.

    Args:
        split: the documents and how to make examples of them.
        workers: processes to use.
        on_documents: called with the number of documents finished since the last call.
    """
    if split.config.pairing == "google":
        yield from _google_batches(split, on_documents)
        return
    tokens = split.documents().num_tokens_before()
    stops = np.searchsorted(tokens, np.arange(0, tokens[-1], TOKENS_PER_TASK)[1:])
    edges = np.unique(np.concatenate([[0], stops, [len(tokens) - 1]])).tolist()
    tasks = [
        _Task(
            split,
            dupe,
            start,
            stop,
            is_huge=bool(tokens[stop] - tokens[start] > TOKENS_OF_HUGE_TASK),
        )
        for dupe in range(split.config.dupe_factor)
        for start, stop in pairwise(edges)
    ]
    for is_huge, group in groupby(tasks, attrgetter("is_huge")):
        some = list(group)
        parts = map(_parts, some) if is_huge else ([b] for b in workers.map(_run_task, some))
        for task, batches in zip(some, parts, strict=True):
            yield from batches
            on_documents(task.stop - task.start)
    _open_split.cache_clear()  # close the files


# ----------------------------------------------------------------------------------- google pairs


def _google_batches(split: Split, on_documents: Callable[[int], object]) -> Iterator[ExampleBatch]:
    config, documents = split.config, split.documents()
    uncounted: list[tuple[Pair, Pair]] = []
    counts = np.zeros(len(PairCounts._fields), dtype=np.int64)

    def count(*, at_least: int) -> None:
        if len(uncounted) >= at_least:
            untruncated, pairs = zip(*uncounted, strict=True)
            counts[:] += count_pairs(untruncated, pairs, documents.sentence_ends)
            uncounted.clear()

    def on_pair(untruncated: Pair, pair: Pair) -> None:
        uncounted.append((untruncated, pair))
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
        vocabulary=load_tokenizer(split.tokenizer_path),
        scratch=split.folder,
        on_pair=on_pair,
        on_document=lambda: on_documents(1),
    )
    while batch := list(islice(examples, EXAMPLES_AT_ONCE)):
        count(at_least=1)
        yield ExampleBatch(Columns.from_examples(batch, split.dtype), PairCounts(*counts.tolist()))
        counts[:] = 0


# --------------------------------------------------------------------------------- balanced pairs


@dataclass(frozen=True)
class _Task:
    split: Split
    dupe: int
    start: int
    stop: int
    is_huge: bool


class _Draft(NamedTuple):
    """An example before its ids are built.

    Attributes:
        untruncated: the pair as it was drawn.
        pair: the pair cut to fit.
        random_numbers: for its masks.
    """

    untruncated: Pair
    pair: Pair
    random_numbers: np.ndarray


def _parts(task: _Task) -> Iterator[ExampleBatch]:
    opened = _open_split(task.split)
    for drafts in _batches(_draw_pairs(task, opened)):
        yield _finish(drafts, opened)
        opened.documents.release_memory()


def _run_task(task: _Task) -> ExampleBatch:
    parts = list(_parts(task))
    empty = Columns.from_examples([], task.split.dtype)
    totals = np.zeros(len(PairCounts._fields), dtype=np.int64)
    for part in parts:
        totals += part.counts
    return ExampleBatch(
        Columns.concatenate([empty, *(part.examples for part in parts)]),
        PairCounts(*totals.tolist()),
    )


def _draw_pairs(task: _Task, opened: "_OpenSplit") -> Iterator[_Draft]:
    config = task.split.config
    name = config.of_part(f"pairs of {task.split.name}")
    for number in range(task.start, task.stop):
        rng = generator(config.seed, name, task.dupe, number)
        for untruncated in opened.maker.pairs(number, rng):
            pair = truncate_pair(untruncated, opened.max_num_tokens, rng)
            random_numbers = opened.masking.random_numbers(pair.num_tokens, rng)
            yield _Draft(untruncated, pair, random_numbers)


def _batches(drafts: Iterable[_Draft]) -> Iterator[list[_Draft]]:
    """Group drafts into batches that fit in memory; one document may give millions."""
    batch: list[_Draft] = []
    num_tokens = 0
    for draft in drafts:
        batch.append(draft)
        num_tokens += draft.pair.num_tokens
        if num_tokens >= TOKENS_PER_TASK:
            yield batch
            batch, num_tokens = [], 0
    if batch:
        yield batch


def _finish(drafts: list[_Draft], opened: "_OpenSplit") -> ExampleBatch:
    """Build the ids of drafts and mask them."""
    untruncated, pairs, random_numbers = zip(*drafts, strict=True)
    documents = opened.documents
    sequences = build_sequences(pairs, documents.tokens, opened.vocabulary)
    labels = np.array([pair.next_sentence_label for pair in pairs])
    masks = opened.masking.apply(sequences.input_ids, sequences.num_tokens, random_numbers)
    columns = Columns.from_arrays(sequences.input_ids.dtype, (*sequences, labels, *masks))
    return ExampleBatch(columns, count_pairs(untruncated, pairs, documents.sentence_ends))


class _OpenSplit(NamedTuple):
    """A split's documents, and what makes examples of them."""

    documents: StoredDocuments
    vocabulary: Tokenizer
    masking: Masking
    maker: Maker
    max_num_tokens: int


@lru_cache(maxsize=1)
def _open_split(split: Split) -> _OpenSplit:
    documents, vocabulary = split.documents(), load_tokenizer(split.tokenizer_path)
    config = split.config
    max_num_tokens = config.seq_len - NUM_SPECIAL + (config.objective == "mlm")
    maker = MAKERS[config.objective](
        documents, max_num_tokens=max_num_tokens, short_seq_prob=config.short_seq_prob
    )
    masking = Masking.from_config(vocabulary, config)
    return _OpenSplit(documents, vocabulary, masking, maker, max_num_tokens)
