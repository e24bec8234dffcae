"""`bertpt inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from bertpt_cli.options import Config, Json, Split
from bertpt_cli.output import print_data_report, print_json


def inspect(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data folder.", show_default=False)],
    *,
    split: Split = "train",
    examples: Annotated[int, typer.Option(min=0, help="Examples to show, evenly spaced.")] = 3,
    json: Json = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Print a data folder's figures and a few examples, decoded.

    A token to predict is written [seen|true]: what the model sees there, and what it should find.
    """
    from bertpt.data.dataset import DataFolder
    from bertpt.data.report import describe

    report = describe(DataFolder(data), split=split, num_examples=examples)
    if json:
        print_json(report)
        return
    print_data_report(report)
    for warning in report["warnings"]:
        typer.echo(f"warning: {warning}")
    for shown in report["shown"]:
        typer.echo(
            f"\n{split} example {shown['row']}: {shown['label']}, {shown['num_tokens']} tokens, "
            f"{shown['num_predictions']} to predict [seen|true]"
        )
        typer.echo(f"A  {shown['a']}\nB  {shown['b']}")
