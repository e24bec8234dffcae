"""`bertpt pretrain`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertpt.config import PretrainConfig
from bertpt.errors import SettingError
from bertpt.signals import exit_without_teardown, while_importing, while_training
from bertpt.text import printable
from bertpt_cli.options import (
    Config,
    DataFolders,
    Json,
    MissingOption,
    Overwrite,
    Quiet,
    given,
    takes_settings,
)
from bertpt_cli.output import echo, nats, percent, print_json, show_progress

if TYPE_CHECKING:
    from bertpt.progress import Progress


@takes_settings
def pretrain(
    context: typer.Context,
    data: DataFolders,
    config: PretrainConfig,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="RUN folder to write; not needed with --verify-resume.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue from the newest intact checkpoint in RUN, with its settings. How long "
            "to train, log and save may change; a new length counts as if given at the start, so "
            "the learning rate may jump.",
        ),
    ] = False,
    verify_resume: Annotated[
        int | None,
        typer.Option(
            "--verify-resume",
            metavar="K",
            help="Write nothing; run the first K steps twice, the second time through a checkpoint "
            "halfway, and exit with status 1 unless losses and weights agree bit for bit.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Train a BERT on data folders.

    It learns MLM and NSP, from scratch or, with --init-from, from the weights of another model.

    RUN/model is a Hugging Face model folder, for transformers as for eval-mlm and fill-mask.
    RUN/best is the model with the lowest held-out loss. RUN/metrics.jsonl has the losses of every
    logged step.
    """
    # torch reads this when it is imported; its warning of a lost connection takes 40 lines.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

    with while_importing():
        from bertpt.training import pretrain as stage
        from bertpt.training.background import is_working
        from bertpt.training.distributed import join
        from bertpt.training.launcher import read_launch
        from bertpt.training.resume import resumed_config

    has_others = read_launch(os.environ) is not None
    if resume and overwrite:
        raise SettingError("resume", "and --overwrite exclude each other")
    if verify_resume is not None:
        if resume:
            raise SettingError("verify_resume", "and --resume exclude each other")
        if has_others:
            raise SettingError("verify_resume", "is for one process; start it without torchrun")
        _verify(data, config, verify_resume, json=json, progress=show_progress(quiet=quiet))
        return
    if out is None:
        raise MissingOption("--out")
    config = config if not resume else resumed_config(out, given(context, PretrainConfig))
    with exit_without_teardown(enabled=has_others):
        with join(config) as ranks, while_training(is_working):
            result = stage.pretrain(
                data,
                out,
                config=config,
                resume=resume,
                overwrite=overwrite,
                progress=show_progress(quiet=quiet),
                ranks=ranks,
            )
        if ranks.is_first:
            _print_result(out, result, json=json)


def _print_result(out: Path, result: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json({"out": printable(out), **result})
        return
    of = "held-out" if result["split"] == "valid" else "training"
    mlm, nsp = (
        f"{name.upper()} loss {nats(result.get(f'{name}_loss'))}, "
        f"accuracy {percent(result.get(f'{name}_accuracy'))}"
        for name in ("mlm", "nsp")
    )
    steps = f"{result['step']:,} step{'s' * (result['step'] != 1)}"
    echo(f"{printable(out)}/model after {steps}: {of} {mlm}; {nsp}")


def _verify(
    data: list[Path], config: PretrainConfig, num_steps: int, *, json: bool, progress: "Progress"
) -> None:
    from bertpt.training.verify import verify_resume

    found = verify_resume(data, config=config, num_steps=num_steps, progress=progress)
    if json:
        print_json(found)
    else:
        verdict = (
            "losses and weights agree bit for bit"
            if found["identical"]
            else f"losses differ by at most {found['max_loss_difference']:.2g}, weights by at most "
            f"{found['max_weight_difference']:.2g}; the first at step {found['first_difference']}"
        )
        echo(f"{num_steps} steps, saved and loaded after {found['saved_after']}: {verdict}")
    if not found["identical"]:
        raise typer.Exit(1)
