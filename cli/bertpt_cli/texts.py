"""TEXT arguments: texts, or - for the lines of standard input."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import typer

from bertpt.errors import InputError
from bertpt.text import printable

Texts = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT", help="Texts, or - for standard input, one per line.", show_default=False
    ),
]


class Text(NamedTuple):
    """A text, and its line in standard input, such as "line 3: ", or ""."""

    text: str
    where: str


def read_texts(arguments: Iterable[str]) -> Iterator[Text]:
    """Yield the texts of the arguments; standard input is read line by line.

    Invalid UTF-8 becomes U+FFFD, so every line gives one text.
    """
    for argument in arguments:
        if argument != "-":
            yield Text(printable(argument), "")
            continue
        if sys.stdin is None:
            raise InputError("standard input is closed")
        for number, line in enumerate(sys.stdin.buffer, start=1):
            encoding = "utf-8-sig" if number == 1 else "utf-8"
            yield Text(line.decode(encoding, "replace").rstrip("\r\n"), f"line {number}: ")
