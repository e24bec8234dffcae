"""The training loop: evaluate, save, stop if done, take a step."""

import time
from signal import SIGINT
from typing import Any

from bertpt.data.loader import load_steps
from bertpt.signals import StopRequest
from bertpt.training import console
from bertpt.training.optimizer import set_learning_rate
from bertpt.training.run_folder import read_metrics
from bertpt.training.trainer import Trainer


def train(trainer: Trainer, until: int | None = None) -> dict[str, Any]:
    """Train to the end of the run, or save and stop after step `until`.

    Returns:
        The last entry of metrics.jsonl; if nothing was logged, step and split alone.

    Raises:
        BertptError: losses or weights are not finite.
    """
    config, budget = trainer.config, trainer.budget
    entry: dict[str, Any] = {}
    num_tokens, seconds = 0, 0.0  # since the last line of metrics
    if budget.used() >= 1 and trainer.resumed_at:
        return _finish_again(trainer)
    trainer.replica = trainer.ranks.replicate(trainer.model)
    with (
        StopRequest(trainer.ranks.sum) as signals,
        load_steps(trainer.training, budget.step, workers=config.loader_workers) as batches,
        console.training_bar(trainer.progress, budget) as bar,
    ):
        while True:
            # Evaluating and saving come first, so the end needs no second copy of them.
            done = budget.used() >= 1
            evaluates = done or _is_due(trainer, config.eval_every)
            started = time.monotonic()
            if evaluates and not signals.stop:
                entry = trainer.evaluate(signals) or entry
            # A bad step changed nothing, and saving it would remove an older checkpoint.
            saves = signals.take_save() or (
                _is_due(trainer, config.save_every) and not trainer.bad_steps.num_in_a_row
            )
            ends = done or budget.step == until
            if signals.stop:
                _log_stop(trainer, signals)
            trainer.save(checkpoint=bool(ends or saves or signals.stop))
            if signals.stop:
                _leave(trainer, signals)
            if ends:
                _finish(trainer)
                return entry or {"step": budget.step, "split": "train"}  # nothing was logged
            if evaluates or saves:
                budget.count_pause(time.monotonic() - started)

            # ------------------------------------------------------------------------ one step
            started = time.monotonic()
            set_learning_rate(trainer.optimizers, trainer.schedule(*budget.next_step()))
            examples = next(batches)
            result = trainer.take_step(examples)
            budget.count_step(time.monotonic() - started)
            # ---------------------------------------------------------------------------------

            num_tokens += sum(len(example.input_ids) for example in examples)
            seconds += time.monotonic() - started
            due = budget.step % config.log_every == 0 or budget.used() >= 1
            if due and result.is_finite:
                rate = trainer.ranks.sum([num_tokens])[0] / seconds
                entry = trainer.log_step(result, tokens_per_second=rate)
                num_tokens, seconds = 0, 0.0
            console.show(bar, budget, result, entry)


def _is_due(trainer: Trainer, every: int) -> bool:
    budget = trainer.budget
    return every > 0 < budget.step and budget.step % every == 0 and budget.has_time_for_pause()


def _finish_again(trainer: Trainer) -> dict[str, Any]:
    """Finish a run that was resumed after its last step; return the last metrics."""
    run, step = trainer.run, trainer.resumed_at
    trainer.progress.log(
        f"{trainer.config.length} was reached at step {step}; nothing is left to train"
    )
    entries = list(read_metrics(run.path)) if run else []
    entry = entries[-1] if entries else {"step": step, "split": "train"}
    entry = trainer.evaluate() or entry
    trainer.saved_step = None  # a kill may have come between the checkpoint and model/
    trainer.save(checkpoint=True)
    _finish(trainer)
    return entry


def _finish(trainer: Trainer) -> None:
    """Wait for the last save, and log which step was the best if it was not the last.

    Raises:
        BertptError: most steps were skipped.
    """
    run = trainer.run
    if run:
        run.wait()
        best = run.best
        if best is not None and best["step"] != trainer.budget.step:
            trainer.progress.log(
                f"step {best['step']} had the lowest held-out loss, {best['loss']:.3f}: "
                f"{run.path / 'best'}"
            )
    trainer.bad_steps.require_few(steps=trainer.budget.step)


def _log_stop(trainer: Trainer, signals: StopRequest) -> None:
    assert signals.stop is not None
    again = "; press Ctrl-C again to quit without saving" if signals.stop == SIGINT else ""
    trainer.progress.log(f"{signals.stop.name}: saving step {trainer.budget.step}{again}")


def _leave(trainer: Trainer, signals: StopRequest) -> None:
    """End the process, or the caller's run, as the signal would have done."""
    assert signals.stop is not None
    trainer.save(checkpoint=True)  # the signal may have come after the last save began
    trainer.finish_save()
    where = f" in {trainer.run.path}" if trainer.run else ""
    step = trainer.budget.step
    trainer.progress.log(
        f"{signals.stop.name}: step {step} is saved{where}; continue with `resume`"
    )
    signals.obey()
