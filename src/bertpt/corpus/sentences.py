"""Split lines into sentences in linear time and memory."""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

import sentencex

# `seq_len` is at most 65,536, so no example uses more characters of one sentence.
MAX_CHARS = 1 << 16
STRETCH = 1 << 13  # characters; 2 * MAX_CHARS is a multiple of it
# All white space outside ASCII, listed because a list is several times as fast as \s.
WIDE_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


class SentenceSplitter:
    """Splits lines into sentences.

    Args:
        language: ISO 639 code; with `None`, each line is a sentence.

    Attributes:
        num_cuts: cuts made in sentences longer than `MAX_CHARS`.
    """

    def __init__(self, language: str | None) -> None:
        self._language = language
        self.num_cuts = 0

    def split(self, line: str) -> Iterator[str]:
        """Yield the sentences of a line, stripped and not empty."""
        parts = [line] if self._language is None else self._stretches(line, self._language)
        for part in parts:
            for piece in (part,) if len(part) <= MAX_CHARS else self._cut(part):
                if stripped := piece.strip():
                    yield stripped

    def _stretches(self, line: str, language: str) -> Iterator[str]:
        """Yield the sentences of a line, passing sentencex one stretch at a time.

        sentencex takes quadratic time on text without spaces (20 s for a million Chinese
        characters). The last sentence of a stretch may be incomplete, so the next stretch starts
        with it.
        """
        start, size = 0, STRETCH
        while len(line) - start > size:
            *whole, last = _segments(language, line[start : start + size])
            if len(last) > size // 2 and size < 2 * MAX_CHARS:
                size *= 2  # look for the end of the sentence
                continue
            yield from whole
            start += sum(map(len, whole))
            if len(last) > MAX_CHARS:  # otherwise it would be searched again and again
                piece = next(iter(self._cut(last)))
                yield piece
                start += len(piece)
            size = STRETCH
        yield from _segments(language, line[start:])

    def _cut(self, sentence: str) -> Iterable[str]:
        """Cut a sentence into pieces of at most `MAX_CHARS`, at spaces if possible."""
        start = 0
        while len(sentence) - start > MAX_CHARS:
            end = sentence.rfind(" ", start, start + MAX_CHARS) + 1
            end = end if end > start else start + MAX_CHARS
            self.num_cuts += 1
            yield sentence[start:end]
            start = end
        yield sentence[start:]


def _segments(language: str, text: str) -> list[str]:
    """Return the sentences of a text; joined, they equal the text."""
    # sentencex 1.0.32 panics at a capital, a multi-byte space and a full stop ("Plan B\u2009.").
    narrow = WIDE_SPACE.sub(" ", text)
    found: list[str] = sentencex.segment(language, narrow)
    if narrow != text:
        ends = accumulate(map(len, found))
        found = [text[end - len(part) : end] for part, end in zip(found, ends, strict=True)]
    return found
