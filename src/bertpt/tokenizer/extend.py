"""Add the words of a domain to a model's vocabulary; all other ids stay as they are."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from bertpt import files
from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError, SettingError
from bertpt.outputs import refuse_existing
from bertpt.progress import Progress
from bertpt.tokenizer.choose import NUM_ROUNDS, choose_tokens
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer
from bertpt.tokenizer.train import count_words, is_tokenizer_folder, log_findings, reading

UNUSED = re.compile(r"\[unused\d+\]")  # entries that Google's vocabularies keep for such words


def extend_tokenizer(
    inputs: Sequence[str],
    out: Path,
    *,
    model: Path,
    num_added: int,
    min_frequency: int = 2,
    text_field: str = "text",
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Add the tokens that shorten a text most to a vocabulary, and write a tokenizer folder.

    New tokens take the places of [unusedN] entries first; the rest is appended. `pretrain` with
    `init_from` gives the model embeddings for them.

    Args:
        inputs: as in `bertpt.tokenizer.train.train_tokenizer`.
        out: the folder to write.
        model: a model, tokenizer, RUN or DATA folder whose vocabulary to extend.
        num_added: tokens to add.
        min_frequency: do not add a token that occurs less often.
        text_field: the field of a row that contains the text.
        strict: refuse text that needs repair.
        overwrite: replace an existing tokenizer folder at `out`.
        progress: receives progress bars and warnings.

    Returns:
        vocab_size, num_added, num_unused_replaced, tokens_per_word and unknown_share, each
        {"before", "after"}, tokenizer_sha256.

    Raises:
        BertptError: an input, the model's tokenizer or `out` is invalid.
    """
    progress = progress or Progress()
    if num_added < 1:
        raise SettingError("add", f"{num_added} must be at least 1")
    check = partial(refuse_existing, out, overwrite=overwrite, is_ours=is_tokenizer_folder)
    check()
    base = load_tokenizer(model)
    if not base.splits_at_spaces:
        raise InputError(
            f"cannot extend {model}: its tokenizer does not clean and split text as BERT's does"
        )
    corpus = Corpus(inputs, sentence_per_line=True, text_field=text_field, strict=strict)
    with files.new_folder(out, recheck=check) as work:
        with reading(corpus, progress) as lines:
            words = count_words(lines, base.backend.normalizer, progress=progress)
        if not words:
            raise InputError(f"{corpus.name}: contains no text")
        with progress.bar("choosing", unit="round", total=NUM_ROUNDS, leave=False) as bar:
            tokens = choose_tokens(
                words, base, num_added, min_frequency=min_frequency, on_round=bar.update
            )
        extended = with_tokens(base, tokens)
        extended.save(work)
    log_findings(corpus, progress)
    if len(tokens) < num_added:
        progress.log(
            f"warning: added {len(tokens)} tokens instead of {num_added}: the text has no more"
        )
    before, after = (_measure(words, tokenizer) for tokenizer in (base, extended))
    num_unused = sum(token not in extended.vocab for token in base.vocab)
    return {
        "vocab_size": len(extended.vocab),
        "num_added": len(tokens),
        "num_unused_replaced": num_unused,
        "tokens_per_word": {"before": before.tokens_per_word, "after": after.tokens_per_word},
        "unknown_share": {"before": before.unknown_share, "after": after.unknown_share},
        "tokenizer_sha256": extended.fingerprint,
    }


class _Measure(NamedTuple):
    tokens_per_word: float
    unknown_share: float  # of the words


def _measure(words: Mapping[str, int], tokenizer: Tokenizer) -> _Measure:
    num_words = num_tokens = num_unknown = 0
    for word, count in words.items():
        pieces = tokenizer.backend.model.tokenize(word)
        num_words += count
        num_tokens += count * len(pieces)
        num_unknown += count * (pieces[0].id == tokenizer.unk_id)
    return _Measure(num_tokens / num_words, num_unknown / num_words)


def with_tokens(base: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    """Return a tokenizer with more tokens: in place of [unusedN] entries, then appended."""
    special = {token["content"] for token in json.loads(base.backend.to_str())["added_tokens"]}
    free = [i for i, token in enumerate(base.vocab) if _is_unused(token) and token not in special]
    free += range(len(base.vocab), len(base.vocab) + len(tokens))
    return _with_tokens_at(base, dict(zip(free, tokens, strict=False)))


def _with_tokens_at(base: Tokenizer, tokens: Mapping[int, str]) -> Tokenizer:
    state = json.loads(base.backend.to_str())
    vocab = state["model"]["vocab"]
    for number, token in tokens.items():
        if number < len(base.vocab):
            vocab.pop(base.vocab[number], None)
        vocab[token] = number
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)))


def added_tokens(base: Tokenizer, extended: Tokenizer) -> dict[int, str] | None:
    """Return the tokens that `extended` has more than `base`, by id.

    Returns `None` if it is not an extension: an id other than that of [unusedN] has another token,
    or text is cleaned differently.
    """
    added = {
        number: token
        for number, token in enumerate(extended.vocab)
        if number >= len(base.vocab) or token != base.vocab[number]
    }
    if len(extended.vocab) < len(base.vocab):
        return None
    if not all(_is_unused(base.vocab[number]) for number in added if number < len(base.vocab)):
        return None
    rebuilt = _with_tokens_at(base, added)
    return added if rebuilt.fingerprint == extended.fingerprint else None


def _is_unused(token: str) -> bool:
    return UNUSED.fullmatch(token) is not None
