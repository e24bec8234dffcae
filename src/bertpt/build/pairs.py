"""Documents -> sentence pairs with next-sentence labels. Pure: the generator is passed in.

Pairs are places in the documents' flat array of ids, so that the ids of many can be put together
in one go.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bertpt.build.documents import StoredDocuments
from bertpt.data.ragged import ranges
from bertpt.rng import below
from bertpt.tokenizer.tokenizer import Tokenizer

IS_NEXT = 0
RANDOM = 1
NO_PAIR = -100
NUM_SPECIAL = 3  # [CLS] A [SEP] B [SEP]; one fewer without B
DRAWS = 10  # of a random B, until one is fit
BITS = 53  # of a random number between 0 and 1


class Pair(NamedTuple):
    """Two segments, and whether B follows A (`IS_NEXT`) or not (`RANDOM`).

    Each segment is `tokens[start:end]` of the documents it was drawn from. Where there is no B, it
    is empty and the label `NO_PAIR`.
    """

    a_start: int
    a_end: int
    b_start: int
    b_end: int
    next_sentence_label: int

    @property
    def num_tokens(self) -> int:
        """Tokens of both, [CLS] and [SEP] included."""
        num_special = NUM_SPECIAL - (self.next_sentence_label == NO_PAIR)
        return self.a_end - self.a_start + self.b_end - self.b_start + num_special


class Joined(NamedTuple):
    """Uncorrupted examples, one after another.

    Attributes:
        input_ids: of all of them.
        num_tokens: how many each has. (examples,)
        b_starts: where B begins in each; its length where there is no B. (examples,)
    """

    input_ids: np.ndarray
    num_tokens: np.ndarray
    b_starts: np.ndarray


def join(pairs: Sequence[Pair], tokens: np.ndarray, vocabulary: Tokenizer) -> Joined:
    """[CLS] A [SEP] B [SEP] of each pair, or where there is no B [CLS] A [SEP].

    Args:
        pairs: one at least.
        tokens: what they are places in; the ids have its type.
        vocabulary: says which ids [CLS] and [SEP] are.
    """
    a_start, a_end, b_start, b_end, labels = np.array(pairs).T
    b_starts = a_end - a_start + 2
    num_tokens = b_starts + np.where(labels == NO_PAIR, 0, b_end - b_start + 1)
    ends = num_tokens.cumsum()
    input_ids = np.empty(ends[-1], dtype=tokens.dtype)
    is_text = np.ones(len(input_ids), dtype=bool)
    for place, token in (
        (ends - num_tokens, vocabulary.cls_id),
        (ends - num_tokens + b_starts - 1, vocabulary.sep_id),
        (ends - 1, vocabulary.sep_id),
    ):
        input_ids[place] = token
        is_text[place] = False
    starts = np.stack([a_start, b_start], axis=1).ravel()
    lengths = np.stack([a_end - a_start, b_end - b_start], axis=1).ravel()
    input_ids[is_text] = tokens[ranges(starts, lengths)]
    return Joined(input_ids, num_tokens, b_starts)


def count_sentences(
    wholes: Sequence[Pair], pairs: Sequence[Pair], sentence_ends: np.ndarray
) -> tuple[int, int]:
    """How many sentences some pairs had, and how many of those lost tokens in `truncate_pair`.

    Args:
        wholes: pairs of whole sentences; other ones are not counted.
        pairs: what was left of each.
        sentence_ends: 0, then where each sentence ends, as in `StoredDocuments`.
    """
    # The start and the end of both segments, first of all pairs, then of what was left.
    whole, left = (np.array(some).reshape(-1, 5)[:, :4].reshape(-1, 2) for some in (wholes, pairs))
    first, last = np.searchsorted(sentence_ends, whole).T
    is_whole = (sentence_ends[first] == whole[:, 0]) & (sentence_ends[last] == whole[:, 1])
    intact_first = np.searchsorted(sentence_ends, left[:, 0])
    intact_last = np.searchsorted(sentence_ends, left[:, 1], side="right") - 1
    counts = (last - first)[is_whole]
    num_intact = np.maximum(0, intact_last - intact_first)[is_whole]
    return int(counts.sum()), int((counts - num_intact).sum())


class _Maker:
    """What makes pairs of documents, and how long they are to be."""

    def __init__(
        self, documents: StoredDocuments, *, max_num_tokens: int, short_seq_prob: float
    ) -> None:
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
    have held go back to be used again; too long a pair is left to `truncate_pair`. It departs from
    Google's where that one gives the label away or gets it wrong:

    - a pair is never made of one sentence while the document has two; a last sentence left over
      is paired with the one before it, again and again until it is a true B, and since each try
      is true or random with equal chance, the labels stay even;
    - a random B starts at any sentence of the other documents with equal chance, so that long
      and short ones turn up in it as they do in true ones, but not at a document's first, where
      no true B starts either;
    - a random B is as long as a true one might be, in tokens or in sentences;
    - a random B whose text is the true continuation, as from a copy of the document, is redrawn.

    Args:
        documents: at least two.
        max_num_tokens: of A and B together, without [CLS] and [SEP]; 2 or more.
        short_seq_prob: share of the pairs that aim at fewer tokens.
    """

    def __init__(
        self, documents: StoredDocuments, *, max_num_tokens: int, short_seq_prob: float
    ) -> None:
        super().__init__(documents, max_num_tokens=max_num_tokens, short_seq_prob=short_seq_prob)
        # Of each document, counted in sentences. Looking up single numbers in the memory of an
        # array takes half the time that it takes in the array.
        self._starts = np.concatenate([[0], documents.lengths.cumsum()]).data

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """The pairs of one document in one pass; `rng` decides everything that is random."""
        ends = self._documents.ends(number).tolist()
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
            other = None
            if rng.random() < 0.5:
                room = target - (b_start - a_start)
                other = self._random_b(
                    number,
                    room=room,
                    num_before=middle - start,
                    num_sentences=None if b_end - b_start >= room else end - middle,
                    unlike=(b_start, ends[middle + 1]),
                    rng=rng,
                )
            if other is not None:
                yield Pair(a_start, b_start, *other, RANDOM)
                start = middle
            else:
                yield Pair(a_start, b_start, b_start, b_end, IS_NEXT)
                start = end

    def _pair_of_one_sentence(self, number: int, rng: np.random.Generator) -> Pair:
        """A document of one sentence has no true B."""
        start, end = self._documents.ends(number).tolist()
        room = self._draw_target(rng) - (end - start)
        b = self._random_b(
            number, room=room, num_before=1, num_sentences=None, unlike=(start, start), rng=rng
        )
        assert b is not None, "every sentence is unlike an empty one"
        return Pair(start, end, *b, RANDOM)

    def _random_b(
        self,
        number: int,
        *,
        room: int,
        num_before: int,
        num_sentences: int | None,
        unlike: tuple[int, int],
        rng: np.random.Generator,
    ) -> tuple[int, int] | None:
        """Sentences from another document than `number`, as many as a true B might have.

        A true B that fills the example is what is left of a run of sentences that was parted at
        random, so the more sentences it has, the less likely is this A before it: `num_before`
        and k sentences are parted just so in one of `num_before + k - 1` cases. A draw that is
        accepted as rarely has the lengths of a true B.

        Args:
            number: of A's document.
            room: tokens that are wanted besides A's; with none, one sentence fills.
            num_before: sentences in A.
            num_sentences: of a true B that leaves room; `None` where it fills the example.
            unlike: the sentence that a random B must not begin with.
            rng: decides.

        Returns:
            `None` where nothing turns up that does not begin with the sentence `unlike`.
        """
        tokens, best = self._documents.tokens, None
        unwanted = tokens[slice(*unlike)].tobytes()
        for _ in range(DRAWS):
            other, sentence = self._draw_sentence(number, rng)
            ends = self._documents.ends(other).data
            start, end = _span(ends, sentence, room=room, num_sentences=num_sentences)
            b_start, b_end = ends[start], ends[end]
            if tokens[b_start : ends[start + 1]].tobytes() == unwanted:
                continue
            fills = b_end - b_start >= room
            if num_sentences is None:
                is_fit = fills and rng.random() * (num_before + end - start - 1) < num_before
            else:
                is_fit = not fills and end - start == num_sentences
            if is_fit:
                return b_start, b_end
            if best is None or abs(b_end - b_start - room) < abs(best[1] - best[0] - room):
                best = b_start, b_end
        return best

    def _draw_sentence(self, number: int, rng: np.random.Generator) -> tuple[int, int]:
        """Any sentence of the other documents, with equal chance: its document and its number."""
        starts = self._starts
        start, end = starts[number], starts[number + 1]
        sentence = below(rng, starts[-1] - (end - start))
        if sentence >= start:
            sentence += end - start
        other = bisect_right(starts, sentence) - 1
        return other, sentence - starts[other]


