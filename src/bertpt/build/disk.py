"""How much disk a build takes, told before it runs out."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from bertpt.config import BuildConfig
from bertpt.corpus.corpus import Corpus
from bertpt.corpus.inputs import is_packed
from bertpt.data.example import token_dtype
from bertpt.text import format_size

BYTES_PER_TOKEN = 3.6  # of UTF-8: 4.2 of English prose, 3.0 of Chinese
TOKENS_PER_SENTENCE = 15
BYTES_PER_ENTRY = 40  # of a vocabulary: tokenizer.json, vocab.txt, token_counts.npy
RANDOM_B = 1.2  # tokens in pairs for every token of text, as what follows A is used again elsewhere
FILLED = 0.9  # of an example's slots
BYTES_PER_EXAMPLE = 17  # three offsets and `b_start` of 4 bytes, and a label


@dataclass(frozen=True)
class DiskUse:
    """Bytes on the disk: `peak` at most while a build works, `final` in the end."""

    peak: int
    final: int


def disk_use(
    config: BuildConfig, *, num_tokens: float, vocab_size: int, spooled_bytes: float = 0
) -> DiskUse:
    """What a build of so many tokens takes; within a factor of 1.5 for usual prose.

    An example token takes the bytes of its id and, with `masked_lm_prob`, those of a position (2)
    and of another id. Next-sentence pairs hold `RANDOM_B` tokens a token, in each of `dupe_factor`
    passes; the documents' own tokens lie beside them, with 8 bytes for each sentence's end.
    Google's pairs are kept in a file of their own as well, until their order is drawn. The text
    that a vocabulary is learned from is kept until it is tokenized.

    Args:
        config: how the examples are made.
        num_tokens: of all documents.
        vocab_size: entries.
        spooled_bytes: of the text, where a vocabulary is learned from it; otherwise 0.
    """
    id_bytes = token_dtype(vocab_size).itemsize
    in_pairs = num_tokens * (RANDOM_B if config.objective == "nsp" else 1) * config.dupe_factor
    num_examples = in_pairs / (FILLED * config.seq_len)
    example_tokens = in_pairs + 3 * num_examples
    masked = config.masked_lm_prob * example_tokens
    shards = example_tokens * id_bytes + masked * (2 + id_bytes) + num_examples * BYTES_PER_EXAMPLE
    shelf = id_bytes * (example_tokens + 2 * masked + 3 * num_examples)
    documents = num_tokens * (id_bytes + 8 / TOKENS_PER_SENTENCE)
    vocabulary = vocab_size * BYTES_PER_ENTRY
    pairing = documents + shards + shelf * (config.pairing == "google")
    return DiskUse(
        peak=round(vocabulary + max(spooled_bytes + documents, pairing)),
        final=round(vocabulary + shards),
    )


def disk_use_of_text(
    config: BuildConfig, num_bytes: float, *, vocab_size: int, learns: bool
) -> DiskUse:
    """The same for text in UTF-8 that is not tokenized yet; `learns` says that a vocabulary is."""
    return disk_use(
        config,
        num_tokens=num_bytes / BYTES_PER_TOKEN,
        vocab_size=vocab_size,
        spooled_bytes=num_bytes if learns else 0,
    )


def announcement(
    config: BuildConfig, corpus: Corpus, out: Path, *, vocab_size: int, learns: bool
) -> str:
    """One line that says, before the work, what disk it takes; a warning if there is too little."""
    total, free = corpus.total_bytes, free_bytes(out)
    place, rest = f"in {out.resolve().parent} while it works", f"{format_size(free)} are free"
    if total is None or any(map(is_packed, corpus.files)):
        what = "text of a size that only reading tells" if total is None else format_size(total)
        gigabyte = disk_use_of_text(config, 1e9, vocab_size=vocab_size, learns=learns)
        return (
            f"reading {what}; for every byte of unpacked text about {gigabyte.peak / 1e9:.1f} "
            f"bytes of disk are needed {place}, {gigabyte.final / 1e9:.1f} in the end; {rest}"
        )
    needed = disk_use_of_text(config, total, vocab_size=vocab_size, learns=learns)
    return ("warning: " if needed.peak > free else "") + (
        f"reading {format_size(total)}; about {format_size(needed.peak)} of disk are needed "
        f"{place}, {format_size(needed.final)} in the end; {rest}"
    )


def shortage(needed_bytes: int, out: Path) -> str | None:
    """A warning, if more is still needed than is free."""
    free = free_bytes(out)
    if needed_bytes <= free:
        return None
    return (
        f"warning: about {format_size(needed_bytes)} more of disk are needed in "
        f"{out.resolve().parent}, and only {format_size(free)} are free"
    )


def free_bytes(out: Path) -> int:
    """What is free where a folder is to be made."""
    place = out.resolve()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
