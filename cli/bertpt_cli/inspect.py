"""`bertpt inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from bertpt.config import InspectConfig
from bertpt_cli.options import Config, Json, Quiet, takes_settings
from bertpt_cli.output import as_flags, echo, print_data_report, print_json


@takes_settings
def inspect(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data folder.", show_default=False)],
    config: InspectConfig,
    *,
    json: Json = False,
    quiet: Quiet = False,  # noqa: ARG001  every command has it
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Print the figures of a data folder, and some examples.

    A token to predict is printed as [seen|true]: what the model sees, and what it should predict.
    """
    from bertpt.build.describe import describe
    from bertpt.data.dataset import Dataset

    report = describe(Dataset(data), config)
    if json:
        print_json(report)
        return
    print_data_report(report)
    for warning in report["warnings"]:
        echo(f"warning: {as_flags(warning)}")
    for shown in report["shown"]:
        echo(
            f"\n{config.split} example {shown['row']}: {shown['label']}, {shown['num_tokens']} "
            f"tokens, {shown['num_predictions']} to predict [seen|true]"
        )
        echo(f"A  {shown['a']}")
        if shown["b"]:
            echo(f"B  {shown['b']}")
