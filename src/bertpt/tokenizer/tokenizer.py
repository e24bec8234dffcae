"""The WordPiece tokenizer: load, save, encode, decode, compare."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertpt import files
from bertpt.config import TokenizerConfig
from bertpt.errors import InputError, SettingError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json")  # of a tokenizer folder
MAX_CHARS_PER_WORD = 100  # longer words are [UNK], as in transformers


class Tokenizer:
    """A BERT WordPiece tokenizer that treats special tokens in a text as plain text.

    Get one from `load_tokenizer`, `from_vocab` or `bertpt.tokenizer.train.learn`.

    Attributes:
        vocab: the tokens, sorted by id.
        never_predicted: bool (vocabulary,), true for [PAD], [CLS], [SEP] and [MASK].
        ordinary_ids: all ids except those of the five special tokens, ascending.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        backend.encode_special_tokens = True  # "[SEP]" in a text must not become a separator
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        ids = backend.get_vocab(with_added_tokens=True)
        self.vocab = sorted(ids, key=lambda token: ids[token])
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            ids[token] for token in SPECIAL_TOKENS
        )
        self.never_predicted = np.zeros(len(self.vocab), dtype=bool)
        self.never_predicted[[self.pad_id, self.cls_id, self.sep_id, self.mask_id]] = True
        is_special = self.never_predicted.copy()
        is_special[self.unk_id] = True
        self.ordinary_ids = np.flatnonzero(~is_special)

    @cached_property
    def continues(self) -> np.ndarray:
        """Whether a token continues a word, as "##ing" does: bool (vocabulary,).

        Raises:
            InputError: the tokenizer does not mark such tokens with a prefix.
        """
        prefix = self.backend.model.continuing_subword_prefix
        if not prefix:
            raise InputError(
                "cannot mask whole words: this tokenizer does not mark the pieces of a word (its "
                "continuing_subword_prefix is empty); mask tokens, or use another tokenizer"
            )
        # "##" alone is not a piece but the word "##".
        return np.array([t.startswith(prefix) and t != prefix for t in self.vocab], dtype=bool)

    @cached_property
    def num_characters(self) -> np.ndarray:
        """Characters of each token, without the prefix "##": int64, (vocabulary,)."""
        prefix = self.backend.model.continuing_subword_prefix
        return np.array([len(t.removeprefix(prefix) or t) for t in self.vocab], dtype=np.int64)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode each text as int32 ids, without [CLS] and [SEP]."""
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def text(self, ids: Iterable[int]) -> str:
        """Decode ids, special tokens included."""
        return str(self.backend.decode([int(i) for i in ids], skip_special_tokens=False))

    @cached_property
    def splits_at_spaces(self) -> bool:
        """Whether encoding a text equals encoding its parts between ASCII spaces."""
        state = json.loads(self.backend.to_str())
        kinds = [(state[key] or {}).get("type") for key in ("normalizer", "pre_tokenizer")]
        return kinds == ["BertNormalizer", "BertPreTokenizer"] and all(
            token["special"] for token in state["added_tokens"]
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text.

        It does not depend on the file format, so it tells whether two tokenizers are the same.
        """
        state = json.loads(self.backend.to_str())
        decisive = {key: state[key] for key in ("normalizer", "pre_tokenizer", "model")}
        cleaning = decisive["normalizer"] or {}
        if cleaning.get("type") == "BertNormalizer" and cleaning["strip_accents"] is None:
            cleaning["strip_accents"] = cleaning["lowercase"]  # the meaning of None
        canonical = json.dumps([decisive, self.vocab], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()

    def save(self, folder: Path, *, max_tokens: int | None = None) -> None:
        """Write tokenizer.json, vocab.txt and tokenizer_config.json for transformers.

        Args:
            folder: created if it does not exist.
            max_tokens: the length to which transformers truncates texts.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files.write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True) + "\n")
        files.write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in self.vocab))
        state = json.loads(self.backend.to_str())
        cleaning = state["normalizer"] or {}
        # BertTokenizer cleans and splits as BERT does and ignores what tokenizer.json says.
        kinds = {(state[key] or {}).get("type") for key in ("normalizer", "pre_tokenizer")}
        is_bert = kinds == {"BertNormalizer", "BertPreTokenizer"}
        pad, unk, cls, sep, mask = SPECIAL_TOKENS
        limit = {} if max_tokens is None else {"model_max_length": max_tokens}
        files.write_json(
            folder / "tokenizer_config.json",
            {
                "tokenizer_class": "BertTokenizer" if is_bert else "PreTrainedTokenizerFast",
                "do_lower_case": cleaning.get("lowercase", False),
                "strip_accents": cleaning.get("strip_accents"),
                "tokenize_chinese_chars": cleaning.get("handle_chinese_chars", False),
                "pad_token": pad,
                "unk_token": unk,
                "cls_token": cls,
                "sep_token": sep,
                "mask_token": mask,
                **limit,
            },
        )


# ------------------------------------------------------------------------------------------ load


def load_tokenizer(path: Path, cleaning: TokenizerConfig | None = None) -> Tokenizer:
    """Load a tokenizer from a tokenizer.json, a vocab.txt, or a folder with one.

    Args:
        path: the file, or a tokenizer, MODEL, RUN or DATA folder.
        cleaning: lowercase and strip_accents for a vocab.txt, which does not contain them; `None`
            reads them from a tokenizer_config.json in the same folder, or uses the defaults.

    Raises:
        InputError: there is no tokenizer, it is not WordPiece, or it lacks a special token.
        SettingError: `cleaning` was given for a tokenizer.json, which has these settings.
    """
    if path.is_dir():
        for place in ("", "model", "tokenizer"):
            for name in ("tokenizer.json", "vocab.txt"):
                if (path / place / name).is_file():
                    return load_tokenizer(path / place / name, cleaning)
        raise InputError(f"{path} contains no tokenizer.json or vocab.txt; copy one there")
    if not path.is_file():
        raise InputError(f"no such tokenizer: {path}")
    if path.suffix == ".json":
        if cleaning is not None:
            raise SettingError(
                "lowercase",
                f"and `strip_accents` apply to a vocab.txt only; {path} has its own settings",
            )
        return Tokenizer(_read_tokenizer_json(path))
    config = path.with_name("tokenizer_config.json")
    chinese = True
    if cleaning is None:
        stored = files.read_json(config) if config.is_file() else {}
        cleaning = TokenizerConfig(
            lowercase=stored.get("do_lower_case", True), strip_accents=stored.get("strip_accents")
        )
        chinese = stored.get("tokenize_chinese_chars", True)
    return from_vocab(
        _read_vocab(path),
        lowercase=cleaning.lowercase,
        strip_accents=cleaning.strips_accents,
        handle_chinese_chars=chinese,
    )


def _read_tokenizer_json(path: Path) -> tokenizers.Tokenizer:
    try:
        backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8-sig"))
    except Exception as error:
        raise InputError(f"{path} is not a tokenizer: {error}") from error
    if not isinstance(backend.model, models.WordPiece):
        kind = type(backend.model).__name__
        raise InputError(f"{path} is a {kind} tokenizer; bertpt needs WordPiece")
    ids = backend.get_vocab(with_added_tokens=True)
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"{path}: the ids of its {len(ids)} tokens are not 0 to {len(ids) - 1}")
    _require_special(ids, path)
    return backend


def _read_vocab(path: Path) -> list[str]:
    """Read the tokens of a vocab.txt, one per line.

    Only a line feed ends a line: other separators, such as U+2028, may be tokens.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a vocabulary: {error}") from error
    vocab = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    first: dict[str, int] = {}
    for number, token in enumerate(vocab, start=1):
        if not token:
            raise InputError(f"{path}: line {number} is empty; a token's id is its line number")
        if token.strip(" \t\r") != token:
            raise InputError(
                f"{path}: line {number}, {token!r}, begins or ends with white space, so it would "
                "never match; remove it (sed 's/^[ \\t]*//; s/[ \\t]*$//')"
            )
        if token in first:
            raise InputError(f"{path}: line {number} repeats line {first[token]}, {token!r}")
        first[token] = number
    _require_special(first, path)
    return vocab


def _require_special(vocab: Iterable[str], path: Path) -> None:
    missing = [token for token in SPECIAL_TOKENS if token not in set(vocab)]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; a BERT vocabulary needs all five")


# ------------------------------------------------------------------------------------------ make


def normalizer(*, lowercase: bool, strip_accents: bool, handle_chinese_chars: bool = True) -> Any:
    """Clean text as BERT does: drop control characters, put spaces around Chinese characters."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=handle_chinese_chars,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )


def from_vocab(
    vocab: list[str], *, lowercase: bool, strip_accents: bool, handle_chinese_chars: bool = True
) -> Tokenizer:
    """Make a tokenizer from its tokens, sorted by id."""
    ids = {token: i for i, token in enumerate(vocab)}
    backend = tokenizers.Tokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=MAX_CHARS_PER_WORD)
    )
    backend.normalizer = normalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        handle_chinese_chars=handle_chinese_chars,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return Tokenizer(backend)
