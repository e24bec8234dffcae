"""Recognise hard-wrapped text, and join the lines of its paragraphs."""

import re
from collections import deque
from collections.abc import Generator, Iterable
from functools import cached_property
from itertools import pairwise

from bertpt.corpus.readers import Document

MAX_SAMPLED_LINES = 20_000
MIN_LINES, MIN_WIDTH, MAX_WIDTH = 20, 40, 200
LOOK_AHEAD_BYTES = 1 << 21  # read before the first line is joined, for the width and the words
MAX_PARAGRAPH_LINES = 1 << 14
MAX_WORDS = 1 << 20
QUOTES = "\"'\u2018\u2019\u201c\u201d\u00ab\u00bb"
SENTENCE_ENDS = tuple(f".!?:;)\u2026\u3002\uff01\uff1f{QUOTES}")
SPEECH_ENDS = re.compile(f"[.!?\u2026\u2014][{QUOTES}]$")
WORD = re.compile(r"[^\W\d_]+")
# A hyphen or dash that follows a word directly, with that word if it may be divided.
DIVIDED = re.compile(r"\b(?P<word>[^\W\d_]+)[-\u2010]$|\w(--|\u2014)$")
SOFT_HYPHEN = "\u00ad"
CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


class LineWidths:
    """Consecutive lines of an input, and whether they look wrapped at a width.

    `add` lines first; then the properties describe them.
    """

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._num_spaced = 0
        self._pairs: list[tuple[int, int, bool]] = []

    def add(self, lines: list[str]) -> None:
        """Add lines that follow each other, until enough are known."""
        if len(self._lengths) >= MAX_SAMPLED_LINES:
            return
        self._lengths += [len(line.rstrip()) for line in lines if line.strip()]
        self._num_spaced += sum(line.endswith(" ") for line in lines)
        for line, after in pairwise(lines):
            if not line.strip() or not after.strip():
                continue  # a row may contain blank lines
            ends_sentence = line.rstrip().endswith(SENTENCE_ENDS)
            self._pairs.append((len(line.rstrip()), len(_first_word(after)), ends_sentence))

    @cached_property
    def width(self) -> int:
        """The width that nearly all lines keep; a few, such as headings, may exceed it."""
        in_order = sorted(self._lengths)
        return in_order[(len(in_order) - 1) * 99 // 100] if in_order else 0

    @cached_property
    def have_spaces(self) -> bool:
        """Whether lines end with a space where they were wrapped.

        `fold -s` and format=flowed (RFC 3676) leave it there.
        """
        return 3 * self._num_spaced >= len(self._lengths)

    @property
    def are_wrapped(self) -> bool:
        """Whether most lines end where the next word did not fit, and not with a sentence."""
        width, num_pairs = self.width, len(self._pairs)
        if num_pairs < MIN_LINES or not MIN_WIDTH <= width <= MAX_WIDTH:
            return False
        num_full = sum(length + 1 + word > width for length, word, _ in self._pairs)
        num_open = sum(not ends_sentence for *_, ends_sentence in self._pairs)
        return 2 * num_full >= num_pairs and 2 * num_open >= num_pairs


def unwrapped(documents: Iterable[Document]) -> Generator[Document, None, None]:
    """Join the lines of each paragraph in the documents of one input.

    A line continues the one before it if its first word would not have fitted there, or if it
    continues a sentence in lower case. The width is that of the first `LOOK_AHEAD_BYTES`. A word
    that was divided by a hyphen is joined if the joined word occurs elsewhere in the text, as far
    as it has been read (as many bytes ahead).
    """
    ahead: deque[Document] = deque()
    num_bytes = 0
    widths = LineWidths()
    words: set[str] = set()
    is_width_known = False
    for document in documents:
        ahead.append(document)
        num_bytes += document.num_text_bytes
        if not is_width_known:
            widths.add(document.lines)
        if len(words) < MAX_WORDS:
            words.update(word for line in document.lines for word in WORD.findall(line.lower()))
        while num_bytes - ahead[0].num_text_bytes >= LOOK_AHEAD_BYTES:
            num_bytes -= ahead[0].num_text_bytes
            is_width_known = True
            yield _next(ahead, widths, words)
    while ahead:
        yield _next(ahead, widths, words)


def _next(ahead: deque[Document], widths: LineWidths, words: set[str]) -> Document:
    document = ahead.popleft()
    lines, width = document.lines, None if widths.have_spaces else widths.width
    if document.continues and ahead:
        # Its last paragraph may continue in the next piece.
        start = len(lines) - 1
        while start > 0 and _continues(lines[start - 1], lines[start], width):
            start -= 1
        if len(lines) - start <= MAX_PARAGRAPH_LINES:
            ahead[0].lines[:0] = lines[start:]
            del lines[start:]
    document.lines = join_lines(lines, width=width, words=words)
    return document


def join_lines(lines: list[str], *, width: int | None, words: set[str]) -> list[str]:
    """Join wrapped lines into paragraphs.

    Args:
        lines: lines that follow each other; blank ones end a paragraph.
        width: where they were wrapped; `None` if a space at the end of each line marks that.
        words: words of the text in lower case, to recognise divided words.
    """
    paragraphs: list[list[str]] = []
    before = ""
    for line in lines:
        if paragraphs and _continues(before, line, width):
            _append(paragraphs[-1], line.strip(), words, has_space=before.endswith(" "))
        else:
            paragraphs.append([line.strip()])
        before = line
    return ["".join(paragraph) for paragraph in paragraphs]


def _continues(before: str, line: str, width: int | None) -> bool:
    if not before.strip() or not line.strip():
        return False
    if width is None:
        return before.endswith(" ")
    if _indentation(line) > _indentation(before):
        return False  # a new paragraph, or verse
    end, start = before.rstrip(), line.lstrip()
    if SPEECH_ENDS.search(end) and start[0] in QUOTES:
        return False  # another speaker
    if len(end) + 1 + len(_first_word(line)) > width:
        return True
    return not end.endswith(SENTENCE_ENDS) and start[0].islower()


def _append(paragraph: list[str], line: str, words: set[str], *, has_space: bool) -> None:
    end = paragraph[-1]
    divided = None if has_space else DIVIDED.search(end)
    if end.endswith(SOFT_HYPHEN):
        paragraph[-1] = end[:-1]
    elif divided:
        rest = WORD.match(line)
        if divided["word"] and rest and (divided["word"] + rest[0]).lower() in words:
            paragraph[-1] = end[:-1]
    elif not (CJK.match(end[-1:]) and CJK.match(line)):
        line = f" {line}"
    paragraph.append(line)


def _first_word(line: str) -> str:
    start = line.lstrip()
    return start[0] if CJK.match(start) else start.split(maxsplit=1)[0]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
