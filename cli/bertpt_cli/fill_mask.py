"""`bertpt fill-mask`."""

from typing import Annotated

import typer

from bertpt.config import FillMaskConfig
from bertpt_cli.options import Config, Json, Model, Quiet, takes_settings
from bertpt_cli.output import percent, print_json, print_table


@takes_settings
def fill_mask(
    model: Model,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="Text with one [MASK] or more.", show_default=False),
    ],
    config: FillMaskConfig,
    *,
    json: Json = False,
    quiet: Quiet = False,  # noqa: ARG001  every command takes it
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Print the likeliest tokens for each [MASK]; with --json one object a text."""
    from bertpt.evaluation.fill_mask import MaskFiller

    filler = MaskFiller(model, device=config.device)
    for text in texts:
        result = filler.fill(text, top_k=config.top_k)
        if json:
            print_json(result)
            continue
        for candidates in result["masks"]:
            print_table((c["token"], percent(c["score"]), c["sequence"]) for c in candidates)
            typer.echo()
