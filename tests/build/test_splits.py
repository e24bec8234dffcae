"""Which documents are held out."""

import dataclasses

import pytest

from bertpt.build.splits import split_documents
from bertpt.config import BuildConfig


@pytest.mark.parametrize(
    ("documents", "fraction", "held_out"),
    [(2, 0.5, 0), (3, 0.5, 0), (4, 0.05, 2), (6, 0.34, 2), (100, 0.05, 5), (5, 0.9, 3), (9, 0, 0)],
)
def test_complete_documents_are_held_out(documents, fraction, held_out):
    splits = split_documents(documents, BuildConfig(valid_fraction=fraction))
    assert len(splits["valid"]) == held_out
    assert sorted([*splits["train"], *splits["valid"]]) == list(range(documents))


def test_the_documents_held_out_of_a_part_depend_on_the_part_alone():
    config = BuildConfig(valid_fraction=0.3)
    held_out = [
        split_documents(50, dataclasses.replace(config, shard=shard))["valid"].tolist()
        for shard in (None, "1/1", "1/2", "2/2", "1/2")
    ]
    assert held_out[0] == held_out[1]
    assert held_out[2] == held_out[4]
    assert len({str(numbers) for numbers in held_out}) == 3
