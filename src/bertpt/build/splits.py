"""Documents -> the train and valid folders of a DATA folder."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertpt.build.documents import StoredDocuments
from bertpt.build.make_examples import Split, make_examples
from bertpt.build.pairs import IS_NEXT, RANDOM
from bertpt.build.sequences import PairCounts
from bertpt.build.workers import Workers
from bertpt.build.writer import SplitWriter
from bertpt.config import BuildConfig
from bertpt.progress import Progress
from bertpt.rng import generator, permutation


def split_documents(num_documents: int, config: BuildConfig) -> dict[str, np.ndarray]:
    """Choose the documents to train on and those to hold out.

    Complete documents are held out: `valid_fraction` of them, at least 2 (a pair needs another
    document to draw from), and none if fewer than 2 would be left to train on.

    Returns:
        For each split, the indices of its documents, ascending.
    """
    num_valid = 0
    if config.valid_fraction and num_documents >= 4:
        wanted = max(2, round(num_documents * config.valid_fraction))
        num_valid = min(wanted, num_documents - 2)
    shuffled = permutation(generator(config.seed, config.of_part("split")), num_documents)
    return {"train": np.sort(shuffled[num_valid:]), "valid": np.sort(shuffled[:num_valid])}


class WrittenSplit(NamedTuple):
    """What was written of a split.

    Attributes:
        config: how it was made.
        documents: those it was made from.
        shards: file, examples and SHA-256 of each.
        counts: of examples, labels, tokens and sentences in them.
        lengths: number of examples of each length, from 0 to `seq_len` tokens.
    """

    config: BuildConfig
    documents: StoredDocuments
    shards: list[dict[str, Any]]
    counts: dict[str, Any]
    lengths: np.ndarray


def write_split(
    folder: Path, split: Split, *, vocab_size: int, workers: Workers, progress: Progress
) -> WrittenSplit:
    """Make the examples of a split and write them to `folder`."""
    documents = split.documents()
    labels: Counter[int] = Counter()
    lengths = np.zeros(split.config.seq_len + 1, dtype=np.int64)
    num_masked = 0
    text = np.zeros(len(PairCounts._fields), dtype=np.int64)
    total = len(documents) * split.config.dupe_factor
    with (
        closing(SplitWriter(folder, vocab_size=vocab_size)) as writer,
        progress.bar(f"pairing {folder.name}", unit="document", total=total) as bar,
    ):
        for batch in make_examples(split, workers, on_documents=bar.update):
            writer.extend(batch.examples)
            labels.update(batch.examples.next_sentence_labels.tolist())
            lengths += np.bincount(batch.examples.num_tokens, minlength=len(lengths))
            num_masked += len(batch.examples.masked_positions)
            text += batch.counts
    pairs = PairCounts(*text.tolist())
    counts = {
        "examples": labels.total(),
        "label_counts": {"is_next": labels[IS_NEXT], "random": labels[RANDOM]},
        "example_tokens": int(lengths @ np.arange(len(lengths))),
        "masked_tokens": num_masked,
        "paired_sentences": pairs.sentences,
        "truncated_sentences": pairs.truncated_sentences,
        "paired_tokens": pairs.tokens,
        "truncated_tokens": pairs.truncated_tokens,
    }
    return WrittenSplit(split.config, documents, writer.finish(progress), counts, lengths)
