"""Documents -> sentence pairs with labels, as google-research/bert frames them.

Pairs are positions in the documents' flat array of ids; `bertpt.build.sequences` makes ids of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bertpt.build.documents import StoredDocuments
from bertpt.config.data import IGNORE_INDEX
from bertpt.rng import below

IS_NEXT = 0
RANDOM = 1
NUM_SPECIAL = 3  # [CLS] A [SEP] B [SEP]; one fewer without B
MAX_TRIES = 10  # to draw a random B that fits
MAX_LISTED = 1 << 16  # sentences of a document to hold in a list


class Pair(NamedTuple):
    """Two segments, and whether B follows A (`IS_NEXT`) or not (`RANDOM`).

    Each segment is `tokens[start:end]` of the documents it comes from. Without B, that segment is
    empty and the label `IGNORE_INDEX`.
    """

    a_start: int
    a_end: int
    b_start: int
    b_end: int
    next_sentence_label: int

    @property
    def num_tokens(self) -> int:
        """Tokens of both segments, [CLS] and [SEP] included."""
        num_special = NUM_SPECIAL - (self.next_sentence_label == IGNORE_INDEX)
        return self.a_end - self.a_start + self.b_end - self.b_start + num_special


class _Maker:
    """Documents, and the target length of their pairs.

    Args:
        documents: at least two for `PairMaker`, otherwise any number.
        max_num_tokens: of A and B together, without [CLS] and [SEP]; at least 2.
        short_seq_prob: share of the pairs with a shorter target.
    """

    def __init__(
        self, documents: StoredDocuments, *, max_num_tokens: int, short_seq_prob: float
    ) -> None:
        self._documents = documents
        self._max_num_tokens = max_num_tokens
        self._short_seq_prob = short_seq_prob

    def _draw_target(self, rng: np.random.Generator) -> int:
        """Draw the target length of an example: the maximum, or sometimes 2 tokens or more."""
        if rng.random() < self._short_seq_prob:
            return 2 + below(rng, self._max_num_tokens - 1)
        return self._max_num_tokens


class PairMaker(_Maker):
    """Cuts documents into sentence pairs; half the time B is drawn from another document.

    This follows google-research/bert: take consecutive sentences until they fill an example, and
    split them into A and B at random; if B is replaced, its sentences are used again; leave pairs
    that are too long to `truncate_pair`. It differs where Google's algorithm leaks the label or
    gets it wrong:

    - A pair never has a single sentence if the document has two. A last sentence that is left over
      is paired with the one before it, repeatedly until B is the true one. Each try is true or
      random with equal chance, so the labels stay balanced.
    - A random B starts at any sentence of the other documents with equal chance, so long and short
      documents occur in it as often as in true ones. It never starts at a document's first
      sentence, since no true B does.
    - A random B is as long as a true one might be, in tokens or in sentences.
    - A random B whose text is the true continuation, as in a copy of the document, is redrawn.
    """

    def __init__(
        self, documents: StoredDocuments, *, max_num_tokens: int, short_seq_prob: float
    ) -> None:
        super().__init__(documents, max_num_tokens=max_num_tokens, short_seq_prob=short_seq_prob)
        # First sentence of each document. Reading single numbers from a memoryview takes half the
        # time that it takes from the array.
        self._starts = np.concatenate([[0], documents.lengths.cumsum()]).data

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield the pairs of one document; all randomness comes from `rng`."""
        ends = _fast(self._documents.ends(number))
        num_sentences = len(ends) - 1
        if num_sentences == 1:
            yield self._pair_of_one_sentence(number, rng)
            return
        start = 0
        while start < num_sentences:
            start = min(start, num_sentences - 2)
            target = self._draw_target(rng)
            end = _end_of_chunk(ends, start, target)
            middle = start + 1 + below(rng, end - start - 1)
            a_start, b_start, b_end = ends[start], ends[middle], ends[end]
            random_b = None
            if rng.random() < 0.5:
                room = target - (b_start - a_start)
                random_b = self._random_b(
                    number,
                    room=room,
                    num_before=middle - start,
                    num_sentences=None if b_end - b_start >= room else end - middle,
                    excluded=(b_start, ends[middle + 1]),
                    rng=rng,
                )
            if random_b:
                yield Pair(a_start, b_start, *random_b, RANDOM)
                start = middle
            else:
                yield Pair(a_start, b_start, b_start, b_end, IS_NEXT)
                start = end

    def _pair_of_one_sentence(self, number: int, rng: np.random.Generator) -> Pair:
        """Pair a document of one sentence, which has no true B, with a random one."""
        start, end = self._documents.ends(number).tolist()
        room = self._draw_target(rng) - (end - start)
        b = self._random_b(
            number, room=room, num_before=1, num_sentences=None, excluded=(start, start), rng=rng
        )
        assert b is not None, "no sentence equals the empty one"
        return Pair(start, end, *b, RANDOM)

    def _random_b(
        self,
        number: int,
        *,
        room: int,
        num_before: int,
        num_sentences: int | None,
        excluded: tuple[int, int],
        rng: np.random.Generator,
    ) -> tuple[int, int] | None:
        """Draw sentences from another document, as many as a true B might have.

        A true B that fills the example is the rest of a chunk that was split at random, so the
        more sentences it has, the less likely is this A before it: `num_before` and k sentences
        are split this way in one of `num_before + k - 1` cases. Accepting a draw with that
        probability gives random Bs the lengths of true ones.

        Args:
            number: A's document.
            room: tokens left besides A; if none are left, one sentence fills the example.
            num_before: sentences in A.
            num_sentences: in a true B that leaves room; `None` if it fills the example.
            excluded: the sentence that B must not begin with.
            rng: source of randomness.

        Returns:
            Start and end of the tokens, or `None` if every draw began with the excluded sentence.
        """
        tokens, best = self._documents.tokens, None
        excluded_ids = tokens[slice(*excluded)].tobytes()
        for _ in range(MAX_TRIES):
            other, sentence = self._draw_sentence(number, rng)
            ends = self._documents.ends(other).data
            start, end = _sentence_range(ends, sentence, room=room, num_sentences=num_sentences)
            b_start, b_end = ends[start], ends[end]
            if tokens[b_start : ends[start + 1]].tobytes() == excluded_ids:
                continue
            fills = b_end - b_start >= room
            if num_sentences is None:
                is_accepted = fills and rng.random() * (num_before + end - start - 1) < num_before
            else:
                is_accepted = not fills and end - start == num_sentences
            if is_accepted:
                return b_start, b_end
            if best is None or abs(b_end - b_start - room) < abs(best[1] - best[0] - room):
                best = b_start, b_end
        return best

    def _draw_sentence(self, number: int, rng: np.random.Generator) -> tuple[int, int]:
        """Draw any sentence of the other documents: its document, and its index there."""
        starts = self._starts
        start, end = starts[number], starts[number + 1]
        sentence = below(rng, starts[-1] - (end - start))
        if sentence >= start:
            sentence += end - start
        other = bisect_right(starts, sentence) - 1
        return other, sentence - starts[other]


