"""Lines to sentences, in time and memory that grow with their length and no faster."""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

import sentencex

# No sequence has more tokens than this (seq_len), so no example needs more of one sentence.
MAX_CHARS = 1 << 16
STRETCH = 1 << 13  # characters; 2 * MAX_CHARS is a multiple of it
# All white space outside ASCII, told one by one, since that is searched several times as fast.
WIDE_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


class SentenceSplitter:
    """Splits lines into sentences.

    Args:
        language: an ISO 639 code; `None` takes each line as one sentence.

    Attributes:
        num_cuts: how often a sentence longer than `MAX_CHARS` was cut.
    """

    def __init__(self, language: str | None) -> None:
        self._language = language
        self.num_cuts = 0

    def split(self, line: str) -> Iterator[str]:
        """The sentences of a line, stripped, none of them empty."""
        parts = [line] if self._language is None else self._stretches(line, self._language)
        for part in parts:
            for piece in (part,) if len(part) <= MAX_CHARS else self._cut(part):
                if stripped := piece.strip():
                    yield stripped

    def _stretches(self, line: str, language: str) -> Iterator[str]:
        """The sentences of a line, found a stretch at a time.

        For sentencex takes the square of the length of a text without spaces (20 s for a million
        Chinese characters). What a stretch ends in may go on, so it begins the next stretch.
        """
        start, size = 0, STRETCH
        while len(line) - start > size:
            *whole, last = _segments(language, line[start : start + size])
            if len(last) > size // 2 and size < 2 * MAX_CHARS:
                size *= 2  # the sentence may end further on
                continue
            yield from whole
            start += sum(map(len, whole))
            if len(last) > MAX_CHARS:  # or it would be looked at again and again
                piece = next(iter(self._cut(last)))
                yield piece
                start += len(piece)
            size = STRETCH
        yield from _segments(language, line[start:])

    def _cut(self, sentence: str) -> Iterable[str]:
        """Pieces of at most `MAX_CHARS` that make up the sentence, cut at spaces where it can."""
        start = 0
        while len(sentence) - start > MAX_CHARS:
            end = sentence.rfind(" ", start, start + MAX_CHARS) + 1
            end = end if end > start else start + MAX_CHARS
            self.num_cuts += 1
            yield sentence[start:end]
            start = end
        yield sentence[start:]


def _segments(language: str, text: str) -> list[str]:
    """The sentences of a text, which put together are the text."""
    # sentencex 1.0.32 panics at a capital, a space of several bytes and a full stop ("Plan B .").
    narrow = WIDE_SPACE.sub(" ", text)
    found: list[str] = sentencex.segment(language, narrow)
    if narrow != text:
        ends = accumulate(map(len, found))
        found = [text[end - len(part) : end] for part, end in zip(found, ends, strict=True)]
    return found
