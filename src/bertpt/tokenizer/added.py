"""Tokenizers that extend another one: more tokens, all other ids unchanged."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import tokenizers

from bertpt.tokenizer.tokenizer import Tokenizer

UNUSED = re.compile(r"\[unused\d+\]")  # entries that Google's vocabularies keep for new words


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
    if base.fingerprint == extended.fingerprint:
        return {}
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


def split_tokens(
    base: Tokenizer,
    tokens: Iterable[str],
    *,
    vocab: Sequence[str] | None = None,
    whole: bool = True,
) -> list[list[int]]:
    """Return the ids into which WordPiece splits each token, which may begin with "##".

    Args:
        base: gives the prefix of pieces inside a word, and [UNK].
        tokens: to split.
        vocab: the pieces, sorted by id; by default those of `base`.
        whole: whether a token may be a single piece, itself.
    """
    prefix = base.backend.model.continuing_subword_prefix
    ids = {token: number for number, token in enumerate(vocab or base.vocab)}

    def split(token: str) -> list[int]:
        is_inside = token.startswith(prefix) and token != prefix
        text = token.removeprefix(prefix) if is_inside else token
        found: list[int] = []
        start = 0
        while start < len(text):
            mark = prefix if is_inside or start else ""
            longest = len(text) - (start == 0 and not whole)
            ends = range(longest, start, -1)
            end = next((end for end in ends if mark + text[start:end] in ids), None)
            if end is None:
                return [base.unk_id]
            found.append(ids[mark + text[start:end]])
            start = end
        return found

    return [split(token) for token in tokens]
