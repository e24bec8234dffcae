"""`bertpt pretrain`."""

from pathlib import Path
from typing import Annotated

import typer

from bertpt.config import PretrainConfig
from bertpt.errors import SettingError
from bertpt.files import printable
from bertpt_cli.options import Config, DataFolders, Json, Overwrite, Quiet, given, takes_settings
from bertpt_cli.output import nats, percent, print_json


@takes_settings
def pretrain(
    context: typer.Context,
    data: DataFolders,
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="Run folder to write.", show_default=False)
    ],
    config: PretrainConfig,
    *,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the newest checkpoint in RUN, with the settings it was started with; "
            "how long to train, log and save may be changed. Another length counts as if given "
            "at the start: the share done (step / steps) falls as --steps rises, so the learning "
            "rate jumps up with linear or cosine; with constant, or with wsd before its decay, it "
            "does not.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Train a BERT on data folders.

    With MLM and NSP, from scratch or, with --init-from, from the weights of another.

    RUN/model is a Hugging Face model folder: transformers opens it, and so do eval-mlm and
    fill-mask. RUN/metrics.jsonl has the losses of every logged step.
    """
    from bertpt.progress import Progress
    from bertpt.training import loop
    from bertpt.training.checkpoint import resumed_config

    if resume and overwrite:
        raise SettingError("resume", "and --overwrite exclude each other")

    result = loop.pretrain(
        data,
        out,
        config=config if not resume else resumed_config(out, given(context, PretrainConfig)),
        resume=resume,
        overwrite=overwrite,
        progress=Progress(quiet=quiet),
    )
    if json:
        print_json({"out": printable(out), **result})
        return
    of = "held-out" if result["split"] == "valid" else "training"
    mlm, nsp = (
        f"{name.upper()} loss {nats(result.get(f'{name}_loss'))}, "
        f"accuracy {percent(result.get(f'{name}_accuracy'))}"
        for name in ("mlm", "nsp")
    )
    typer.echo(f"{printable(out)}/model after {result['step']:,} steps: {of} {mlm}; {nsp}")
