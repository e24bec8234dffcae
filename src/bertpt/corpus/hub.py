"""Data sets of the Hub, and folders that are laid out like one: `hf:NAME[/CONFIG][:SPLIT]`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertpt.errors import InputError

PREFIX = "hf:"
NAME = re.compile(r"hf:(?P<place>.+?)(:(?P<split>[\w.-]+))?")
PLACE = re.compile(r"(?P<path>[\w.-]+(/[\w.-]+)?)(/(?P<config>[\w.-]+))?")


def is_hub(name: str) -> bool:
    """Whether an INPUT argument names a data set rather than a file."""
    return name.startswith(PREFIX)


@dataclass(frozen=True)
class HubName:
    """What `hf:` names: a data set of the Hub or a folder, its configuration and its split."""

    path: str
    config: str | None
    split: str

    @classmethod
    def parse(cls, name: str) -> "HubName":
        """Takes a name apart; two parts are USER/NAME, so a configuration is the third.

        Raises:
            InputError: it has another form, or names a folder that does not exist.
        """
        form = NAME.fullmatch(name)
        if not form:
            raise InputError(f"{name} is not hf:NAME[/CONFIG][:SPLIT]")
        place, split = form["place"], form["split"] or "train"
        folder = Path(place).expanduser()
        if folder.is_dir():
            return cls(str(folder.resolve()), None, split)
        if place.startswith((".", "/", "~")):
            # Only a README.md, a data set's card, can declare configurations.
            if (folder.parent / "README.md").is_file():
                return cls(str(folder.parent.resolve()), folder.name, split)
            raise InputError(f"{name}: no such folder: {place}")
        parts = PLACE.fullmatch(place)
        if not parts:
            raise InputError(f"{name} is not hf:NAME[/CONFIG][:SPLIT], nor is {place} a folder")
        return cls(parts["path"], parts["config"], split)


def hub_rows(name: str, field: str) -> Iterator[Any]:
    """What each row of a data set holds in a field, in the order of the rows; downloads as it goes.

    Raises:
        InputError: there is no such data set, configuration, split or field, or no network.
    """
    rows = _load(name)
    fields = rows.features and list(rows.features)
    if fields:
        require_field(name, field, fields)
        rows = rows.select_columns([field])  # or every picture of a row would be decoded
    with _told(name):
        for number, row in enumerate(rows, start=1):
            require_field(f"{name}: row {number}", field, list(row))
            yield row[field]


def _load(name: str) -> Any:
    import datasets  # noqa: PLC0415  takes a second, and few inputs need it

    wanted = HubName.parse(name)
    showed = datasets.are_progress_bars_disabled() is False
    datasets.disable_progress_bars()
    try:
        with _told(name):
            splits = datasets.load_dataset(wanted.path, wanted.config, streaming=True)
    finally:
        if showed:
            datasets.enable_progress_bars()
    if wanted.split not in splits:
        there = ", ".join(map(repr, splits))
        raise InputError(f"{name} has no split {wanted.split!r}, only {there}")
    return splits[wanted.split]


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Makes one line of the many kinds of error that datasets and what it builds on raise."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name} cannot be read: {problem}") from error


def require_field(place: str, field: str, fields: list[str]) -> None:
    """Refuses rows that lack a field, and names those that they have."""
    if field not in fields:
        names = ", ".join(map(repr, fields[:20])) + (", ..." if len(fields) > 20 else "")
        there = f"only {names}; give one by `text_field`" if fields else "nor any other"
        raise InputError(f"{place} has no field {field!r}, {there}")
