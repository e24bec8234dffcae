"""Estimate the disk space of a build before it starts."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from bertpt.config import BuildConfig
from bertpt.corpus.corpus import Corpus
from bertpt.corpus.inputs import is_packed
from bertpt.data.example import token_dtype
from bertpt.text import format_size

BYTES_PER_TOKEN = 3.6  # of UTF-8: 4.2 for English prose, 3.0 for Chinese
TOKENS_PER_SENTENCE = 15
BYTES_PER_ENTRY = 40  # of a vocabulary: tokenizer.json, vocab.txt, token_counts.npy
RANDOM_B = 1.2  # tokens in pairs per token of text: sentences replaced by a random B are reused
FILLED = 0.9  # share of an example's positions that hold a token
BYTES_PER_EXAMPLE = 17  # three offsets and `b_start` of 4 bytes each, a label of 1


def folder_size(folder: Path) -> int:
    """Return the bytes in all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class DiskUse:
    """Bytes on disk: `peak` during a build, `final` after it."""

    peak: int
    final: int


def disk_use(
    config: BuildConfig, *, num_tokens: float, vocab_size: int, spooled_bytes: float = 0
) -> DiskUse:
    """Estimate the disk space of a build, within a factor of 1.5 for usual prose.

    An example token takes the bytes of its id and, with probability `masked_lm_prob`, those of a
    position (2) and another id. Next-sentence pairs have `RANDOM_B` tokens per token of text in
    each of `dupe_factor` passes. During the build there are also the documents' tokens, with 8
    bytes for each sentence's end; with `pairing` google a second copy of the examples; and until
    it is tokenized, the text that a vocabulary is learned from.

    Args:
        config: how to make examples.
        num_tokens: in all documents.
        vocab_size: number of entries.
        spooled_bytes: size of the text if a vocabulary is learned from it, otherwise 0.
    """
    id_bytes = token_dtype(vocab_size).itemsize
    in_pairs = num_tokens * (RANDOM_B if config.objective == "nsp" else 1) * config.dupe_factor
    num_examples = in_pairs / (FILLED * config.seq_len)
    example_tokens = in_pairs + 3 * num_examples
    masked = config.masked_lm_prob * example_tokens
    shards = example_tokens * id_bytes + masked * (2 + id_bytes) + num_examples * BYTES_PER_EXAMPLE
    google_file = id_bytes * (example_tokens + 2 * masked + 3 * num_examples)
    documents = num_tokens * (id_bytes + 8 / TOKENS_PER_SENTENCE)
    vocabulary = vocab_size * BYTES_PER_ENTRY
    pairing = documents + shards + google_file * (config.pairing == "google")
    return DiskUse(
        peak=round(vocabulary + max(spooled_bytes + documents, pairing)),
        final=round(vocabulary + shards),
    )


def disk_use_of_text(
    config: BuildConfig, num_bytes: float, *, vocab_size: int, learns: bool
) -> DiskUse:
    """Estimate the same from bytes of UTF-8; `learns` if a vocabulary is learned from them."""
    return disk_use(
        config,
        num_tokens=num_bytes / BYTES_PER_TOKEN,
        vocab_size=vocab_size,
        spooled_bytes=num_bytes if learns else 0,
    )


def estimate_message(
    config: BuildConfig, corpus: Corpus, out: Path, *, vocab_size: int, learns: bool
) -> str:
    """Return one line with the disk space needed, which is a warning if there is too little."""
    total, free = corpus.total_bytes, free_bytes(out)
    folder = out.resolve().parent
    if total is None or any(map(is_packed, corpus.files)):
        size = "input of unknown size" if total is None else format_size(total)
        gigabyte = disk_use_of_text(config, 1e9, vocab_size=vocab_size, learns=learns)
        return (
            f"reading {size}; disk space needed in {folder} per byte of uncompressed text: about "
            f"{gigabyte.peak / 1e9:.1f} bytes during the build, {gigabyte.final / 1e9:.1f} after "
            f"it; {format_size(free)} free"
        )
    needed = disk_use_of_text(config, total, vocab_size=vocab_size, learns=learns)
    return ("warning: " if needed.peak > free else "") + (
        f"reading {format_size(total)}; disk space needed in {folder}: about "
        f"{format_size(needed.peak)} during the build, {format_size(needed.final)} after it; "
        f"{format_size(free)} free"
    )


def shortage_warning(needed_bytes: int, out: Path) -> str | None:
    """Return a warning if less than `needed_bytes` are free."""
    free = free_bytes(out)
    if needed_bytes <= free:
        return None
    return (
        f"warning: the build needs about {format_size(needed_bytes)} more disk space in "
        f"{out.resolve().parent}, but only {format_size(free)} are free"
    )


def free_bytes(out: Path) -> int:
    """Return the bytes free on the disk of a folder that need not exist yet."""
    folder = out.resolve()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
