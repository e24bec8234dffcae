"""Read `hf:NAME[/CONFIG][:SPLIT]`: data sets of the Hub, or local folders laid out like one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertpt.corpus.rows import lookup, require_field
from bertpt.errors import InputError

PREFIX = "hf:"
NAME = re.compile(r"hf:(?P<place>.+?)(:(?P<split>[\w.-]+))?")
PLACE = re.compile(r"(?P<path>[\w.-]+(/[\w.-]+)?)(/(?P<config>[\w.-]+))?")


def is_hub(name: str) -> bool:
    """Whether an INPUT argument is an `hf:` name."""
    return name.startswith(PREFIX)


@dataclass(frozen=True)
class HubName:
    """A parsed `hf:` name. `path` is a data set on the Hub or a local folder."""

    path: str
    config: str | None
    split: str

    @classmethod
    def parse(cls, name: str) -> "HubName":
        """Parse a name. Two parts are USER/NAME, so a configuration is always the third.

        Raises:
            InputError: the name has another form, or its folder does not exist.
        """
        form = NAME.fullmatch(name)
        if not form:
            raise InputError(f"{name} is not hf:NAME[/CONFIG][:SPLIT]")
        place, split = form["place"], form["split"] or "train"
        folder = Path(place).expanduser()
        if folder.is_dir():
            return cls(str(folder.resolve()), None, split)
        if place.startswith((".", "/", "~")):
            # The last part is a configuration if a data set card can declare it.
            if (folder.parent / "README.md").is_file():
                return cls(str(folder.parent.resolve()), folder.name, split)
            raise InputError(f"{name}: no such folder: {place}")
        parts = PLACE.fullmatch(place)
        if not parts:
            raise InputError(f"{name} is not hf:NAME[/CONFIG][:SPLIT], and {place} is not a folder")
        return cls(parts["path"], parts["config"], split)


def hub_rows(name: str, field: str) -> Iterator[Any]:
    """Stream the field of each row, in order.

    Raises:
        InputError: the data set, configuration, split or field does not exist, or the network
            fails.
    """
    rows = _load(name)
    fields = rows.features and list(rows.features)
    if fields:
        column = require_field(name, field, fields)
        rows = rows.select_columns([column])  # do not decode other columns, such as images
    with _one_line_errors(name):
        for number, row in enumerate(rows, start=1):
            yield lookup(row, field, position=f"{name}: row {number}")


def _load(name: str) -> Any:
    import datasets  # noqa: PLC0415  takes a second, and few inputs need it

    wanted = HubName.parse(name)
    showed_bars = datasets.are_progress_bars_disabled() is False
    datasets.disable_progress_bars()
    try:
        with _one_line_errors(name):
            splits = datasets.load_dataset(wanted.path, wanted.config, streaming=True)
    finally:
        if showed_bars:
            datasets.enable_progress_bars()
    if wanted.split not in splits:
        available = ", ".join(map(repr, splits))
        raise InputError(f"{name} has no split {wanted.split!r}, only {available}")
    return splits[wanted.split]


@contextmanager
def _one_line_errors(name: str) -> Iterator[None]:
    """Turn any error of datasets or its dependencies into a one-line InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name} cannot be read: {problem}") from error
