"""What a run prints: its progress bar, and lines about steps and evaluations."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertpt.progress import Progress
from bertpt.training.schedule import Budget
from bertpt.training.step import StepResult

ROWS_SHOWN = 8  # of a batch


def training_bar(progress: Progress, budget: Budget) -> Any:
    """Return a bar over the steps of a run, or over its seconds with `max_minutes`."""
    seconds = budget.max_seconds
    return progress.bar(
        "training",
        unit="s" if seconds else "step",
        total=round(seconds) if seconds else budget.num_steps,
        initial=round(budget.elapsed_seconds) if seconds else budget.step,
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        if seconds
        else None,
    )


def show(bar: Any, budget: Budget, result: StepResult, logged: Mapping[str, Any]) -> None:
    """Advance the bar, and show the figures of the last step on it.

    Args:
        bar: from `training_bar`.
        budget: of the run.
        result: of the last step.
        logged: the newest line of metrics.
    """
    rate = logged.get("tokens_per_second")
    bar.set_postfix_str(
        f"loss {result.loss:.3f}, MLM {result.mlm_accuracy:.1%}"
        + ("" if result.nsp_accuracy is None else f", NSP {result.nsp_accuracy:.0%}")
        + (f", {rate:,.0f} tokens/s" if rate else ""),
        refresh=False,
    )
    now = round(budget.elapsed_seconds) if budget.max_seconds else budget.step
    bar.update(min(now, bar.total) - bar.n)


def evaluation(result: Mapping[str, Any]) -> str:
    """Format the figures of an evaluation and the number of examples."""
    figures = [
        f"{name.upper()} loss {result[f'{name}_loss']:.3f}, "
        f"accuracy {result[f'{name}_accuracy']:.1%}"
        for name, count in (("mlm", "num_targets"), ("nsp", "num_pairs"))
        if result[count]
    ]
    found = "; ".join(figures) or "nothing to predict"
    return f"held out, {found} ({result['num_examples']:,} examples)"


def bad_step(step: int, result: StepResult, rows: Sequence[int]) -> str:
    """Format why a step (counted from 1) was skipped, and its rows of the data."""
    shown = ", ".join(map(str, rows[:ROWS_SHOWN])) + (", ..." if len(rows) > ROWS_SHOWN else "")
    return f"step {step}: {not_finite(result)}; the step was skipped (rows {shown} of train/)"


def not_finite(result: StepResult) -> str:
    """Format the loss and gradient norm of a step that are not finite."""
    return f"loss {result.loss:g}, gradient norm {result.grad_norm:g}"