class OrderMaker(_Maker):
    """Cuts documents into pairs for sentence-order prediction (Lan et al., "ALBERT", 2020).

    A and B are consecutive, and swapped half the time; `next_sentence_label` is 1 for those. Runs
    of sentences are as in `PairMaker`. A document of one sentence is parted inside it; one of one
    token gives nothing.

    Args:
        documents: any number of them.
        max_num_tokens: of A and B together, without [CLS] and [SEP]; 2 or more.
        short_seq_prob: share of the pairs that aim at fewer tokens.
    """

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """The pairs of one document in one pass; `rng` decides everything that is random."""
        ends = self._documents.ends(number).tolist()
        num_sentences = len(ends) - 1
        if num_sentences == 1:
            if ends[1] - ends[0] > 1:
                middle = ends[0] + 1 + below(rng, ends[1] - ends[0] - 1)
                yield _in_some_order(ends[0], middle, ends[1], rng)
            return
        start = 0
        while start < num_sentences:
            start = min(start, num_sentences - 2)
            target = self._draw_target(rng)
            end = _end_of_chunk(ends, start, target)
            middle = start + 1 + below(rng, end - start - 1)
            yield _in_some_order(ends[start], ends[middle], ends[end], rng)
            start = end


def _in_some_order(start: int, middle: int, end: int, rng: np.random.Generator) -> Pair:
    if rng.random() < 0.5:
        return Pair(middle, end, start, middle, RANDOM)
    return Pair(start, middle, middle, end, IS_NEXT)


