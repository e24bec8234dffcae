"""Compare encoding lines with bertpt and with transformers: same weights, batches of 32.

transformers encodes the lines in order, as in a plain loop; bertpt sorts them by length.

python benchmarks/encode.py RUN LINES.txt
"""

import sys
from pathlib import Path

import torch
from _timing import medians
from transformers import AutoModel, AutoTokenizer

from bertpt.config import EncodeConfig
from bertpt.evaluation.encode import TextEncoder

BATCH_SIZE = 32


def main() -> None:
    folder = str(Path(sys.argv[1]) / "model")
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    encoder = TextEncoder(Path(folder), EncodeConfig(batch_size=BATCH_SIZE))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)

    @torch.no_grad()
    def loop() -> torch.Tensor:
        means = []
        for start in range(0, len(lines), BATCH_SIZE):
            batch = tokenizer(
                lines[start : start + BATCH_SIZE],
                truncation=True,
                max_length=encoder.max_tokens,
                padding=True,
                return_tensors="pt",
            )
            mask = batch["attention_mask"].unsqueeze(-1)
            hidden = model(**batch).last_hidden_state
            means.append((hidden * mask).sum(dim=1) / mask.sum(dim=1))
        return torch.cat(means)

    def ours() -> torch.Tensor:
        return torch.stack([torch.from_numpy(one.vectors) for one in encoder.encode(lines)])

    torch.testing.assert_close(ours(), loop(), atol=1e-4, rtol=1e-4)
    found = medians({"bertpt": ours, "transformers": loop}, repeats=3)
    for name, seconds in found.items():
        print(f"{name:>12}  {seconds:6.1f} s  {len(lines) / seconds:6.0f} lines/s")
    print(f"bertpt is {found['transformers'] / found['bertpt']:.2f} times as fast")


if __name__ == "__main__":
    main()
