"""`bertpt train-tokenizer`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertpt.config import TokenizerConfig
from bertpt.errors import SettingError
from bertpt.text import printable
from bertpt_cli.options import Config, Inputs, Json, Overwrite, Quiet, given, takes_settings
from bertpt_cli.output import echo, print_json, show_progress

DEFAULT_ADDED = 1000


@takes_settings
def train_tokenizer(
    context: typer.Context,
    inputs: Inputs,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Tokenizer folder to write.", show_default=False)
    ],
    config: TokenizerConfig,
    *,
    extend: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Add tokens to the vocabulary of a model, or of another folder with a tokenizer, "
            "instead of learning one. All its ids stay the same.",
            show_default=False,
        ),
    ] = None,
    add: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --extend, tokens to add: those that shorten this text most (default: 1000).",
            show_default=False,
        ),
    ] = None,
    text_field: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Field of a row that contains the text; a.b is the field b of a struct a.",
        ),
    ] = "text",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse text that needs repair."),
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Learn a WordPiece vocabulary from text.

    Use the folder with build-data --tokenizer, or load it with transformers.AutoTokenizer. The same
    text gives the same bytes every time.
    """
    if extend is not None:
        _extend(
            context,
            inputs,
            out,
            model=extend,
            num_added=DEFAULT_ADDED if add is None else add,
            text_field=text_field,
            strict=strict,
            overwrite=overwrite,
            json=json,
            progress=show_progress(quiet=quiet),
        )
        return
    if add is not None:
        raise SettingError("add", f"{add} needs `extend` MODEL, whose vocabulary it adds to")
    from bertpt.tokenizer import train

    result = train.train_tokenizer(
        inputs,
        out,
        config=config,
        text_field=text_field,
        strict=strict,
        overwrite=overwrite,
        progress=show_progress(quiet=quiet),
    )
    if json:
        print_json({"out": printable(out), **result})
    else:
        echo(f"{printable(out)}: a vocabulary of {result['vocab_size']:,} tokens")


def _extend(
    context: typer.Context, inputs: list[str], out: Path, *, model: Path, json: bool, **options: Any
) -> None:
    from bertpt.tokenizer.extend import extend_tokenizer

    settings = given(context, TokenizerConfig)
    min_frequency = settings.pop("min_frequency", TokenizerConfig.min_frequency)
    for name in settings:
        raise SettingError(name, f"is for learning a vocabulary; --extend {model} keeps that one")
    result = extend_tokenizer(inputs, out, model=model, min_frequency=min_frequency, **options)
    if json:
        print_json({"out": printable(out), **result})
        return
    unused = result["num_unused_replaced"]
    replaced = f" ({unused:,} in place of [unused] entries)" if unused else ""
    before, after = (result["tokens_per_word"][when] for when in ("before", "after"))
    unknown = " -> ".join(f"{share:.2%}" for share in result["unknown_share"].values())
    echo(
        f"{printable(out)}: {result['num_added']:,} tokens added to {printable(model)}{replaced}, "
        f"{result['vocab_size']:,} in all"
    )
    echo(
        f"tokens per word: {before:.3f} -> {after:.3f}, {1 - after / before:.1%} fewer; "
        f"unknown words: {unknown}"
    )
