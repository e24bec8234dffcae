"""Results on standard output, as text or JSON; errors and progress on standard error."""

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from bertpt.text import CONTROLS, format_size, without_controls

if TYPE_CHECKING:
    import numpy as np

    from bertpt.progress import Progress

BAR = 40  # characters of the histogram's longest bar


def echo(text: str = "") -> None:
    """Print text on standard output, its control characters escaped."""
    typer.echo(without_controls(text))


def print_json(value: Mapping[str, Any]) -> None:
    """Print a JSON object on one line."""
    typer.echo(_dumps(value))


def print_vectors(described: Mapping[str, Any], vectors: "np.ndarray") -> None:
    """Print a JSON object: a description, and one embedding or one for each token."""
    name = "embedding" if vectors.ndim == 1 else "embeddings"
    start = _dumps(described).removesuffix("}")
    typer.echo(f'{start}, "{name}": {_numbers(vectors)}}}')


def _dumps(value: Mapping[str, Any]) -> str:
    # json escapes C0 but neither DEL nor C1, which terminals obey, too.
    text = json.dumps(value, ensure_ascii=False)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _numbers(array: "np.ndarray") -> str:
    if array.ndim > 1:
        return "[" + ", ".join(map(_numbers, array)) + "]"
    # Nine digits are exact for a float32; json would write the seventeen of a float64.
    return "[" + ", ".join([f"{number:.9g}" for number in array.tolist()]) + "]"


def as_flags(message: str) -> str:
    """Turn the library's parameter names into options: `batch_size` becomes --batch-size."""
    return re.sub(r"`([a-z][a-z0-9_]*)`", lambda name: "--" + name[1].replace("_", "-"), message)


def show_progress(*, quiet: bool) -> "Progress":
    """Return a `Progress` on standard error whose messages name options."""
    from bertpt.progress import Progress

    return Progress(quiet=quiet, rewrite=as_flags)


def print_error(message: str) -> None:
    """Print an error as one line on standard error, with parameters as options."""
    # A closed standard error must not raise another error.
    with contextlib.suppress(OSError):
        line = without_controls(" ".join(as_flags(message).split()))
        print(f"error: {line}", file=sys.stderr)  # noqa: T201


