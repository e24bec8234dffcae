"""Compare the mimetic start with the published one: same steps, three seeds each.

python benchmarks/initialization.py DATA [STEPS [MODEL]]
"""

import statistics
import sys
import tempfile
from pathlib import Path

from bertpt.config import PretrainConfig
from bertpt.training.pretrain import pretrain

SEEDS = (0, 1, 2)


def main() -> None:
    data = Path(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    model = sys.argv[3] if len(sys.argv) > 3 else "mini"
    print(f"{model}, {steps} steps, held out")
    print(f"{'start':>9}  seed  MLM loss  MLM accuracy  NSP accuracy")
    losses: dict[str, list[float]] = {"mimetic": [], "published": []}
    for seed in SEEDS:
        for init, found in losses.items():
            config = PretrainConfig(
                model=model,
                init=init,
                seed=seed,
                steps=steps,
                eval_every=0,
                save_every=0,
                eval_examples=500,
            )
            with tempfile.TemporaryDirectory() as folder:
                result = pretrain(data, Path(folder, "run"), config=config)
            found.append(result["mlm_loss"])
            print(
                f"{init:>9}  {seed:>4}  {result['mlm_loss']:8.3f}  {result['mlm_accuracy']:12.1%}  "
                f"{result['nsp_accuracy']:12.1%}",
                flush=True,
            )
    means = {init: statistics.mean(found) for init, found in losses.items()}
    print(f"mean MLM loss {means['mimetic']:.3f} mimetic, {means['published']:.3f} published")


if __name__ == "__main__":
    main()
