"""The pause that a save costs training: written at once, or beside training from a copy.

python benchmarks/saving.py [--model small base] [--repeats 5] [--device cpu] [--where FOLDER]
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from bertpt import files
from bertpt.build.build import build_data
from bertpt.config import MODEL_SIZES, BuildConfig, PretrainConfig, TokenizerConfig
from bertpt.data.dataset import Dataset
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import _checksum, save_tensors
from bertpt.model.sharded import full_state
from bertpt.training.checkpoint import TrainerState
from bertpt.training.optimizer import make_optimizers, optimizer_state
from bertpt.training.run_folder import RunFolder

VOCAB_SIZE = 30_522


def trained(size: str, device: str):
    """A model and its optimizers after a step, on gradients of ones."""
    config = PretrainConfig(model=size).resolve()
    shape = config.bert_config(vocab_size=VOCAB_SIZE, pad_token_id=0)
    model = BertForPreTraining(shape).to(device)
    optimizers = make_optimizers(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return config, model, optimizers


def tiny_data(folder: Path) -> Dataset:
    text = folder / "text.txt"
    text.write_text("A dog sees a cat.\nA cat sees a dog.\n\n" * 40)
    build_data(
        [str(text)],
        folder / "data",
        tokenizer_path=None,
        config=BuildConfig(sentence_per_line=True, seq_len=16),
        tokenizer_config=TokenizerConfig(vocab_size=40),
    )
    return Dataset(folder / "data")


def seconds(job) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def parts(model, optimizers, folder: Path) -> dict[str, float]:
    """What a save is made of; a file is written twice for weights (model/), once for the rest."""
    found: dict[str, float] = {}
    state: list[dict[str, torch.Tensor]] = []

    def copy() -> None:
        state.extend((full_state(model), optimizer_state(optimizers, model)))

    found["copying"] = seconds(copy)
    found["hashing"] = seconds(lambda: [_checksum(tensors) for tensors in state])
    paths = [folder / "a", folder / "b"]

    def write() -> None:
        fsync, os.fsync = os.fsync, lambda _: None
        for path, tensors in zip(paths, state, strict=True):
            save_tensors(path, tensors, checksum=False)
        os.fsync = fsync

    found["writing"] = seconds(write)
    found["fsync"] = seconds(lambda: [files._sync(path) for path in paths])  # noqa: SLF001
    for path in paths:
        path.unlink()
    return found


def measure(size: str, options, folder: Path, data: Dataset) -> None:
    config, model, optimizers = trained(size, options.device)
    tokens = torch.randint(6, VOCAB_SIZE, (8, 128), device=options.device)

    def train() -> None:
        """Some forward and backward passes, longer than a save."""
        for _ in range(options.passes):
            model.bert(tokens).last_hidden_state.sum().backward()
            model.zero_grad(set_to_none=True)

    with RunFolder(folder / size) as run:
        run.create(config, data, overwrite=False)
        steps = iter(range(1_000_000))

        def save() -> None:
            state = TrainerState(step=next(steps), elapsed_seconds=0.0)
            run.save(state, model, optimizers, data, keep_last=1)

        times: dict[str, list[float]] = {}
        for number in range(options.repeats + 1):
            alone = seconds(train)
            pause = seconds(save)
            beside = pause + seconds(train) + seconds(run.wait)
            at_once = seconds(save) + seconds(run.wait)
            one = {
                "pause of a save at once": at_once,
                "pause of a save beside training": pause,
                "what it costs training in all": beside - alone,
                **parts(model, optimizers, folder),
            }
            if number:  # the first warms up
                for name, value in one.items():
                    times.setdefault(name, []).append(value)
    number = sum(parameter.numel() for parameter in model.parameters())
    print(f"{size}, {number:,} parameters on {options.device}, medians of {options.repeats}")
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"  {name:<32} {1000 * value:8.0f} ms")
    ratio = medians["pause of a save beside training"] / medians["pause of a save at once"]
    print(f"  beside training, the pause is {ratio:.2f} of the one at once", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["small", "base"], choices=MODEL_SIZES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--passes", type=int, default=3, help="of 8 sequences of 128 tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--where", help="a folder on the disk to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.where) as folder:
        data = tiny_data(Path(folder))
        for size in options.model:
            measure(size, options, Path(folder), data)


if __name__ == "__main__":
    main()