def print_table(rows: Iterable[Iterable[object]]) -> None:
    """Print rows in aligned columns: the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        columns = [first.ljust(widths[0])]
        columns += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        echo("  ".join(columns).rstrip())


def percent(share: float | None) -> str:
    """Format a fraction as a percentage; `None` as a dash."""
    return "-" if share is None else f"{100 * share:.1f}%"


def nats(loss: float | None) -> str:
    """Format a loss with three decimals; `None` as a dash."""
    return "-" if loss is None else f"{loss:.3f}"


def decimals(number: float | None, places: int) -> str:
    """Format a number with some decimals; `None` as a dash."""
    return "-" if number is None else f"{number:.{places}f}"


def print_data_report(manifest: Mapping[str, Any]) -> None:
    """Print the figures of a manifest, one column per split, and a histogram of lengths."""
    if manifest.get("dry_run"):
        echo(f"dry run on {_sample(manifest)}; nothing was written")
    print_table(_rows_by_split(manifest))
    settings = manifest["settings"]
    characters = decimals(manifest.get("characters_per_token"), 2)
    unknown, *duplicates = (
        percent(manifest.get(f"{key}_share"))
        for key in ("unknown", "duplicate_sentences", "duplicate_documents")
    )
    echo(f"{characters} characters per token, {unknown} of the tokens unknown")
    echo(
        "duplicates: {} of the sentences, {} of the documents".format(*duplicates)
        + _removed(manifest)
    )
    print_histogram(manifest.get("length_histogram"))
    echo(
        f"vocabulary of {manifest['vocab_size']:,}, sequences of {settings['seq_len']}, "
        f"seed {settings['seed']}"
    )
    if manifest.get("dry_run"):
        echo(_whole(manifest))


def _removed(manifest: Mapping[str, Any]) -> str:
    if manifest["settings"].get("dedup", "none") == "none":
        return ""
    sentences, documents = (manifest[f"removed_{what}"] for what in ("sentences", "documents"))
    return f"; removed {sentences:,} sentences and {documents:,} documents"


def _sample(manifest: Mapping[str, Any]) -> str:
    sampled, total = (manifest[f"{which}_bytes"] for which in ("sampled", "total"))
    if sampled == total:
        return f"the whole input, {format_size(total)}"
    of_all = "" if total is None else f" of {format_size(total)}"
    return f"the first {format_size(sampled)}{of_all}"


def _whole(manifest: Mapping[str, Any]) -> str:
    """Format what a dry run estimates for the full input."""
    is_learned = isinstance(manifest["tokenizer"], dict)
    vocabulary = "; the vocabulary would be learned from all of it" if is_learned else ""
    estimated = manifest["estimated"]
    if estimated is None:
        return f"cannot estimate the total: the input's size is unknown{vocabulary}"
    numbers = {name: f"{count:,}" for name, count in estimated.items()}
    disk, peak = (format_size(estimated[name]) for name in ("disk_bytes", "disk_peak_bytes"))
    return (
        f"the full input would give about {numbers['documents']} documents, {numbers['tokens']} "
        f"tokens and {numbers['examples']} examples; about {peak} of disk while building, {disk} "
        f"in the end{vocabulary}"
    )


def _rows_by_split(manifest: Mapping[str, Any]) -> list[tuple[str, ...]]:
    splits = ("train", "valid")

    def row(name: str, key: str) -> tuple[str, ...]:
        return (name, *(f"{manifest[key][split]:,}" for split in splits))

    def share(name: str, parts: Mapping[str, int], wholes: Mapping[str, int]) -> tuple[str, ...]:
        shares = (parts[s] / wholes[s] if wholes[s] else None for s in splits)
        return (name, *map(percent, shares))

    def newer(key: str) -> list[Any]:
        return [manifest.get(key, {}).get(split) for split in splits]

    labels = manifest["label_counts"]
    slots = {s: manifest["examples"][s] * manifest["settings"]["seq_len"] for s in splits}
    random = {s: labels[s]["random"] for s in splits}
    labelled = {s: sum(labels[s].values()) for s in splits}
    is_random = "B before A" if _objective(manifest) == "sop" else "B is random"
    masked = (decimals(mean, 1) for mean in newer("masked_tokens_per_sequence"))
    return [
        ("", *splits),
        row("documents", "documents"),
        row("sentences", "sentences"),
        row("tokens", "tokens"),
        row("examples", "examples"),
        share(f"  {is_random}", random, labelled),
        ("  majority baseline", *map(percent, newer("majority_baseline"))),
        share("  tokens to predict", manifest["masked_tokens"], manifest["example_tokens"]),
        ("    per sequence", *masked),
        share("  slots filled", manifest["example_tokens"], slots),
        ("  sentences truncated", *map(percent, newer("truncated_share"))),
        ("  tokens truncated", *map(percent, newer("truncated_tokens_share"))),
    ]


def _objective(manifest: Mapping[str, Any]) -> str:
    return str(manifest["settings"].get("objective", "nsp"))


def print_histogram(histogram: Mapping[str, list[int]] | None) -> None:
    """Print the number of training examples by length, with bars."""
    if histogram is None:
        echo("training examples by length: -")
        return
    counts, up_to = histogram["train"], histogram["up_to"]
    starts = [1, *(end + 1 for end in up_to[:-1])]
    names = [f"{start}-{end}" for start, end in zip(starts, up_to, strict=True)]
    width, digits = max(map(len, names)), len(f"{max(counts):,}")
    echo("training examples by length:")
    for name, count in zip(names, counts, strict=True):
        # Rounded up, so only an empty bin has no mark.
        bar = "#" * -(-count * BAR // max(1, *counts))
        echo(f"  {name.rjust(width)}  {count:{digits},}  {bar}".rstrip())
