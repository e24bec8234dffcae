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
            help="Data folder to write; --dry-run alone does without.",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A tokenizer.json, a vocab.txt or a folder with one, such as a MODEL; without it "
            "a vocabulary is learned from the text.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Processes to work in; their number does not show in the result (default: one "
            "for each core).",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write nothing: build from a sample (8 MB, from the beginnings of up to 64 files) "
            "and report that, with what the whole would give.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Turn text into masked sentence pairs.

    Documents are separated by blank lines; some are held out whole for valid/. The same command
    gives the same bytes every time.
    """
    from bertpt.build import build
    from bertpt.build import dry_run as dry
    from bertpt.build.workers import num_cores

    if workers is not None and workers < 1:
        raise SettingError("workers", f"{workers} must be at least 1")
    asked = given(context, TokenizerConfig)
    if tokenizer:
        _refuse_contradictions(tokenizer, asked)
    how: dict[str, Any] = {
        "tokenizer_path": tokenizer,
        "config": config,
        "tokenizer_config": tokenizer_config if asked or not tokenizer else None,
        "workers": workers or num_cores(),
        "progress": show_progress(quiet=quiet),
    }
    if dry_run:
        manifest, place = dry.dry_run(inputs, **how), None
    elif out:
        manifest = build.build_data(inputs, out, overwrite=overwrite, **how)
        place = printable(out)
    else:
        raise MissingOption("--out")
    if json:
        print_json({"out": place, **manifest})
    else:
        print_data_report(manifest)


def _refuse_contradictions(tokenizer: Path, asked: dict[str, Any]) -> None:
    """Options that say how to learn a vocabulary must not be ignored where one is given."""
    for name in asked.keys() - {"lowercase", "strip_accents"}:
        raise SettingError(
            name, f"is for learning a vocabulary, and --tokenizer {tokenizer} is one already"
        )
