"""Draw the MLM loss of a run as an SVG that is legible on light and dark pages.

bertpt eval-mlm RUN DATA --json > eval.json
python data/curve.py RUN eval.json > docs/curve.svg
"""

import json
import math
import sys
from pathlib import Path

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 40, 700, 36, 312  # of the plot area, in pixels
GREY, BLUE, ORANGE = "#7d8590", "#388bfd", "#db6d28"
Points = list[tuple[float, float]]  # step, loss


def read_losses(metrics: Path, split: str) -> Points:
    """Return the steps and MLM losses of one split."""
    entries = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    return [(entry["step"], entry["mlm_loss"]) for entry in entries if entry["split"] == split]


def tick_distance(last_step: float) -> int:
    """Return a round number that goes into `last_step` 5 to 10 times."""
    power = 10 ** math.floor(math.log10(last_step))
    return max(1, round(next(power / n for n in (1, 2, 5, 10) if last_step * n / power >= 5)))


def draw(train: Points, valid: Points, *, unigram: float) -> str:
    """Return the SVG of the losses, with that of guessing by token frequency."""
    last_step = max(step for step, _ in train + valid)
    low = math.floor(min(loss for _, loss in train + valid))
    high = math.ceil(max(loss for _, loss in train + valid))

    def place(step: float, loss: float) -> tuple[float, float]:
        down = (high - loss) / (high - low)
        return LEFT + (RIGHT - LEFT) * step / last_step, TOP + (BOTTOM - TOP) * down

    def line(points: Points, style: str) -> str:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        return f'<polyline fill="none" {style} points="{path}"/>'

    def text(x: float, y: float, words: object, style: str = "") -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{words}</text>'

    end, middle = 'text-anchor="end"', 'text-anchor="middle"'
    parts = [text(LEFT, 18, "MLM loss (nats per predicted token)")]
    for loss in range(low, high + 1):
        grid = line([(0, loss), (last_step, loss)], f'stroke="{GREY}" stroke-opacity="0.25"')
        parts += [grid, text(LEFT - 8, place(0, loss)[1] + 4, loss, end)]
    for step in range(0, int(last_step) + 1, tick_distance(last_step)):
        parts += [text(place(step, low)[0], BOTTOM + 20, f"{step:,}", middle)]
    dashes = f'stroke="{GREY}" stroke-dasharray="6 4"'
    label = f"token frequencies only: {unigram:.2f}"
    parts += [
        text((LEFT + RIGHT) / 2, HEIGHT - 8, "optimizer steps", middle),
        line([(0, unigram), (last_step, unigram)], dashes),
        text(RIGHT - 8, place(0, unigram)[1] - 8, label, end),
    ]
    curves = (("training", train, BLUE, 1.2), ("held out", valid, ORANGE, 2.5))
    for row, (name, points, colour, width) in enumerate(curves):
        bold = f'{end} style="fill:{colour};font-weight:bold"'
        parts += [
            line(points, f'stroke="{colour}" stroke-width="{width}"'),
            text(RIGHT - 8, TOP + 22 + 20 * row, f"{name}: {points[-1][1]:.2f}", bold),
        ]
    frame = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" fill="{GREY}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>\n{body}\n</svg>'


if __name__ == "__main__":
    metrics = Path(sys.argv[1], "metrics.jsonl")
    baselines = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))["baselines"]
    losses = {split: read_losses(metrics, split) for split in ("train", "valid")}
    print(draw(losses["train"], losses["valid"], unigram=baselines["unigram"]["mlm_loss"]))
