"""View a DATA folder as inputs of transformers' BertForPreTraining."""

from functools import partial
from typing import Any, cast

import datasets
import numpy as np
import torch
from torch import Tensor

from bertpt.config.data import IGNORE_INDEX
from bertpt.data.batches import collate
from bertpt.data.dataset import Dataset
from bertpt.data.example import Example
from bertpt.errors import InputError


def transformers_view(data: Dataset, split: str = "train") -> datasets.Dataset:
    """Return a split as a `datasets.Dataset` of inputs for transformers' BertForPreTraining.

    Nothing is copied: each row is computed when it is read. It has input_ids (masked),
    attention_mask, token_type_ids, labels (the original id at a predicted position, -100
    elsewhere), all (seq_len,), and next_sentence_label, (), as int64 tensors.

    Access it by row: there is no column `view["labels"]`. For transformers' Trainer set
    `remove_unused_columns=False`, because the rows are computed from the stored columns.

    Args:
        data: one or more DATA folders.
        split: "train" or "valid".

    Raises:
        InputError: the split is damaged.
    """
    make = partial(_rows, pad_id=data.tokenizer.pad_id, seq_len=data.settings.seq_len)
    return cast("datasets.Dataset", data.examples(split).stored.with_transform(make))


def _rows(columns: dict[str, list[Any]], *, pad_id: int, seq_len: int) -> dict[str, Tensor]:
    if missing := sorted(set(Example._fields) - columns.keys()):
        raise InputError(
            f"cannot compute the rows without the stored columns {', '.join(missing)}; for "
            "transformers' Trainer, set remove_unused_columns=False"
        )
    rows = zip(*(columns[name] for name in Example._fields), strict=True)
    examples = [
        Example(_ids(input_ids), b_start, label, _ids(positions), _ids(masked_input_ids))
        for input_ids, b_start, label, positions, masked_input_ids in rows
    ]
    batch = collate(examples, pad_id=pad_id, length=seq_len)
    labels = torch.full(batch.input_ids.shape, IGNORE_INDEX)
    labels.view(-1)[batch.masked_positions] = batch.masked_lm_labels
    return {
        "input_ids": batch.input_ids,
        "attention_mask": (torch.arange(seq_len) < batch.lengths.unsqueeze(-1)).long(),
        "token_type_ids": batch.token_type_ids,
        "labels": labels,
        "next_sentence_label": batch.next_sentence_labels,
    }


def _ids(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)
