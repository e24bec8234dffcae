"""torch.optim.Muon beside bertpt's float32 variant: a step on the mini model's matrices.

python benchmarks/muon.py
"""

import torch
from _timing import medians

from bertpt.device import has_bfloat16
from bertpt.training.optimizer import Float32Muon

SHAPES = [(256, 256)] * 16 + [(1024, 256)] * 4 + [(256, 1024)] * 4


def step_of(kind: type[torch.optim.Optimizer]):
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return kind(parameters, lr=0.02).step


def main() -> None:
    jobs = {"torch.optim.Muon": step_of(torch.optim.Muon), "Float32Muon": step_of(Float32Muon)}
    found = medians(jobs, repeats=3)
    for name, seconds in found.items():
        print(f"{name:>17}  {1000 * seconds:8.0f} ms")
    ratio = found["torch.optim.Muon"] / found["Float32Muon"]
    native = "has" if has_bfloat16(torch.device("cpu")) else "lacks"
    print(f"Float32Muon is {ratio:.1f} times as fast on this processor, which {native} bfloat16")


if __name__ == "__main__":
    main()
