"""TEXT arguments: the texts themselves, or the lines of standard input."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import typer

from bertpt.errors import InputError
from bertpt.text import printable

Texts = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT", help="Texts, or - for standard input, one a line.", show_default=False
    ),
]


class Text(NamedTuple):
    """A text and where it stands: "line 3: " of standard input, or nothing."""

    text: str
    where: str


def read_texts(arguments: Iterable[str]) -> Iterator[Text]:
    """The texts that the arguments stand for, each read when it is asked for.

    A byte that is no UTF-8 becomes U+FFFD, so that there are as many texts as lines.
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