class SegmentMaker(_Maker):
    """Cuts documents into single segments, as long as they may be, no token left out.

    Args:
        documents: any number of them.
        max_num_tokens: of a segment, without [CLS] and [SEP]; 2 or more.
        short_seq_prob: share of the segments that aim at fewer tokens.
    """

    def pairs(self, number: int, rng: np.random.Generator) -> Iterator[Pair]:
        """The segments of one document in one pass, as pairs without a B."""
        start, *_, last = self._documents.ends(number).tolist()
        while start < last:
            end = min(start + self._draw_target(rng), last)
            yield Pair(start, end, end, end, NO_PAIR)
            start = end


def _end_of_chunk(ends: Sequence[int], start: int, target: int) -> int:
    """The end of a run of sentences with `target` tokens or more, two sentences at least."""
    end = bisect_left(ends, ends[start] + target, start)
    return min(max(end, start + 2), len(ends) - 1)


def _span(
    ends: Sequence[int], start: int, *, room: int, num_sentences: int | None
) -> tuple[int, int]:
    """A run of sentences from near `start`, not so near the document's end that it is too short.

    Args:
        ends: of the document they are from.
        start: the sentence to begin with where it can; not the document's first.
        room: tokens to fill where `num_sentences` does not decide.
        num_sentences: how many.
    """
    last = len(ends) - 1
    latest = (
        bisect_right(ends, ends[last] - room) - 1 if num_sentences is None else last - num_sentences
    )
    start = max(min(1, last - 1), min(start, latest))
    end = bisect_left(ends, ends[start] + room) if num_sentences is None else start + num_sentences
    return start, min(max(end, start + 1), last)


def truncate_pair(pair: Pair, max_num_tokens: int, rng: np.random.Generator) -> Pair:
    """Cuts a pair to `max_num_tokens` as google-research/bert does.

    Tokens leave one by one, always from the longer segment (B where both are equal), from its
    front or its back with equal chance.
    """
    a_start, a_end, b_start, b_end, label = pair
    a_length, b_length = a_end - a_start, b_end - b_start
    excess = a_length + b_length - max_num_tokens
    if excess <= 0:
        return pair
    # The longer one loses tokens alone until both are equal, then they take turns, B first.
    alone = min(excess, abs(a_length - b_length))
    from_b, from_a = (excess - alone + 1) // 2, (excess - alone) // 2
    if a_length > b_length:
        from_a += alone
    else:
        from_b += alone
    a_front, b_front = num_heads(from_a, rng), num_heads(from_b, rng)
    return Pair(
        *(a_start + a_front, a_end - (from_a - a_front)),
        *(b_start + b_front, b_end - (from_b - b_front)),
        label,
    )


def num_heads(count: int, rng: np.random.Generator) -> int:
    """How many of `count` tosses of a fair coin are heads; each bit of a number is a toss."""
    heads = 0
    for done in range(0, count, BITS):
        bits = int(rng.random() * (1 << BITS))
        heads += (bits >> max(0, BITS - (count - done))).bit_count()
    return heads
