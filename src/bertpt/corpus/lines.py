"""Read lines of any length in bounded memory."""

import io
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_LINE_BYTES = 1 << 22
# Where to cut a long line, best first: after a sentence, at a space, before a character that may
# be incomplete.
CUTS = (
    re.compile(rb".*(?:[.!?][\"')\]]* |\xe3\x80\x82)", re.DOTALL),
    re.compile(rb".* ", re.DOTALL),
    re.compile(rb".*?(?=[\xc0-\xff]?[\x80-\xbf]{0,3}\Z)", re.DOTALL),
)
CUT_WITHIN = 1 << 16  # bytes before the end of a piece


class Line(NamedTuple):
    """A line with its line feed, or a piece of a long line.

    Attributes:
        number: counted from 1.
        is_cut: whether the line continues in the next piece.
    """

    number: int
    raw: bytes
    is_cut: bool


def read_lines(stream: io.BufferedReader, *, max_bytes: int) -> Iterator[Line]:
    """Read lines; those of more than `max_bytes` are cut into pieces."""
    number, rest = 1, b""
    while raw := rest + stream.readline(max_bytes - len(rest)):
        is_cut = len(raw) >= max_bytes and not raw.endswith(b"\n") and bool(stream.peek(1))
        end = _cut(raw) if is_cut else len(raw)
        yield Line(number, raw[:end], is_cut)
        rest = raw[end:]
        number += not is_cut


def _cut(raw: bytes) -> int:
    start = max(1, len(raw) - CUT_WITHIN)
    ends = (match.end() for cut in CUTS if (match := cut.match(raw, start)))
    return next((end for end in ends if end > start), len(raw))
