"""Tables of a trained model that grow: by positions and by tokens."""

import pytest
import torch

from bertpt.model.growth import WORDS, add_token_rows, num_rows

DECODER, BIAS = "cls.predictions.decoder.weight", "cls.predictions.bias"


@pytest.mark.parametrize(
    ("num_tokens", "old_rows", "old_tokens", "expected"),
    [
        (31, 30, 30, 31),  # not padded
        (65, 64, 64, 65),  # a multiple of 64 by chance
        (65, 64, 60, 128),  # padded to a multiple of 64
        (70, 128, 60, 128),  # the padding has room for them
        (129, 128, 127, 256),
        (41, 40, 37, 48),  # padded to a multiple of 8
        (41, 39, 37, 41),
    ],
)
def test_a_padded_table_stays_padded(num_tokens, old_rows, old_tokens, expected):
    assert num_rows(num_tokens, old_rows=old_rows, old_tokens=old_tokens) == expected


def test_a_new_row_is_the_mean_of_its_pieces():
    table, bias = torch.arange(12.0).view(4, 3), torch.tensor([1.0, 2.0, 4.0, 8.0])
    tensors = {WORDS: table, DECODER: table, BIAS: bias, "other": bias}
    add_token_rows(tensors, {4: [1, 2], 1: [0, 2, 3]}, 6)
    expected = torch.cat([table, torch.zeros(2, 3)])
    expected[4] = torch.tensor([4.5, 5.5, 6.5])
    expected[1] = torch.tensor([5.0, 6.0, 7.0])
    assert torch.equal(tensors[WORDS], expected)
    assert torch.equal(tensors[DECODER], expected)
    assert torch.equal(tensors[BIAS], torch.tensor([1.0, 13 / 3, 4.0, 8.0, 3.0, 0.0]))
    assert tensors["other"] is bias
