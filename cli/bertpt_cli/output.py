"""Results on standard output: text for people, or JSON."""

import contextlib
import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import numpy as np


def print_json(value: Mapping[str, Any]) -> None:
    """Prints one JSON object on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_vectors(described: Mapping[str, Any], vectors: "np.ndarray") -> None:
    """Prints one JSON object: what is described, and its embedding, or one for each token."""
    name = "embedding" if vectors.ndim == 1 else "embeddings"
    start = json.dumps(described, ensure_ascii=False).removesuffix("}")
    typer.echo(f'{start}, "{name}": {_numbers(vectors)}}}')


def _numbers(array: "np.ndarray") -> str:
    if array.ndim > 1:
        return "[" + ", ".join(map(_numbers, array)) + "]"
    # Nine digits give a float32 back; json would write the seventeen of a float64.
    return "[" + ", ".join([f"{number:.9g}" for number in array.tolist()]) + "]"


def print_error(message: str) -> None:
    """Prints an error as one line on standard error."""
    # A closed standard error must not turn a clear failure into another one.
    with contextlib.suppress(OSError):
        print(f"error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201


def print_table(rows: Iterable[Iterable[object]]) -> None:
    """Prints rows in aligned columns: the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        columns = [first.ljust(widths[0])]
        columns += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        typer.echo("  ".join(columns).rstrip())


def percent(share: float | None) -> str:
    """A share as a percentage, or a dash where there is none."""
    return "-" if share is None else f"{100 * share:.1f}%"


def nats(loss: float | None) -> str:
    """A loss with three decimals, or a dash where there is none."""
    return "-" if loss is None else f"{loss:.3f}"


def print_data_report(manifest: Mapping[str, Any]) -> None:
    """Prints a manifest's figures, a column for each split."""
    splits = ("train", "valid")

    def row(name: str, key: str) -> tuple[str, ...]:
        return (name, *(f"{manifest[key][split]:,}" for split in splits))

    def share(name: str, parts: Mapping[str, int], wholes: Mapping[str, int]) -> tuple[str, ...]:
        shares = (parts[s] / wholes[s] if wholes[s] else None for s in splits)
        return (name, *map(percent, shares))

    slots = {s: manifest["examples"][s] * manifest["settings"]["seq_len"] for s in splits}
    random = {s: manifest["label_counts"][s]["random"] for s in splits}
    print_table(
        [
            ("", *splits),
            row("documents", "documents"),
            row("sentences", "sentences"),
            row("tokens", "tokens"),
            row("examples", "examples"),
            share("  B is random", random, manifest["examples"]),
            share("  tokens to predict", manifest["masked_tokens"], manifest["example_tokens"]),
            share("  slots filled", manifest["example_tokens"], slots),
        ]
    )
    typer.echo(
        f"vocabulary of {manifest['vocab_size']:,}, sequences of "
        f"{manifest['settings']['seq_len']}, seed {manifest['settings']['seed']}"
    )
