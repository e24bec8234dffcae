"""Grow the tables of a trained model: more positions, more tokens."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

WORDS = "bert.embeddings.word_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"
# The tables with a row for each token, and the names under which a file may repeat them.
TOKEN_TABLES = (
    WORDS,
    "cls.predictions.decoder.weight",
    "cls.predictions.bias",
    "cls.predictions.decoder.bias",
)
ALIGNMENTS = (128, 64, 32, 16, 8)


def repeat_positions(tensors: dict[str, Tensor], num_positions: int, hidden_size: int) -> None:
    """Repeat the position embeddings up to `num_positions`.

    Row i is row i modulo their number, as in Longformer (Beltagy et al., 2020). Inputs of the old
    length then give the same output.
    """
    table = tensors.get(POSITIONS)
    if table is not None and table.shape[1:] == (hidden_size,) and 0 < len(table) < num_positions:
        tensors[POSITIONS] = table[torch.arange(num_positions) % len(table)]


def num_rows(num_tokens: int, *, old_rows: int, old_tokens: int) -> int:
    """Return the rows of a token table that grows to `num_tokens`.

    A table that was padded, such as to a multiple of 64, stays padded in the same way.
    """
    if num_tokens <= old_rows:
        return old_rows
    multiple = 1
    if old_rows > old_tokens:
        multiple = next((size for size in ALIGNMENTS if old_rows % size == 0), 1)
    return -(-num_tokens // multiple) * multiple


def add_token_rows(
    tensors: dict[str, Tensor], pieces: Mapping[int, Sequence[int]], rows: int
) -> None:
    """Give new tokens rows in all tables with a row for each token.

    The row of a new token, and its decoder bias, are the means of those of the pieces into which
    the old vocabulary splits it. Rows of no token are 0.

    Args:
        tensors: the weights, changed in place.
        pieces: for each new id, the old ids of its pieces.
        rows: of the tables, as from `num_rows`.
    """
    for name in TOKEN_TABLES:
        old = tensors.get(name)
        if old is None or not old.shape or not 0 < len(old) <= rows:
            continue  # what is wrong with it is for the caller to say
        new = torch.zeros(rows, *old.shape[1:], dtype=old.dtype)
        new[: len(old)] = old
        for number, parts in pieces.items():
            new[number] = old[list(parts)].float().mean(dim=0).to(old.dtype)
        tensors[name] = new
