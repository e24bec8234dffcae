"""Documents -> sentence pairs with next-sentence labels. Pure: the generator is passed in."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bertpt.data.documents import Document, Documents
from bertpt.rng import below

IS_NEXT = 0
RANDOM = 1
DRAWS_OF_ANOTHER_DOCUMENT = 10


class Pair(NamedTuple):
    """Two segments of token ids, and whether B follows A (`IS_NEXT`) or not (`RANDOM`)."""

    a: np.ndarray
    b: np.ndarray
    next_sentence_label: int


def document_pairs(
    documents: Documents,
    index: int,
    *,
    max_num_tokens: int,
    short_seq_prob: float,
    rng: np.random.Generator,
) -> Iterator[Pair]:
    """Cuts one document into sentence pairs, B being drawn from another document half the time.

    The frame is that of google-research/bert: consecutive sentences are taken until they fill an
    example and are parted into A and B at random; where B is replaced, the sentences it would
    have held go back to be used again; too long a pair is cut by `truncate_pair`. It departs from
    Google's where that one gives the label away or gets it wrong:

    - a pair is never made of one sentence while the document has two, so that the labels stay
      even (a last sentence left over is paired with the one before it);
    - a random B is about as long as the B that it replaces, and no document's first sentence,
      since a true B is not either;
    - a random B whose text is the true continuation, as from a copy of the document, is redrawn.

    Args:
        documents: at least two, none empty, none with an empty sentence.
        index: the document to cut.
        max_num_tokens: of A and B together, without [CLS] and [SEP]; 2 or more.
        short_seq_prob: share of the pairs that aim at fewer tokens.
        rng: decides everything that is random here.
    """
    document = documents[index]
    start = 0
    while start < len(document):
        if start == len(document) - 1:
            start = max(0, start - 1)
        target = max_num_tokens
        if rng.random() < short_seq_prob:
            target = 2 + below(rng, max_num_tokens - 1)
        end = _end_of_chunk(document, start, target)
        middle = start + 1 + below(rng, end - start - 1) if end - start > 1 else end
        a, rest = document.tokens(start, middle), document.tokens(middle, end)
        b, label = None, RANDOM
        if middle == end or rng.random() < 0.5:
            following = document.tokens(middle, middle + 1) if middle < end else rest
            if len(rest) == 0:
                num_tokens, fill = max(1, target - len(a)), True
            elif len(a) + len(rest) >= max_num_tokens:
                num_tokens, fill = max(1, max_num_tokens - len(a)), True
            else:
                num_tokens, fill = len(rest), False
            b = _from_another_document(
                documents, index, following, num_tokens=num_tokens, fill=fill, rng=rng
            )
        if b is None:
            if middle == end:
                return
            b, label, middle = rest, IS_NEXT, end
        yield Pair(*truncate_pair(a, b, max_num_tokens, rng), label)
        start = middle


def _end_of_chunk(document: Document, start: int, target: int) -> int:
    """The end of a run of sentences with `target` tokens or more, two sentences at least."""
    end = int(np.searchsorted(document.ends, document.ends[start] + target))
    return min(max(end, start + 2), len(document))


def _from_another_document(
    documents: Documents,
    index: int,
    following: np.ndarray,
    *,
    num_tokens: int,
    fill: bool,
    rng: np.random.Generator,
) -> np.ndarray | None:
    """A random B that does not begin as the true one does; `None` where no other turns up."""
    for _ in range(DRAWS_OF_ANOTHER_DOCUMENT):
        number = below(rng, len(documents) - 1)
        document = documents[number + (number >= index)]
        start, end = _span(document, num_tokens, fill=fill, rng=rng)
        if not np.array_equal(document.tokens(start, start + 1), following):
            return document.tokens(start, end)
    return None


def _span(
    document: Document, num_tokens: int, *, fill: bool, rng: np.random.Generator
) -> tuple[int, int]:
    """Whole sentences from a random place with about `num_tokens`, or as many at least (`fill`)."""
    ends, last = document.ends, len(document)
    first = min(1, last - 1)
    # Not so near the document's end that the sentences there are too few.
    latest = int(np.searchsorted(ends, ends[last] - num_tokens, side="right")) - 1
    start = max(first, min(first + below(rng, last - first), latest))
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
