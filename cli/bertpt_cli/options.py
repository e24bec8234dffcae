"""Options made from the dataclasses of bertpt.config, and those that every command has."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from bertpt.config import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command one option for each field of its parameters that are `Settings`.

    The command gets the dataclasses made from the options' values; names, defaults, help and
    ranges stand in bertpt.config and nowhere else.
    """
    hints = get_type_hints(command, include_extras=True)
    plain: list[inspect.Parameter] = []
    options: list[inspect.Parameter] = []
    classes: dict[str, type[Settings]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and issubclass(kind, Settings):
            classes[parameter.name] = kind
            options += _options_of(kind)
        else:
            plain.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        for name, kind in classes.items():
            fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
            values[name] = kind(**{field: values.pop(field) for field in fields})
        command(**values)

    parameters = plain + options
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _options_of(kind: type[Settings]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[
                hints[field.name],
                typer.Option(
                    help=field.metadata["help"],
                    metavar="|".join(field.metadata["choices"]) or None,
                    show_default=field.default is not None,
                ),
            ],
        )
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    ]


def given(context: typer.Context, kind: type[Settings]) -> dict[str, Any]:
    """The settings of a kind that the command line or a --config file gave a value."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    sources = {name: context.get_parameter_source(name) for name in names}
    return {
        name: context.params[name]
        for name, source in sources.items()
        if source is not None and source.name not in ("DEFAULT", "ENVIRONMENT")
    }


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Lets a TOML file fill in the defaults of the command's options."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise typer.BadParameter(f"{path} is not TOML: {error}") from error
    names = {key.replace("-", "_"): value for key, value in values.items()}
    known = {p.name for p in context.command.params if p.param_type_name == "option"} - {"config"}
    if unknown := sorted(names.keys() - known):
        raise typer.BadParameter(
            f"{path}: {context.info_name} has no option {', '.join(unknown)}; see --help"
        )
    context.default_map = {**(context.default_map or {}), **names}
    return path


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Text: .txt files (also .gz, .bz2, .xz), folders of them, globs, or - for standard "
        "input. A blank line ends a document.",
        show_default=False,
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an output of this command that stands there.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no log lines.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Take options from a TOML file; those given here win.",
        callback=_read_config,
        is_eager=True,
        show_default=False,
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A run, a checkpoint, or a Hugging Face BERT folder.",
        show_default=False,
    ),
]
Split = Annotated[Literal["train", "valid"], typer.Option(help="Which examples.")]
BatchSize = Annotated[
    int, typer.Option(min=1, help="Examples in one forward pass; changes no result.")
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option(help="Number format of the matrix products; auto is bfloat16 where it is fast."),
]
