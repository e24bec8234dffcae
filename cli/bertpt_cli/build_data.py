"""`bertpt build-data`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.errors import SettingError
from bertpt.text import printable
from bertpt_cli.options import (
    Config,
    Inputs,
    Json,
    MissingOption,
    Overwrite,
    Quiet,
    given,
    takes_settings,
)
from bertpt_cli.output import print_data_report, print_json, show_progress


@takes_settings
def build_data(
    context: typer.Context,
    inputs: Inputs,
    config: BuildConfig,
    tokenizer_config: TokenizerConfig,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Data folder to write; not needed with --dry-run.",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A tokenizer.json, a vocab.txt, or a folder with one, such as a MODEL (default: "
            "learn a vocabulary from the text).",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of processes; does not change the output (default: one per core).",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write nothing; build from a sample (8 MB, from the starts of up to 64 files), "
            "print its report and an estimate for the full input.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Turn text into masked sentence pairs.

    Blank lines separate documents. Whole documents are held out for valid/. The same command gives
    the same bytes every time.
    """
    from bertpt.build import build
    from bertpt.build import dry_run as dry
    from bertpt.build.workers import num_cores

    if workers is not None and workers < 1:
        raise SettingError("workers", f"{workers} must be at least 1")
    tokenizer_options = given(context, TokenizerConfig)
    if tokenizer:
        _refuse_learning_options(tokenizer_options, tokenizer)
    options: dict[str, Any] = {
        "tokenizer_path": tokenizer,
        "config": config,
        "tokenizer_config": tokenizer_config if tokenizer_options or not tokenizer else None,
        "workers": workers or num_cores(),
        "progress": show_progress(quiet=quiet),
    }
    if dry_run:
        manifest, written = dry.dry_run(inputs, **options), None
    elif out:
        manifest = build.build_data(inputs, out, overwrite=overwrite, **options)
        written = printable(out)
    else:
        raise MissingOption("--out")
    if json:
        print_json({"out": written, **manifest})
    else:
        print_data_report(manifest)


def _refuse_learning_options(given: dict[str, Any], tokenizer: Path) -> None:
    for name in given.keys() - {"lowercase", "strip_accents"}:
        raise SettingError(
            name, f"is for learning a vocabulary; with --tokenizer {tokenizer}, none is learned"
        )
