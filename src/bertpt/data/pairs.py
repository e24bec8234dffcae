"""Documents -> sentence pairs with next-sentence labels. Pure: the generator is passed in."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bertpt.data.documents import Document, Documents
from bertpt.data.tokenizer import Tokenizer
from bertpt.rng import below

IS_NEXT = 0
RANDOM = 1
NO_PAIR = -100
NUM_SPECIAL = 3  # [CLS] A [SEP] B [SEP]; one fewer without B
DRAWS = 10  # of a random B, until one is fit


class Pair(NamedTuple):
    """Two segments of token ids, and whether B follows A (`IS_NEXT`) or not (`RANDOM`).

    Where there is no B, it is empty and the label `NO_PAIR`.
    """

    a: np.ndarray
    b: np.ndarray
    next_sentence_label: int


def join(pair: Pair, vocabulary: Tokenizer) -> np.ndarray:
    """[CLS] A [SEP] B [SEP], or where there is no B [CLS] A [SEP], as one array of ids."""
    cls, sep = [vocabulary.cls_id], [vocabulary.sep_id]
    if pair.next_sentence_label == NO_PAIR:
        return np.concatenate([cls, pair.a, sep])
    return np.concatenate([cls, pair.a, sep, pair.b, sep])


class _Maker:
    """What makes examples of documents, and how long they are to be."""

    def __init__(self, documents: Documents, *, max_num_tokens: int, short_seq_prob: float) -> None:
        self._documents = documents
        self._max_num_tokens = max_num_tokens
        self._short_seq_prob = short_seq_prob

    def _draw_target(self, rng: np.random.Generator) -> int:
        """How many tokens an example aims at: all it may have, or sometimes fewer, 2 at least."""
        if rng.random() < self._short_seq_prob:
            return 2 + below(rng, self._max_num_tokens - 1)
        return self._max_num_tokens


class PairMaker(_Maker):
    """Cuts documents into sentence pairs, B being drawn from another document half the time.

    The frame is that of google-research/bert: consecutive sentences are taken until they fill an
    example and are parted into A and B at random; where B is replaced, the sentences it would
    have held go back to be used again; too long a pair is cut by `truncate_pair`. It departs from
    Google's where that one gives the label away or gets it wrong:

    - a pair is never made of one sentence while the document has two; a last sentence left over
      is paired with the one before it, again and again until it is a true B, and since each try
      is true or random with equal chance, the labels stay even;
    - a random B starts at any sentence of the other documents with equal chance, so that long
      and short ones turn up in it as they do in true ones, but not at a document's first, where
      no true B starts either;
    - a random B is about as long as the B that it replaces;
    - a random B whose text is the true continuation, as from a copy of the document, is redrawn.

    Args:
        documents: at least two, none empty, none with an empty sentence.
        max_num_tokens: of A and B together, without [CLS] and [SEP]; 2 or more.
        short_seq_prob: share of the pairs that aim at fewer tokens.
    """

    def __init__(self, documents: Documents, *, max_num_tokens: int, short_seq_prob: float) -> None:
        super().__init__(documents, max_num_tokens=max_num_tokens, short_seq_prob=short_seq_prob)
        lengths = [len(documents[number]) for number in range(len(documents))]
        self._starts = np.cumsum([0, *lengths])  # of each document, counted in sentences

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """The pairs of one document in one pass; `rng` decides everything that is random."""
        document = self._documents[number]
        if len(document) == 1:
            yield from self._pair_of_one_sentence(number, rng)
            return
        start = 0
        while start < len(document):
            start = min(start, len(document) - 2)
            target = self._draw_target(rng)
            end = _end_of_chunk(document, start, target)
            middle = start + 1 + below(rng, end - start - 1)
            a, true_b = document.tokens(start, middle), document.tokens(middle, end)
            b, label, start = true_b, IS_NEXT, end
            if rng.random() < 0.5:
                fill = len(a) + len(true_b) >= self._max_num_tokens
                num_tokens = self._max_num_tokens - len(a) if fill else len(true_b)
                first = document.tokens(middle, middle + 1)
                other = self._random_b(number, max(1, num_tokens), fill=fill, unlike=first, rng=rng)
                if other is not None:
                    b, label, start = other, RANDOM, middle
            yield Pair(*truncate_pair(a, b, self._max_num_tokens, rng), label)

    def _pair_of_one_sentence(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """A document of one sentence has no true B."""
        a = self._documents[number].tokens(0, 1)
        target = self._draw_target(rng)
        num_tokens = max(1, target - len(a))
        b = self._random_b(number, num_tokens, fill=True, unlike=a[:0], rng=rng)
        assert b is not None, "every sentence is unlike an empty one"
        yield Pair(*truncate_pair(a, b, self._max_num_tokens, rng), RANDOM)

    def _random_b(
        self,
        number: int,
        num_tokens: int,
        *,
        fill: bool,
        unlike: np.ndarray,
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        """About `num_tokens` (or as many at least: `fill`) from another document than `number`.

        `None` where nothing turns up that does not begin with the sentence `unlike`.
        """
        best = None
        for _ in range(DRAWS):
            other, sentence = self._draw_sentence(number, rng)
            start, end = _span(other, sentence, num_tokens, fill=fill)
            if np.array_equal(other.tokens(start, start + 1), unlike):
                continue
            b = other.tokens(start, end)
            if end < len(other) or len(b) >= num_tokens:
                return b
            if best is None or len(b) > len(best):
                best = b
        return best

    def _draw_sentence(self, number: int, rng: np.random.Generator) -> tuple[Document, int]:
        """Any sentence of the other documents, with equal chance: its document and its number."""
        start, end = self._starts[number], self._starts[number + 1]
        sentence = below(rng, self._starts[-1] - (end - start))
        if sentence >= start:
            sentence += end - start
        other = int(np.searchsorted(self._starts, sentence, side="right")) - 1
        return self._documents[other], int(sentence - self._starts[other])


class OrderMaker(_Maker):
    """Cuts documents into pairs for sentence-order prediction (Lan et al., "ALBERT", 2020).

    A and B are consecutive, and swapped half the time; `next_sentence_label` is 1 for those. Runs
    of sentences are as in `PairMaker`. A document of one sentence is parted inside it; one of one
    token gives nothing.

    Args:
        documents: none empty, none with an empty sentence.
        max_num_tokens: of A and B together, without [CLS] and [SEP]; 2 or more.
        short_seq_prob: share of the pairs that aim at fewer tokens.
    """

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """The pairs of one document in one pass; `rng` decides everything that is random."""
        document = self._documents[number]
        if len(document) == 1:
            tokens = document.tokens(0, 1)
            if len(tokens) > 1:
                middle = 1 + below(rng, len(tokens) - 1)
                yield self._pair(tokens[:middle], tokens[middle:], rng)
            return
        start = 0
        while start < len(document):
            start = min(start, len(document) - 2)
            target = self._draw_target(rng)
            end = _end_of_chunk(document, start, target)
            middle = start + 1 + below(rng, end - start - 1)
            yield self._pair(document.tokens(start, middle), document.tokens(middle, end), rng)
            start = end

    def _pair(self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> Pair:
        a, b = truncate_pair(a, b, self._max_num_tokens, rng)
        return Pair(b, a, RANDOM) if rng.random() < 0.5 else Pair(a, b, IS_NEXT)


class SegmentMaker(_Maker):
    """Cuts documents into single segments, as long as they may be, no token left out.

    Args:
        documents: none empty.
        max_num_tokens: of a segment, without [CLS] and [SEP]; 2 or more.
        short_seq_prob: share of the segments that aim at fewer tokens.
    """

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """The segments of one document in one pass, as pairs without a B."""
        document = self._documents[number]
        tokens = document.tokens(0, len(document))
        start = 0
        while start < len(tokens):
            end = start + self._draw_target(rng)
            yield Pair(tokens[start:end], tokens[:0], NO_PAIR)
            start = end


def _end_of_chunk(document: Document, start: int, target: int) -> int:
    """The end of a run of sentences with `target` tokens or more, two sentences at least."""
    end = int(np.searchsorted(document.ends, document.ends[start] + target))
    return min(max(end, start + 2), len(document))


def _span(document: Document, start: int, num_tokens: int, *, fill: bool) -> tuple[int, int]:
    """Whole sentences with about `num_tokens`, or as many at least (`fill`), from near `start`."""
    ends, last = document.ends, len(document)
    # Not so near the document's end that the sentences there are too few.
    latest = int(np.searchsorted(ends, ends[last] - num_tokens, side="right")) - 1
    start = max(min(1, last - 1), min(start, latest))
    wanted = ends[start] + num_tokens
    end = min(max(int(np.searchsorted(ends, wanted)), start + 1), last)
    if not fill and end - start > 1 and wanted - ends[end - 1] < ends[end] - wanted:
        end -= 1
    return start, end


def truncate_pair(
    a: np.ndarray, b: np.ndarray, max_num_tokens: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts a pair to `max_num_tokens` as google-research/bert does.

    Tokens leave one by one, always from the longer segment (B where both are equal), from its
    front or its back with equal chance.
    """
    excess = len(a) + len(b) - max_num_tokens
    if excess <= 0:
        return a, b
    # The longer one loses tokens alone until both are equal, then they take turns, B first.
    alone = min(excess, abs(len(a) - len(b)))
    turns_b, turns_a = (excess - alone + 1) // 2, (excess - alone) // 2
    if len(a) > len(b):
        turns_a += alone
    else:
        turns_b += alone
    return _cut(a, turns_a, rng), _cut(b, turns_b, rng)


def _cut(segment: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    from_front = int((rng.random(count) < 0.5).sum())
    return segment[from_front : len(segment) - (count - from_front)]
