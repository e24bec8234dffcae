"""`bertpt fill-mask`."""

from typing import Any

import typer

from bertpt.config import FillMaskConfig
from bertpt.errors import InputError
from bertpt.signals import while_importing
from bertpt_cli.options import Config, Json, Model, Quiet, takes_settings
from bertpt_cli.output import echo, percent, print_error, print_json, print_table, show_progress
from bertpt_cli.texts import Texts, read_texts


@takes_settings
def fill_mask(
    model: Model,
    texts: Texts,
    config: FillMaskConfig,
    *,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Print the most likely tokens for each [MASK] in a text.

    With --json, and for standard input, it prints one JSON object per text. A text that cannot be
    filled gives one line on standard error, and the exit status is 1.
    """
    with while_importing():
        from bertpt.evaluation.fill_mask import MaskFiller

    filler = MaskFiller(model, device=config.device)
    if filler.ignored_note:
        show_progress(quiet=quiet).log(f"{model}: {filler.ignored_note}")
    failed = False
    for text, where in read_texts(texts):
        try:
            result = filler.fill(
                text, top_k=config.top_k, joint=config.joint, mask_word=config.mask_word
            )
        except InputError as error:
            print_error(f"{where}{error}")
            failed = True
            continue
        if json or where:
            print_json(result)
        else:
            _print_text(result)
    if failed:
        raise typer.Exit(1)


def _print_text(result: dict[str, Any]) -> None:
    for candidates in result["masks"]:
        print_table((c["token"], percent(c["score"]), c["sequence"]) for c in candidates)
        echo()
    if "sequence" in result:
        echo(f"{result['sequence']}  {percent(result['score'])}\n")
