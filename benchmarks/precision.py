"""Compare float32 and bfloat16: forward and backward of the mini model on a batch of 32 x 128.

python benchmarks/precision.py
"""

import torch
from _timing import medians

from bertpt.config import PretrainConfig
from bertpt.device import autocast, has_bfloat16
from bertpt.model.bert import BertForPreTraining
from bertpt.model.losses import loss_sums, pretraining_loss

CPU = torch.device("cpu")


def main() -> None:
    torch.manual_seed(0)
    config = PretrainConfig(model="mini").bert_config(vocab_size=8192, pad_token_id=0)
    model = BertForPreTraining(config)
    ids = torch.randint(5, 8192, (32, 128))
    segments = torch.zeros_like(ids)
    lengths = torch.full((32,), 128)
    places = torch.randperm(ids.numel())[:608]
    labels, pairs = ids.flatten()[places], torch.randint(0, 2, (32,))

    def step(precision: torch.dtype) -> None:
        with autocast(CPU, precision):
            output = model(ids, segments, lengths, places)
        sums = loss_sums(output, labels, pairs)
        pretraining_loss(sums, num_targets=608, num_pairs=32).backward()  # type: ignore[no-untyped-call]

    jobs = {
        "float32": lambda: step(torch.float32),
        "bfloat16": lambda: step(torch.bfloat16),
    }
    found = medians(jobs, repeats=3)
    for name, seconds in found.items():
        print(f"{name:>8}  {1000 * seconds:7.0f} ms  {4096 / seconds:7.0f} tokens/s")
    native = "has" if has_bfloat16(CPU) else "lacks"
    ratio = found["float32"] / found["bfloat16"]
    print(f"bfloat16 runs at {ratio:.2f} of float32's speed on this processor, which {native} it")


if __name__ == "__main__":
    main()
