"""Settings of train-tokenizer and build-data."""

import re
from dataclasses import dataclass

from bertpt.config.fields import Settings, setting
from bertpt.errors import SettingError

IGNORE_INDEX = -100  # the label that no loss counts, as torch's cross_entropy
SPLITS = ("train", "valid")
OBJECTIVES = ("nsp", "sop", "mlm")
SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


def parse_shard(shard: str | None) -> tuple[int, int]:
    """Which part of a corpus, counted from 1, and of how many; `None` is all of it, (1, 1).

    Raises:
        SettingError: it is not I/N with 1 <= I <= N.
    """
    if shard is None:
        return 1, 1
    form = SHARD.fullmatch(shard)
    part, num_parts = map(int, form.groups()) if form else (0, 0)
    if not num_parts:
        raise SettingError("shard", f"{shard!r} is not I/N, such as 3/16 (is a variable unset?)")
    if not 1 <= part <= num_parts:
        raise SettingError(
            "shard", f"{shard} must be one of 1/{num_parts} to {num_parts}/{num_parts}"
        )
    return part, num_parts


@dataclass(frozen=True)
class TokenizerConfig(Settings):
    """How a WordPiece vocabulary is learned."""

    vocab_size: int = setting(
        30_522, "Entries of a learned vocabulary, special tokens included.", at_least=6
    )
    lowercase: bool = setting(default=True, help="Lower-case the text.")
    strip_accents: bool | None = setting(
        None,
        "Strip accents: é becomes e; wrong for Hindi, Thai or Korean (default: as `lowercase`).",
    )
    min_frequency: int = setting(
        2, "Merge no characters into a word piece that is seen less often than this.", at_least=1
    )
    limit_alphabet: int | None = setting(
        None,
        "Keep only this many characters, the commonest ones; the others become [UNK]. "
        "By default a quarter of the vocabulary, and 1000 at least.",
        at_least=1,
    )

    @property
    def strips_accents(self) -> bool:
        """Whether accents are stripped, the default being resolved."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


@dataclass(frozen=True)
class BuildConfig(Settings):
    """How text becomes examples."""

    language: str = setting(
        "en", "Language that sentences are split by: an ISO 639-1 code such as en, de or zh."
    )
    sentence_per_line: bool = setting(
        default=False, help="Take each line as one sentence instead of splitting it."
    )
    text_field: str = setting("text", "Field of a JSONL or Parquet row that holds its text.")
    strict: bool = setting(
        default=False,
        help="Refuse text that is not clean (invalid UTF-8, NUL, lone surrogates) instead of "
        "mending and counting it.",
    )
    seq_len: int = setting(
        128, "Tokens in an example, [CLS] and both [SEP] included.", at_least=5, at_most=65_535
    )
    short_seq_prob: float = setting(
        0.1, "Share of the pairs drawn shorter on purpose, as in BERT.", at_least=0, at_most=1
    )
    masked_lm_prob: float = setting(
        0.15, "Share of an example's tokens to predict.", above=0, at_most=1
    )
    max_predictions_per_seq: int | None = setting(
        None, "Cap on the tokens to predict in an example (default: none binds).", at_least=1
    )
    whole_word: bool = setting(default=False, help="Predict all pieces of a word, or none.")
    span: bool = setting(
        default=False,
        help="Predict runs of words, of geometrically distributed length, as in SpanBERT.",
    )
    objective: str = setting(
        "nsp",
        "What goes with MLM: nsp (does B follow A, or is it random), sop (sentence order: A and B "
        "stand as they were or swapped, as in ALBERT), or mlm (nothing: one segment, as long as "
        "it may be).",
        choices=OBJECTIVES,
    )
    pairing: str = setting(
        "balanced",
        "How B is drawn: balanced (even labels that lengths do not give away) or google "
        "(google-research/bert's algorithm and masks, draw for draw).",
        choices=("balanced", "google"),
    )
    dupe_factor: int = setting(
        1, "Passes over the text, each with other pairs and masks.", at_least=1
    )
    valid_fraction: float = setting(
        0.05, "Share of the documents held out for valid/.", at_least=0, below=1
    )
    shard: str | None = setting(
        None,
        "Build part I of N: of the files that INPUT stands for every N-th, from the I-th on; or, "
        "where they are fewer than N, every N-th document. Needs `tokenizer`.",
        metavar="I/N",
    )
    seed: int = setting(0, "Seed of every random draw.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_shard(self.shard)
        if self.span and self.pairing == "google":
            raise SettingError("span", "and `pairing` google exclude each other: Google has none")
        if self.objective != "nsp" and self.pairing == "google":
            raise SettingError(
                "objective", f"{self.objective} and `pairing` google exclude each other"
            )

    def of_part(self, what: str) -> str:
        """The name of a random draw: each part of a corpus has draws of its own."""
        part, num_parts = parse_shard(self.shard)
        return what if num_parts == 1 else f"{what} of part {part}/{num_parts}"
