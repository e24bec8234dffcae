"""Compare schedules: same steps, three seeds each.

python benchmarks/schedules.py DATA [STEPS [MODEL]]
"""

import statistics
import sys
import tempfile
from pathlib import Path

from bertpt.config import PretrainConfig
from bertpt.training.pretrain import pretrain

SEEDS = (0, 1, 2)
NAMES = ("linear", "cosine", "wsd")


def main() -> None:
    data = Path(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    model = sys.argv[3] if len(sys.argv) > 3 else "tiny"
    print(f"{model}, {steps} steps, held-out MLM loss")
    losses: dict[str, list[float]] = {name: [] for name in NAMES}
    for seed in SEEDS:
        for name, found in losses.items():
            config = PretrainConfig(
                model=model, schedule=name, seed=seed, steps=steps, eval_every=0, save_every=0
            )
            with tempfile.TemporaryDirectory() as folder:
                found.append(pretrain(data, Path(folder, "run"), config=config)["mlm_loss"])
            print(f"seed {seed}, {name:>8}  {found[-1]:.3f}", flush=True)
    for name, found in losses.items():
        print(f"mean {statistics.mean(found):.3f}  {name}")


if __name__ == "__main__":
    main()
