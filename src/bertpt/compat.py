"""Whether a model, its tokenizer and a data folder belong together."""

from pathlib import Path
from typing import TYPE_CHECKING

from bertpt.config import BertConfig
from bertpt.errors import MismatchError
from bertpt.tokenizer.added import added_tokens, split_tokens
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from bertpt.data.dataset import Dataset


def require_same_tokenizer(folder: Path, data: "Dataset") -> None:
    """Check that a model and a data folder have the same tokenizer.

    Raises:
        MismatchError: they do not; the message names both fingerprints.
    """
    _require_same(load_tokenizer(folder), folder, data)


def tokens_to_add(folder: Path, data: "Dataset") -> dict[int, list[int]]:
    """Return the tokens that the data has more than a model, each with its pieces in the model.

    Returns:
        For each new id, the model's ids of its pieces; nothing if the tokenizers are the same.

    Raises:
        MismatchError: the data's tokenizer is neither the model's nor an extension of it.
    """
    base = load_tokenizer(folder)
    added = added_tokens(base, data.tokenizer)
    if added is None:
        _require_same(base, folder, data)
        return {}
    return dict(zip(added, split_tokens(base, added.values()), strict=True))


def _require_same(tokenizer: Tokenizer, folder: Path, data: "Dataset") -> None:
    data_print = data.manifest["tokenizer_sha256"]
    if tokenizer.fingerprint != data_print:
        raise MismatchError(
            f"{folder} has tokenizer {tokenizer.fingerprint[:12]}, {data.name} was built with "
            f"{data_print[:12]}; build the data with `tokenizer` {folder}"
        )


def require_rows(shape: BertConfig, num_ids: int, folder: Path) -> None:
    """Check that a model has an embedding for every id of its tokenizer.

    Raises:
        MismatchError: it does not; the message names both numbers.
    """
    if num_ids > shape.vocab_size:
        raise MismatchError(
            f"{folder}: the tokenizer has {num_ids} entries, the model embeds {shape.vocab_size}; "
            "replace the tokenizer by the one that the model was trained with"
        )


def require_sequences(
    shape: BertConfig,
    data: "Dataset",
    *,
    more_positions: str = "pretrain `init_from` and `extend_positions`",
) -> None:
    """Check that a model can read the data's sequences, in length and segments.

    Args:
        shape: of the model.
        data: to read.
        more_positions: how to give the model more positions, for the message.

    Raises:
        MismatchError: it cannot; the message names both numbers.
    """
    seq_len, positions = data.settings.seq_len, shape.max_position_embeddings
    if seq_len > positions:
        raise MismatchError(
            f"{data.name} has sequences of {seq_len} tokens, but the model has {positions} "
            f"positions; give it more with {more_positions}, or build the data with "
            f"`seq_len` {positions}"
        )
    if shape.type_vocab_size < 2 and data.settings.objective != "mlm":
        raise MismatchError(
            f"{data.name} has pairs of 2 segments, but the model has type_vocab_size "
            f"{shape.type_vocab_size}"
        )
