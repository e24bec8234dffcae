"""`bertpt encode`."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertpt.config import EncodeConfig
from bertpt.errors import InputError
from bertpt.signals import while_importing
from bertpt.text import printable
from bertpt_cli.options import Config, Json, Model, Overwrite, Quiet, takes_settings
from bertpt_cli.output import echo, print_json, print_vectors, show_progress
from bertpt_cli.texts import Text, Texts, read_texts

if TYPE_CHECKING:
    from bertpt.evaluation.encode import Encoded, TextEncoder


@takes_settings
def encode(
    model: Model,
    texts: Texts,
    config: EncodeConfig,
    *,
    pair: Annotated[
        bool, typer.Option("--pair", help="Encode pairs of texts, separated by a tab.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the vectors to a .npy or .safetensors file instead of printing them.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
    config_file: Config = None,  # noqa: ARG001  its callback does the work
) -> None:
    """Turn texts, or each of their tokens, into vectors.

    Prints one JSON object per text, in order, with text (and text_pair) and embedding, or, with
    --pooling tokens, tokens and embeddings. Memory does not grow with the number of texts.
    """
    with while_importing():
        from bertpt.evaluation.encode import TextEncoder
        from bertpt.evaluation.vector_file import require_writable, vector_file

    by_token, progress = config.pooling == "tokens", show_progress(quiet=quiet)
    if out is not None:
        require_writable(out, by_token=by_token, overwrite=overwrite)
    encoder = TextEncoder(model, config)
    if encoder.ignored_note:
        progress.log(f"{model}: {encoder.ignored_note}")
    given = read_texts(texts)
    # On a terminal, a bar would appear between the printed vectors.
    bar = show_progress(quiet=quiet or out is None).bar("encoding", unit="text")
    encoded = encoder.encode(
        map(_split, given) if pair else (text.text for text in given), on_batch=bar.update
    )
    sink = (
        vector_file(out, width=encoder.hidden_size, by_token=by_token, overwrite=overwrite)
        if out
        else nullcontext()
    )
    num_texts = num_cut = 0
    with bar, sink as file:
        for one in encoded:
            if file is None:
                print_vectors(_described(one, encoder), one.vectors)
            else:
                file.append(one.vectors)
            num_texts += 1
            num_cut += one.is_cut
    if num_cut:
        progress.log(
            f"warning: {num_cut:,} of {num_texts:,} texts were truncated to the model's maximum "
            f"of {encoder.max_tokens} tokens"
        )
    if out is not None and json:
        figures = {"num_texts": num_texts, "hidden_size": encoder.hidden_size}
        print_json({"out": printable(out), **figures})
    elif out is not None:
        texts_in = f"{num_texts:,} text{'' if num_texts == 1 else 's'} in {printable(out)}"
        echo(f"{texts_in}, vectors of {encoder.hidden_size}")


def _split(text: Text) -> tuple[str, str]:
    parts = text.text.split("\t")
    if len(parts) != 2:
        raise InputError(
            f"{text.where}--pair needs two texts separated by one tab, found {len(parts) - 1} "
            f"tabs: {text.text[:60]!r}"
        )
    return parts[0], parts[1]


def _described(one: "Encoded", encoder: "TextEncoder") -> dict[str, object]:
    texts = (one.text,) if isinstance(one.text, str) else one.text
    described: dict[str, object] = dict(zip(("text", "text_pair"), texts, strict=False))
    if one.vectors.ndim == 2:
        described["tokens"] = [encoder.tokenizer.vocab[token] for token in one.tokens]
    return described
