"""Add the words of a domain to a model's vocabulary; all other ids stay as they are."""

import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import models

from bertpt import files
from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError, SettingError
from bertpt.outputs import refuse_existing
from bertpt.progress import Progress
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer
from bertpt.tokenizer.train import count_words, is_tokenizer_folder, log_findings

UNUSED = re.compile(r"\[unused\d+\]")  # entries that Google's vocabularies keep for such words
NUM_ROUNDS = 12
NUM_GROWING = 8  # rounds in which the number of tokens grows; the others exchange some
COST_OF_UNKNOWN = 2  # tokens that [UNK] counts as, so unknown words are worth adding


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
    if corpus.ignored:
        progress.log(corpus.ignored)
    with files.new_folder(out, recheck=check) as work:
        with progress.bar("reading", unit="B", unit_scale=True, total=corpus.total_bytes) as bar:
            lines = (line for piece in corpus.with_progress(bar) for line in piece.sentences)
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


# ------------------------------------------------------------------------------------------ choose


def choose_tokens(
    words: Mapping[str, int],
    base: Tokenizer,
    num_added: int,
    *,
    min_frequency: int = 2,
    on_round: Callable[[int], object] = bool,
) -> list[str]:
    """Choose the tokens that save most tokens on a text, the one that saves most first.

    A candidate is any run of consecutive pieces of a word, up to the entire word. WordPiece takes
    the longest piece that fits, so a new token also changes how other words are split. Therefore
    tokens are chosen in rounds; each round splits all words with the tokens so far.

    Args:
        words: cleaned words of the text, with their counts.
        base: the vocabulary to extend.
        num_added: tokens to choose.
        min_frequency: do not choose a token that occurs less often.
        on_round: called with 1 after each round.

    Returns:
        At most `num_added` tokens, in WordPiece spelling ("##ing" inside a word).
    """
    in_order = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    chosen: list[str] = []
    for round_number in range(1, NUM_ROUNDS + 1):
        vocab = [*base.vocab, *chosen]
        model = _word_piece(base, vocab)
        usage: Counter[str] = Counter()
        candidates = _Candidates(base, vocab, min_frequency)
        for word, count in in_order:
            pieces = [piece.value for piece in model.tokenize(word)]
            candidates.add(pieces, word, count)
            for piece in pieces:
                usage[piece] += count
        # Other tokens may have made an earlier choice a poor one, so all compete again.
        without = split_tokens(base, chosen, vocab=vocab, whole=False)
        gains = {
            token: usage[token]
            * ((COST_OF_UNKNOWN if pieces == [base.unk_id] else len(pieces)) - 1)
            for token, pieces in zip(chosen, without, strict=True)
            if usage[token] >= min_frequency
        }
        wanted = -(-num_added * min(round_number, NUM_GROWING) // NUM_GROWING)
        gains |= candidates.best(wanted)
        chosen = sorted(gains, key=lambda token: (-gains[token], token))[:wanted]
        on_round(1)
    return chosen


class _Candidates:
    """Runs of pieces, each with the words that contain it.

    Args:
        base: gives the prefix of pieces inside a word, and [UNK].
        vocab: tokens that are no candidates.
        min_frequency: of a run.
    """

    def __init__(self, base: Tokenizer, vocab: Sequence[str], min_frequency: int) -> None:
        self._known = set(vocab)
        self._prefix = base.backend.model.continuing_subword_prefix
        self._unknown = base.vocab[base.unk_id]
        self._min_frequency = min_frequency
        self._counts: list[int] = []  # by word
        self._words_of: dict[str, list[int]] = {}
        self._saved: dict[str, int] = {}  # tokens saved at each occurrence

    def add(self, pieces: Sequence[str], word: str, count: int) -> None:
        number = len(self._counts)
        self._counts.append(count)
        if pieces == [self._unknown]:
            self._note(word, number, COST_OF_UNKNOWN - 1)
            return
        for start in range(len(pieces) - 1):
            token = pieces[start]
            for end in range(start + 1, len(pieces)):
                token += pieces[end].removeprefix(self._prefix)
                self._note(token, number, end - start)

    def _note(self, token: str, word: int, num_saved: int) -> None:
        self._words_of.setdefault(token, []).append(word)
        self._saved[token] = num_saved

    def best(self, wanted: int) -> dict[str, int]:
        """Return the tokens that save most, and how much; no two of them are in the same word."""
        taken: set[int] = set()

        def free(token: str) -> list[int]:
            return [word for word in self._words_of[token] if word not in taken]

        def gain(token: str, of_words: list[int]) -> int:
            frequency = sum(self._counts[word] for word in of_words)
            return frequency * self._saved[token] if frequency >= self._min_frequency else 0

        heap = [(-gain(token, found), token) for token, found in self._words_of.items()]
        heap = [entry for entry in heap if entry[0] < 0 and entry[1] not in self._known]
        heapq.heapify(heap)
        chosen: dict[str, int] = {}
        while heap and len(chosen) < wanted:
            known_gain, token = heapq.heappop(heap)
            left = free(token)
            if (now := gain(token, left)) < -known_gain:  # other tokens took some of its words
                if now:
                    heapq.heappush(heap, (-now, token))
                continue
            chosen[token] = now
            taken.update(left)
        return chosen


def _word_piece(base: Tokenizer, vocab: Sequence[str]) -> models.WordPiece:
    model = base.backend.model
    return models.WordPiece(
        {token: number for number, token in enumerate(vocab)},
        unk_token=model.unk_token,
        max_input_chars_per_word=model.max_input_chars_per_word,
        continuing_subword_prefix=model.continuing_subword_prefix,
    )


# ---------------------------------------------------------------------------------------- add, undo


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


def _is_unused(token: str) -> bool:
    return UNUSED.fullmatch(token) is not None
