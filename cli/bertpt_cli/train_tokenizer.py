"""`bertpt train-tokenizer`."""

from pathlib import Path
from typing import Annotated

import typer

from bertpt.config import TokenizerConfig
from bertpt.text import printable
from bertpt_cli.options import Config, Inputs, Json, Overwrite, Quiet, takes_settings
from bertpt_cli.output import echo, print_json, show_progress


@takes_settings
def train_tokenizer(
    inputs: Inputs,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Tokenizer folder to write.", show_default=False)
    ],
    config: TokenizerConfig,
    *,
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
