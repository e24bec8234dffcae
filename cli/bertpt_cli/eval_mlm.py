"""`bertpt eval-mlm`."""

from collections.abc import Mapping
from typing import Any

from bertpt.config import EvalConfig
from bertpt.signals import while_importing
from bertpt_cli.options import Config, DataFolders, Json, Model, Quiet, takes_settings
from bertpt_cli.output import decimals, echo, nats, percent, print_json, print_table, show_progress

LARGE = 1e6  # a perplexity to print with an exponent


@takes_settings
def eval_mlm(
    model: Model,
    data: DataFolders,
    config: EvalConfig,
    *,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Evaluate a model on held-out data.

    It uses the masks stored in DATA, so the figures are the same every time.
    """
    with while_importing():
        from bertpt.evaluation import mlm

    result = mlm.eval_mlm(model, data, config=config, progress=show_progress(quiet=quiet))
    if json:
        print_json(result)
    else:
        _print_text(result)


def _print_text(result: dict[str, Any]) -> None:
    echo(
        f"{result['num_examples']:,} {result['split']} examples, {result['num_targets']:,} targets"
    )
    base = result["baselines"]
    print_table(
        [
            ("", "loss", "perplexity", "accuracy", "top 5"),
            (
                "MLM",
                nats(result["mlm_loss"]),
                _perplexity(result),
                percent(result["mlm_accuracy"]),
                percent(result["mlm_top5_accuracy"]),
            ),
            ("  bits per character", nats(result["mlm_bits_per_character"]), "", "", ""),
            *(
                (f"  where the model saw {seen}", "", "", percent(share), "")
                for seen, share in zip(
                    ("[MASK]", "a random token", "the token itself"),
                    result["mlm_accuracy_by_input"].values(),
                    strict=True,
                )
            ),
            *(
                (
                    f"  {name} baseline",
                    nats(base[name]["mlm_loss"]),
                    "",
                    percent(base[name]["mlm_accuracy"]),
                    "",
                )
                for name in ("unigram", "uniform")
            ),
            ("NSP", nats(result["nsp_loss"]), "", percent(result["nsp_accuracy"]), ""),
            (
                "  majority baseline",
                nats(base["nsp_majority"]["nsp_loss"]),
                "",
                percent(base["nsp_majority"]["nsp_accuracy"]),
                "",
            ),
        ]
    )


def _perplexity(result: Mapping[str, Any]) -> str:
    value = result["mlm_perplexity"]
    if value is None and result["mlm_loss"] is not None:
        return "over 1e308"
    return f"{value:.2e}" if value and value >= LARGE else decimals(value, 1)