class OrderMaker(_Maker):
    """Cuts documents into pairs for sentence-order prediction (Lan et al., "ALBERT", 2020).

    A and B are consecutive, and swapped half the time; then `next_sentence_label` is 1. Chunks of
    sentences are as in `PairMaker`. A document of one sentence is split inside it, unless it has
    only one token.
    """

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield the pairs of one document; all randomness comes from `rng`."""
        ends = _fast(self._documents.ends(number))
        num_sentences = len(ends) - 1
        if num_sentences == 1:
            if ends[1] - ends[0] > 1:
                middle = ends[0] + 1 + below(rng, ends[1] - ends[0] - 1)
                yield _maybe_swapped(ends[0], middle, ends[1], rng)
            return
        start = 0
        while start < num_sentences:
            start = min(start, num_sentences - 2)
            target = self._draw_target(rng)
            end = _end_of_chunk(ends, start, target)
            middle = start + 1 + below(rng, end - start - 1)
            yield _maybe_swapped(ends[start], ends[middle], ends[end], rng)
            start = end


def _maybe_swapped(start: int, middle: int, end: int, rng: np.random.Generator) -> Pair:
    if rng.random() < 0.5:
        return Pair(middle, end, start, middle, RANDOM)
    return Pair(start, middle, middle, end, IS_NEXT)


class SegmentMaker(_Maker):
    """Cuts documents into single segments of the target length, without losing a token."""

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield the segments of one document as pairs without B."""
        start, last = self._documents.ends(number)[[0, -1]].tolist()
        while start < last:
            end = min(start + self._draw_target(rng), last)
            yield Pair(start, end, end, end, IGNORE_INDEX)
            start = end


def _fast(ends: np.ndarray) -> Sequence[int]:
    """Return numbers as a list, which is fastest, or as a view if that would take much memory."""
    return ends.tolist() if len(ends) <= MAX_LISTED else ends.data


def _end_of_chunk(ends: Sequence[int], start: int, target: int) -> int:
    """Return the end of a chunk with at least `target` tokens and two sentences."""
    end = bisect_left(ends, ends[start] + target, start)
    return min(max(end, start + 2), len(ends) - 1)


def _sentence_range(
    ends: Sequence[int], start: int, *, room: int, num_sentences: int | None
) -> tuple[int, int]:
    """Return a range of sentences, starting earlier if the document would end too soon.

    Args:
        ends: sentence ends of the document.
        start: preferred first sentence; never the document's first.
        room: tokens to fill if `num_sentences` is `None`.
        num_sentences: number of sentences.
    """
    last = len(ends) - 1
    latest = (
        bisect_right(ends, ends[last] - room) - 1 if num_sentences is None else last - num_sentences
    )
    start = max(min(1, last - 1), min(start, latest))
    end = bisect_left(ends, ends[start] + room) if num_sentences is None else start + num_sentences
    return start, min(max(end, start + 1), last)
