"""Command-line options: generated from bertpt.config, and common to all commands."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.exceptions import TyperException

from bertpt.config.fields import Settings
from bertpt_cli.output import as_flags

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of its `Settings` parameters.

    The command receives the dataclasses. Names, defaults, help and ranges come from bertpt.config.
    With --resume the command receives None, because the options `given` are then compared with the
    settings of the run, not with the defaults.
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
            settings = {field: values.pop(field) for field in fields}
            values[name] = None if values.get("resume") else kind(**settings)
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
            annotation=Annotated[hints[field.name], _option(field, hints[field.name])],
        )
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    ]


NUMBERS = {int: ("N", "a whole number"), float: ("X", "a number")}


def _option(field: "dataclasses.Field[Any]", kind: Any) -> Any:
    metavar: str | None = "|".join(field.metadata["choices"]) or field.metadata["metavar"]
    parser = None
    for number, (letter, words) in NUMBERS.items():
        if kind in (number, number | None):
            metavar, parser = letter, _number_parser(number, words)
    return typer.Option(
        help=as_flags(field.metadata["help"]),
        metavar=metavar,
        parser=parser,
        show_default=field.default is not None,
    )


def _number_parser(number: type, words: str) -> Callable[[Any], Any]:
    """Parse a number, or name the value that is not one; the dataclass checks the range."""

    def parse(value: Any) -> Any:
        try:
            return number(str(value))  # str refuses True, from a TOML file
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not {words}") from None

    return parse


def given(context: typer.Context, kind: type[Settings]) -> dict[str, Any]:
    """Return the settings that the command line or a --config file gave."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    sources = {name: context.get_parameter_source(name) for name in names}
    return {
        name: context.params[name]
        for name, source in sources.items()
        if source is not None and source.name not in ("DEFAULT", "ENVIRONMENT")
    }


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let a TOML file set the defaults of the command's options."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} is not TOML: {error}") from error
    names = {key.replace("-", "_"): value for key, value in values.items()}
    if len(names) < len(values):
        raise typer.BadParameter(f"{path} has an option both with - and with _")
    known = {p.name for p in context.command.params if p.param_type_name == "option"} - {
        "config_file"
    }
    if unknown := sorted(names.keys() - known):
        raise typer.BadParameter(
            f"{path}: {context.info_name} has no option "
            f"{', '.join(name.replace('_', '-') for name in unknown)}; see --help"
        )
    context.default_map = {**(context.default_map or {}), **names}
    return path


class MissingOption(TyperException):
    """An option is missing that some uses of a command require; worded as in Typer."""

    exit_code = 2

    def __init__(self, name: str) -> None:
        super().__init__(f"Missing option '{name}'.")


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Text: .txt, .jsonl, .json, .csv, .tsv (also .gz, .bz2, .xz, .zst) or .parquet files, "
        "folders of them, globs, hf:NAME[/CONFIG][:SPLIT], or - for standard input (jsonl:-, "
        "csv:- or tsv:- for rows). A blank line or a row ends a document.",
        show_default=False,
    ),
]
DataFolders = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="One or more DATA folders with the same vocabulary, such as those of build-data "
        "--shard.",
        show_default=False,
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing output of this command.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no log lines.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Read options from a TOML file; options given here take precedence.",
        callback=_read_config,
        is_eager=True,
        show_default=False,
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A run, a checkpoint, or a folder that transformers saved from a BERT.",
        show_default=False,
    ),
]
