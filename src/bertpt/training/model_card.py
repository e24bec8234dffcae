"""The model card: what a model was trained on and how, told from the run's own records."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bertpt.config import BertConfig, PretrainConfig

TASKS = {
    "nsp": "masked-language modelling and next-sentence prediction",
    "sop": "masked-language modelling and sentence-order prediction (Lan et al., 2020)",
    "mlm": "masked-language modelling",
}


def model_card(
    config: PretrainConfig,
    shape: BertConfig,
    *,
    step: int,
    manifest: Mapping[str, Any],
    record: Mapping[str, Any],
    evaluation: Mapping[str, Any] | None,
    is_best: bool = False,
) -> str:
    """A README.md in the form that the Hugging Face Hub reads.

    Args:
        config: the run's resolved settings.
        shape: of the model.
        step: optimizer steps done.
        manifest: of the data.
        record: the run's config.json, for data fingerprint and package versions.
        evaluation: the newest held-out metrics, if there are any.
        is_best: whether they are the run's best so far, which the model is kept for.
    """
    start = f"from `{config.init_from}`" if config.init_from else "from scratch"
    objective = TASKS[manifest["settings"].get("objective", "nsp")]
    summary = (
        f"A BERT encoder (Devlin et al., 2019), trained {start} on {objective} by bertpt "
        f"{record['packages']['bertpt']}."
    )
    sections = [
        _front_matter(manifest),
        f"# BERT, {shape.num_hidden_layers} layers, {shape.hidden_size} wide",
        summary,
        "## How to use it",
        _usage(shape),
        "## What it was trained on",
        _data(manifest, record),
        "## How it was trained",
        _training(config, shape, step=step, manifest=manifest),
        "## How good it is",
        _figures(evaluation, is_best=is_best),
        "## All settings",
        "```json\n" + json.dumps(config.to_dict(), indent=2, ensure_ascii=False) + "\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(manifest: Mapping[str, Any]) -> str:
    return "\n".join(
        (
            "---",
            _languages(manifest),
            "library_name: transformers",
            "pipeline_tag: fill-mask",
            "tags:",
            "- bert",
            "- bertpt",
            "---",
        )
    )


def _languages(manifest: Mapping[str, Any]) -> str:
    several = manifest.get("languages", [])
    if len(several) > 1:  # of several data folders
        return "\n".join(["language:", *(f'- "{language}"' for language in several)])
    return f'language: "{manifest["settings"]["language"]}"'


def _usage(shape: BertConfig) -> str:
    code = """```python
from transformers import pipeline

print(pipeline("fill-mask", model="path/to/this/folder")("The [MASK] is here."))
```"""
    if shape.pooler == "cls":
        return code
    return (
        f"{code}\n\nIts pooler takes the mean of all tokens, which transformers does not know: "
        "there, pooler output and next-sentence logits differ from bertpt's."
    )


def _data(manifest: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    rows = [
        (name, *(f"{manifest[key][split]:,}" for split in ("train", "valid")))
        for name, key in (
            ("documents", "documents"),
            ("sentences", "sentences"),
            ("tokens", "tokens"),
            ("examples", "examples"),
        )
    ]
    settings = manifest["settings"]
    paths = ", ".join(f"`{path}`" for path in record["data"]["paths"])
    return (
        _table(("", "training", "held out"), rows)
        + f"\n\nSequences of {settings['seq_len']} tokens, {settings['masked_lm_prob']:.0%} of "
        f"them to predict; WordPiece vocabulary of {manifest['vocab_size']:,} entries (SHA-256 "
        f"`{manifest['tokenizer_sha256'][:12]}`); data {paths} (SHA-256 "
        f"`{record['data']['sha256'][:12]}`)."
    )


def _training(
    config: PretrainConfig, shape: BertConfig, *, step: int, manifest: Mapping[str, Any]
) -> str:
    optimizer = f"AdamW, peak learning rate {config.learning_rate:g}"
    if config.optimizer == "muon":
        optimizer = (
            f"Muon for the encoder's matrices, peak learning rate {config.muon_learning_rate:g}; "
            f"{optimizer} for the rest"
        )
    # The last step of an epoch has what is left.
    in_epoch = manifest["examples"]["train"]
    epochs, steps = divmod(step, -(-in_epoch // config.batch_size))
    examples = epochs * in_epoch + steps * config.batch_size
    rows = [
        ("start", f"`{config.init_from}`" if config.init_from else f"{config.init} weights"),
        ("steps", f"{step:,}"),
        ("examples", f"{examples:,} ({examples / in_epoch:.2f} epochs)"),
        ("batch", f"{config.batch_size} examples"),
        ("optimizer", optimizer),
        ("schedule", config.schedule + (f", decay {config.decay:g}" if config.decay else "")),
        ("warm-up", f"{config.warmup:g}"),
        ("weight decay", f"{config.weight_decay:g}"),
        ("dropout", f"{config.dropout:g}"),
        ("masks", "fresh each epoch" if config.masking == "fresh" else "those of the data"),
        ("positions", f"{shape.max_position_embeddings:,}"),
    ]
    return _table(("", ""), rows)


def _figures(evaluation: Mapping[str, Any] | None, *, is_best: bool) -> str:
    if evaluation is None:
        return "It was not evaluated on held-out text."

    def row(name: str, key: str) -> tuple[str, str]:
        value = evaluation[key]
        if value is None:
            return (name, "-")
        return (name, f"{value:.1%}" if key.endswith("accuracy") else f"{value:.3f}")

    rows = [
        row("MLM loss (nats a token)", "mlm_loss"),
        row("MLM perplexity", "mlm_perplexity"),
        row("MLM accuracy", "mlm_accuracy"),
        row("NSP loss (nats a pair)", "nsp_loss"),
        row("NSP accuracy", "nsp_accuracy"),
    ]
    best = "These are the weights of the run's lowest held-out loss.\n\n" if is_best else ""
    return (
        f"{best}On {evaluation['num_examples']:,} examples ({evaluation['num_targets']:,} masked "
        f"tokens) of held-out documents, after step {evaluation['step']:,}:\n\n"
        + _table(("", "held out"), rows)
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)
