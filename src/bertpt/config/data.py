"""Settings of train-tokenizer and build-data."""

import re
from dataclasses import dataclass

from bertpt.config.fields import Settings, setting
from bertpt.errors import SettingError

IGNORE_INDEX = -100  # label without a loss, as in torch's cross_entropy
SPLITS = ("train", "valid")
OBJECTIVES = ("nsp", "sop", "mlm")
SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


def parse_shard(shard: str | None) -> tuple[int, int]:
    """Parse I/N, a part of a corpus and the number of parts; `None` is (1, 1), all of it.

    Raises:
        SettingError: `shard` is not I/N with 1 <= I <= N.
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
    """Settings of a learned WordPiece vocabulary."""

    vocab_size: int = setting(
        30_522, "Size of a learned vocabulary, including special tokens.", at_least=6
    )
    lowercase: bool = setting(default=True, help="Convert text to lower case.")
    strip_accents: bool | None = setting(
        None,
        "Replace é by e; do not use it for Hindi, Thai or Korean (default: the same as "
        "`lowercase`).",
    )
    min_frequency: int = setting(
        2, "Do not add a word piece that occurs less often than this.", at_least=1
    )
    limit_alphabet: int | None = setting(
        None,
        "Number of characters to keep, the most frequent ones; all others become [UNK] (default: a "
        "quarter of the vocabulary, at least 1000).",
        at_least=1,
    )

    @property
    def strips_accents(self) -> bool:
        """Whether accents are stripped, after resolving the default."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


@dataclass(frozen=True)
class BuildConfig(Settings):
    """Settings of build-data."""

    language: str = setting(
        "en", "Language for sentence splitting: an ISO 639-1 code such as en, de or zh."
    )
    sentence_per_line: bool = setting(
        default=False, help="Take each line as a sentence instead of splitting lines."
    )
    unwrap: bool = setting(
        default=False,
        help="Join the lines of hard-wrapped paragraphs, as in Project Gutenberg's books.",
    )
    dedup: str = setting(
        "none",
        "Leave out sentences, or complete documents, that repeat an earlier one.",
        choices=("none", "sentences", "documents"),
    )
    text_field: str = setting(
        "text", "Field of a row that contains the text; a.b is the field b of a struct a."
    )
    strict: bool = setting(
        default=False,
        help="Refuse text with invalid UTF-8, NUL characters or lone surrogates instead of "
        "repairing it.",
    )
    seq_len: int = setting(
        128, "Maximum tokens per example, including [CLS] and [SEP].", at_least=5, at_most=65_535
    )
    short_seq_prob: float = setting(
        0.1, "Fraction of pairs to make shorter, as in BERT.", at_least=0, at_most=1
    )
    masked_lm_prob: float = setting(
        0.15, "Fraction of an example's tokens to predict.", above=0, at_most=1
    )
    max_predictions_per_seq: int | None = setting(
        None, "Maximum tokens to predict per example (default: no limit).", at_least=1
    )
    whole_word: bool = setting(default=False, help="Predict all pieces of a word, or none.")
    span: bool = setting(
        default=False, help="Predict spans of words of random length, as in SpanBERT."
    )
    objective: str = setting(
        "nsp",
        "What to learn besides MLM: nsp (next sentence: does B follow A, or is it random), sop "
        "(sentence order: are A and B swapped, as in ALBERT), or mlm (nothing; examples have one "
        "segment).",
        choices=OBJECTIVES,
    )
    pairing: str = setting(
        "balanced",
        "How to draw B: balanced (as many random as following, with the same lengths) or google "
        "(exactly the pairs and masks of google-research/bert).",
        choices=("balanced", "google"),
    )
    dupe_factor: int = setting(
        1, "Number of passes over the text, with different pairs and masks.", at_least=1
    )
    valid_fraction: float = setting(
        0.05, "Fraction of documents to hold out in valid/.", at_least=0, below=1
    )
    shard: str | None = setting(
        None,
        "Build only part I of N: every N-th file of INPUT or, if there are fewer files than parts, "
        "every N-th document. Requires `tokenizer`.",
        metavar="I/N",
    )
    seed: int = setting(0, "Seed of all random draws.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_shard(self.shard)
        if self.unwrap and self.sentence_per_line:
            raise SettingError("unwrap", "and `sentence_per_line` exclude each other")
        if self.span and self.pairing == "google":
            raise SettingError(
                "span", "and `pairing` google exclude each other: google-research/bert has no spans"
            )
        if self.objective != "nsp" and self.pairing == "google":
            raise SettingError(
                "objective", f"{self.objective} and `pairing` google exclude each other"
            )

    def of_part(self, what: str) -> str:
        """Name a random draw so that each part of a corpus gets different draws."""
        part, num_parts = parse_shard(self.shard)
        return what if num_parts == 1 else f"{what} of part {part}/{num_parts}"
