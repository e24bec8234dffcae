"""Compare torch.optim.Muon and bertpt's, in both precisions, on the mini model's matrices.

python benchmarks/muon.py
"""

from collections.abc import Callable

import torch
from _timing import medians

from bertpt.device import has_bfloat16
from bertpt.training.optimizer import Muon

SHAPES = [(256, 256)] * 16 + [(1024, 256)] * 4 + [(256, 1024)] * 4


def make_step(
    kind: Callable[..., torch.optim.Optimizer], **options: torch.dtype
) -> Callable[[], object]:
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return kind(parameters, lr=0.02, weight_decay=0.1, **options).step


def main() -> None:
    jobs = {
        "torch.optim.Muon": make_step(torch.optim.Muon),
        "Muon, bfloat16": make_step(Muon, precision=torch.bfloat16),
        "Muon, float32": make_step(Muon, precision=torch.float32),
    }
    found = medians(jobs, repeats=5)
    for name, seconds in found.items():
        print(f"{name:>17}  {1000 * seconds:8.0f} ms")
        print(f"{'':>17}  {found['torch.optim.Muon'] / seconds:8.1f} times as fast as torch's")
    native = "has" if has_bfloat16(torch.device("cpu")) else "lacks"
    print(f"this processor {native} bfloat16 instructions")


if __name__ == "__main__":
    main()
