"""Choose the tokens that shorten a text most."""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tokenizers import models

from bertpt.tokenizer.added import split_tokens
from bertpt.tokenizer.tokenizer import Tokenizer

NUM_ROUNDS = 12
NUM_GROWING = 8  # rounds in which the number of tokens grows; the others exchange some
COST_OF_UNKNOWN = 2  # tokens that [UNK] counts as, so unknown words are worth adding


def choose_tokens(
    words: Mapping[str, int],
    base: Tokenizer,
    num_added: int,
    *,
    min_frequency: int = 2,
    on_round: Callable[[int], object] = bool,
) -> list[str]:
    """Choose the tokens that save most tokens on a text, best first.

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
        gains: dict[str, int] = {}
        for token, ids in zip(chosen, without, strict=True):
            cost = COST_OF_UNKNOWN if ids == [base.unk_id] else len(ids)
            if usage[token] >= min_frequency:
                gains[token] = usage[token] * (cost - 1)
        wanted = -(-num_added * min(round_number, NUM_GROWING) // NUM_GROWING)
        gains |= candidates.best(wanted)
        chosen = sorted(gains, key=lambda token: (-gains[token], token))[:wanted]
        on_round(1)
    return chosen


class _Candidates:
    """Runs of pieces, each with the words that contain it.

    Args:
        base: gives the prefix of pieces inside a word, and [UNK].
        vocab: tokens that are not candidates.
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
            negated, token = heapq.heappop(heap)
            left = free(token)
            if (now := gain(token, left)) < -negated:  # other tokens took some of its words
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
