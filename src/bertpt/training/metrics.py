"""metrics.jsonl of a RUN: a line for every logged step and every evaluation."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertpt import files
from bertpt.errors import OutputError


class Metrics:
    """The lines at `path`; iterating gives them all, but for one that a crash cut short.

    Attributes:
        newest: the newest evaluation, if there is one.
        best: the evaluation with the lowest loss.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.newest: Mapping[str, Any] | None = None
        self.best: Mapping[str, Any] | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._path.is_file():
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue
                if isinstance(entry, dict) and entry.keys() >= {"step", "split"}:
                    yield entry

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds a line; JSON has only finite numbers, so others are null.

        Raises:
            OutputError: it cannot be written, and then it is not there at all.
        """
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in entry.items()
        }
        self._write_line(finite)
        self._take_note(finite)

    def forget_after(self, step: int) -> None:
        """Drops the lines of steps that a resumed run will take again."""
        kept = [entry for entry in self if entry["step"] <= step]
        self._rewrite(kept)
        for entry in kept:
            self._take_note(entry)

    def _take_note(self, entry: Mapping[str, Any]) -> None:
        if entry["split"] != "valid":
            return
        self.newest = entry
        loss = entry["loss"]
        if loss is not None and (self.best is None or loss < self.best["loss"]):
            self.best = entry

    def _write_line(self, entry: Mapping[str, Any]) -> None:
        try:
            with self._path.open("ab") as file:
                before = file.tell()
                try:
                    file.write(f"{json.dumps(entry)}\n".encode())
                    file.flush()
                except OSError:
                    os.truncate(self._path, before)
                    raise
        except OSError as error:
            problem = files.problem(error)
            raise OutputError(f"cannot write {self._path}: {problem}") from error

    def _rewrite(self, entries: Iterable[Mapping[str, Any]]) -> None:
        files.write_text(self._path, "".join(json.dumps(entry) + "\n" for entry in entries))


class ReadOnlyMetrics(Metrics):
    """The same for a process that notes them, and leaves it to another to write them."""

    def _write_line(self, entry: Mapping[str, Any]) -> None: ...

    def _rewrite(self, entries: Iterable[Mapping[str, Any]]) -> None: ...
