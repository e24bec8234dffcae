"""Measure how long a save pauses training: written at once, or in the background from a copy.

python benchmarks/saving.py [--model small base] [--repeats 5] [--device cpu] [--where FOLDER]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bertpt.build.build import build_data
from bertpt.config import MODEL_SIZES, BuildConfig, PretrainConfig, TokenizerConfig
from bertpt.data.dataset import Dataset
from bertpt.model.bert import BertForPreTraining
from bertpt.model.sharded import full_state
from bertpt.training.checkpoint import Snapshot, TrainerState
from bertpt.training.optimizer import make_optimizers, optimizer_state
from bertpt.training.run_folder import RunFolder

VOCAB_SIZE = 30_522


def trained(
    size: str, device: str
) -> tuple[PretrainConfig, BertForPreTraining, list[torch.optim.Optimizer]]:
    """Create a model and its optimizers, and take a step with gradients of one."""
    config = PretrainConfig(model=size).resolve()
    shape = config.bert_config(vocab_size=VOCAB_SIZE, pad_token_id=0)
    model = BertForPreTraining(shape).to(device)
    optimizers = make_optimizers(model, config, torch.float32)
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


def seconds(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def measure(size: str, options: argparse.Namespace, folder: Path, data: Dataset) -> None:
    config, model, optimizers = trained(size, options.device)
    tokens = torch.randint(6, VOCAB_SIZE, (8, 128), device=options.device)

    def train() -> None:
        for _ in range(options.passes):
            model.bert(tokens).last_hidden_state.sum().backward()
            model.zero_grad(set_to_none=True)

    with RunFolder(folder / size) as run:
        run.create(config, data, overwrite=False)
        steps = iter(range(1_000_000))

        def save() -> None:
            snapshot = Snapshot(
                state=TrainerState(step=next(steps), elapsed_seconds=0.0),
                weights=full_state(model),
                optimizer=optimizer_state(optimizers, model),
                config=model.config,
                tokenizer=data.tokenizer,
                card="",
                best_card=None,
            )
            run.save(snapshot, keep_last=1)

        times: dict[str, list[float]] = {}
        for number in range(options.repeats + 1):
            alone = seconds(train)
            pause = seconds(save)
            in_background = pause + seconds(train) + seconds(run.wait)
            found = {
                "pause, written at once": seconds(save) + seconds(run.wait),
                "pause, in the background": pause,
                "total cost, in the background": in_background - alone,
            }
            if number:  # the first one warms up
                for name, value in found.items():
                    times.setdefault(name, []).append(value)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{size}, {num_parameters:,} parameters on {options.device}, medians of {options.repeats}"
    )
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"  {name:<30} {1000 * value:8.0f} ms")
    ratio = medians["pause, in the background"] / medians["pause, written at once"]
    print(f"  in the background, the pause is {ratio:.2f} of that of writing at once", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["small", "base"], choices=MODEL_SIZES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--passes", type=int, default=3, help="training passes during a save")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--where", help="folder on the disk to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.where) as folder:
        data = tiny_data(Path(folder))
        for size in options.model:
            measure(size, options, Path(folder), data)


if __name__ == "__main__":
    main()
