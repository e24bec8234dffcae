"""The pretrain stage: data folders in, a RUN folder out."""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from signal import SIGINT
from typing import Any

from torch import nn

from bertpt.config import PretrainConfig
from bertpt.data.batches import Batch, TrainingExamples, in_order
from bertpt.data.dataset import Dataset
from bertpt.data.example import FILLER, Example
from bertpt.data.loader import load
from bertpt.device import choose_precision
from bertpt.errors import BertptError, InputError
from bertpt.evaluation.mlm import evaluate
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import read_config
from bertpt.model.sharded import full_tensor
from bertpt.progress import Progress
from bertpt.rng import torch_seed
from bertpt.training import console
from bertpt.training.distributed import ALONE, Ranks
from bertpt.training.finite import BadSteps, require_finite_evaluation, require_finite_weights
from bertpt.training.optimizer import (
    describe_groups,
    learning_rates,
    make_optimizers,
    set_learning_rate,
)
from bertpt.training.run import ReadOnlyRun, RunFolder
from bertpt.training.schedule import make_budget, make_schedule
from bertpt.training.seal import TrainerState
from bertpt.training.setup import describe_start, first_shape, set_first_weights
from bertpt.training.signals import Signals
from bertpt.training.step import StepResult, accumulate_gradients


def pretrain(
    data_path: Path | Sequence[Path],
    out: Path,
    *,
    config: PretrainConfig,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Trains a BERT on MLM and NSP, from scratch or from the weights of another.

    Args:
        data_path: a DATA folder, or several, whose examples are trained on alike.
        out: the RUN folder to make, or to go on with.
        config: how to train; what it leaves open, its recipe decides.
        resume: go on from the newest checkpoint in `out`.
        overwrite: replace a RUN folder that stands at `out`.
        progress: where to tell how far it is.
        ranks: the processes that train together, as `bertpt.training.distributed.join` gives them;
            the first of them tells and writes for all.

    Returns:
        The last line of metrics.jsonl: step and losses, of held-out examples where there are some.
        Without a line, step and split alone.

    Raises:
        BertptError: settings, data and output do not fit together, or the loss is not finite.
    """
    progress = (progress or Progress()) if ranks.is_first else Progress()
    with (RunFolder if ranks.is_first else ReadOnlyRun)(out) as run:
        if resume:
            run.reopen(progress.log)
            ranks.barrier()  # for all to see the same checkpoints
        else:
            run.refuse_existing(overwrite=overwrite)
        data = Dataset(data_path, checked=run.checked_data())
        trainer = Trainer(data, run, config, progress, resume=resume, ranks=ranks)
        if resume:
            trainer.resume()
        else:
            trainer.start(overwrite=overwrite)
        return trainer.train()


class Trainer:
    """A run: its model, optimizers and data, and how far it is."""

    def __init__(
        self,
        data: Dataset,
        run: RunFolder,
        config: PretrainConfig,
        progress: Progress,
        *,
        resume: bool = False,
        ranks: Ranks = ALONE,
    ) -> None:
        self.data, self.run, self.progress, self.ranks = data, run, progress, ranks
        self.config = config = config.resolve()
        examples = data.examples("train")
        if not len(examples):
            raise InputError(f"{data.name} holds no training examples")
        self.valid = data.examples("valid")
        self.training = TrainingExamples(
            examples,
            batch_size=config.batch_size,
            seed=config.seed,
            masking=data.masking if config.masking == "fresh" else None,
            rank=ranks.number,
            num_ranks=ranks.count,
        )
        self.device = ranks.device(config.device)
        self.precision = choose_precision(config.precision, self.device)
        self.checkpoint = run.checkpoints.newest(progress.log) if resume else None
        shape = read_config(self.checkpoint.path) if self.checkpoint else first_shape(config, data)
        self.model = ranks.place(BertForPreTraining(shape), self.device, self.precision)
        self.replica: nn.Module = self.model  # what a step calls
        self.optimizers = make_optimizers(self.model, config, self.precision)
        self.budget = make_budget(config, self.training.steps_per_epoch, ranks.broadcast)
        config.require_room(self.budget.num_steps)
        self.schedule = make_schedule(config, self.budget.num_steps)
        self.begun_at = 0  # the step that this process began after
        self.saved_step: int | None = None  # the last one that has a checkpoint
        self.evaluated_step: int | None = None
        self.bad_steps = BadSteps(config.skip_bad_batches)

    def start(self, *, overwrite: bool) -> None:
        """Sets the first weights, makes the RUN folder, and tells what is trained, on what."""
        set_first_weights(self.model, self.config, self.progress)
        self.run.create(self.config, self.data, overwrite=overwrite)
        self.progress.log(
            describe_start(
                self.model,
                self.training[0][: self.config.micro_batch_size] or [FILLER],
                self.data,
                where=self.ranks.where(self.device),
                precision=self.precision,
                init_from=self.config.init_from,
            )
        )
        self.progress.log(describe_groups(self.optimizers))
        self.budget.start()

    def resume(self) -> None:
        """Goes on from the newest checkpoint."""
        self.run.record.require_same_data(self.data)
        assert self.checkpoint is not None
        state = self.checkpoint.load(self.model, self.optimizers)
        self.begun_at = self.saved_step = state.step
        self.bad_steps.num = state.num_skipped
        started_with = self.run.record.settings()
        self._require_same_checkpoint(state)  # after which all have read the settings
        self.run.go_on(self.config, self.data, step=state.step)
        self.ranks.barrier()  # for all to read the same of them
        for entry in self.run.metrics:
            if entry["split"] == "valid":
                self.evaluated_step = entry["step"]
        self.progress.log(f"resuming {self.run.path} after step {state.step}")
        self.budget.start(step=state.step, elapsed_seconds=state.elapsed_seconds)
        if self.config.length != started_with.length and self.budget.used() < 1:
            self._tell_new_length(started_with, state)

    def _require_same_checkpoint(self, state: TrainerState) -> None:
        first = int(self.ranks.broadcast(state.step))
        if self.ranks.any(state.step != first):
            raise InputError(
                f"not every process finds {self.run.path}'s checkpoint of step {first} whole; all "
                "must see one folder, and a network file system may be a minute behind"
            )

    def _tell_new_length(self, old: PretrainConfig, state: TrainerState) -> None:
        """Says what another length makes of the learning rate, which may be a jump."""
        budget = make_budget(old, self.training.steps_per_epoch)
        budget.start(step=state.step, elapsed_seconds=state.elapsed_seconds)
        would_be = make_schedule(old, budget.num_steps)(*budget.next_step())
        peak = self.config.learning_rate or 0.0
        self.progress.log(
            f"{self.config.length} instead of {old.length}: the next step's learning rate is "
            f"{peak * self.schedule(*self.budget.next_step()):.3g}, not {peak * would_be:.3g}"
        )

    # ------------------------------------------------------------------------------------ the run

    def train(self, until: int | None = None) -> dict[str, Any]:
        """Trains to the end, or saves and leaves after step `until`; returns the last metrics."""
        config, budget = self.config, self.budget
        entry: dict[str, Any] = {}
        num_tokens, seconds = 0, 0.0  # since the last line of metrics
        if budget.used() >= 1 and self.begun_at:
            return self._end_again()
        self.replica = self.ranks.replicate(self.model)
        with (
            Signals(self.ranks) as signals,
            load(self.training, budget.step, workers=config.loader_workers) as batches,
            console.training_bar(self.progress, budget) as bar,
        ):
            while True:
                # Evaluating and saving comes first, so the end needs no second copy of it.
                done = budget.used() >= 1
                evaluates = done or self._is_due(config.eval_every)
                started = time.monotonic()
                if evaluates and not signals.stop:
                    entry = self._evaluate(signals) or entry
                # A step that was not taken left nothing new, and older checkpoints would go.
                saves = signals.take_save() or (
                    self._is_due(config.save_every) and not self.bad_steps.num_in_a_row
                )
                ends = done or budget.step == until
                if ends or saves or signals.stop:
                    self._tell_stop(signals)
                    self._save()
                if evaluates:
                    self.run.save_best(self.model, self.data, step=budget.step)
                if signals.stop:
                    self._leave(signals)
                if ends:
                    self.run.wait()
                    self._tell_best()
                    return entry or {"step": budget.step, "split": "train"}  # none was logged
                if evaluates or saves:
                    budget.count_pause(time.monotonic() - started)

                # -------------------------------------------------------------------- one step
                started = time.monotonic()
                set_learning_rate(self.optimizers, self.schedule(*budget.next_step()))
                examples = next(batches)
                result = self._take_step(examples)
                budget.count_step(time.monotonic() - started)
                # -----------------------------------------------------------------------------

                num_tokens += sum(len(example.input_ids) for example in examples)
                seconds += time.monotonic() - started
                due = budget.step % config.log_every == 0 or budget.used() >= 1
                if due and result.is_finite:
                    entry = self._log(result, self.ranks.sum([num_tokens])[0] / seconds)
                    num_tokens, seconds = 0, 0.0
                console.show(bar, budget, result, entry)

    def _end_again(self) -> dict[str, Any]:
        """Of a run that was resumed when it was done; returns the last metrics."""
        self.progress.log(
            f"{self.begun_at} steps are done, and {self.config.length} asks for no more"
        )
        *_, entry = ({"step": self.begun_at, "split": "train"}, *self.run.metrics)
        entry = self._evaluate() or entry
        self.run.save_best(self.model, self.data, step=self.begun_at)
        self.run.save_newest(self.model, self.data, step=self.begun_at)
        self._tell_best()
        return entry

    def _tell_stop(self, signals: Signals) -> None:
        if signals.stop:
            again = "; Ctrl-C again leaves without it" if signals.stop == SIGINT else ""
            self.progress.log(f"{signals.stop.name}: saving step {self.budget.step}{again}")

    def _leave(self, signals: Signals) -> None:
        """Ends the process, or the run that it is in, as the signal would have done."""
        assert signals.stop is not None
        self._save()  # the signal may have come after the last look
        self._finish_save()
        self.progress.log(
            f"{signals.stop.name}: step {self.budget.step} is saved in {self.run.path}; go on with "
            "`resume`"
        )
        signals.obey()

    def _is_due(self, every: int) -> bool:
        step = self.budget.step
        return every > 0 < step and step % every == 0 and self.budget.has_time_for_pause()

    def _take_step(self, examples: list[Example]) -> StepResult:
        """Forward and backward over the micro-batches, then one update."""
        config, step = self.config, self.budget.step
        self.model.train()
        result = accumulate_gradients(
            self.replica,
            examples,
            micro_batch_size=config.micro_batch_size or len(examples),
            pad_id=self.data.tokenizer.pad_id,
            precision=self.precision,
            # Dropout, too, depends on nothing but the seed, the step and the micro-batch.
            dropout_seed=lambda micro_batch: torch_seed(config.seed, "dropout", step, micro_batch),
            ranks=self.ranks,
        )
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.max_grad_norm)
        result = dataclasses.replace(result, grad_norm=float(full_tensor(norm)))
        if result.is_finite:
            self.bad_steps.note_good()
        else:
            self._note_bad_step(result)
        for optimizer in self.optimizers:
            if result.is_finite:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return result

    def _note_bad_step(self, result: StepResult) -> None:
        """Logs a step that was not taken.

        Raises:
            BertptError: there were more than `skip_bad_batches`.
        """
        step = self.budget.step
        rows = self.training.rows(step).tolist()
        entry = {"step": step + 1, "split": "train", **dataclasses.asdict(result)}
        self.run.log({**entry, "not_taken": console.not_finite(result), "rows": rows})
        with self._finishing_a_save():
            line = self.bad_steps.note_bad(console.bad_step(step + 1, result, rows))
        self.progress.log(line)

    # ----------------------------------------------------------------------- evaluate, save, tell

    def _evaluate(self, signals: Signals | None = None) -> dict[str, Any] | None:
        """Evaluates on held-out examples, where there are some, and logs the result.

        None where there are none, or it was done at this step, or a signal to stop comes before
        its end.
        """
        if not len(self.valid) or self.evaluated_step == self.budget.step:
            return None
        with self._finishing_a_save():
            require_finite_weights(self.model, step=self.budget.step, ranks=self.ranks)
        batches: Iterable[Batch] = in_order(
            self.valid,
            batch_size=self._forward_size(),
            pad_id=self.data.tokenizer.pad_id,
            at_most=self.config.eval_examples,
            rank=self.ranks.number,
            num_ranks=self.ranks.count,
        )
        if signals is not None:
            batches = takewhile(lambda _: not signals.stop, batches)
        result = evaluate(
            self.model,
            batches,
            mask_id=self.data.tokenizer.mask_id,
            precision=self.ranks.evaluation_precision(self.precision),
            add_up=self.ranks.sum,
        )
        if signals is not None and signals.stop:
            return None
        entry = {"step": self.budget.step, "split": "valid", **result}
        self.run.log(entry)
        self.evaluated_step = self.budget.step
        self.progress.log(f"step {self.budget.step}: {console.evaluation(result)}")
        with self._finishing_a_save():
            require_finite_evaluation(result, step=self.budget.step)
        return entry

    def _forward_size(self) -> int:
        """Examples in the largest forward pass of a step."""
        share = -(-self.config.batch_size // self.ranks.count)
        return min(share, self.config.micro_batch_size or share)

    def _save(self) -> None:
        """Saves a checkpoint, unless this very step has one."""
        if self.saved_step == self.budget.step:
            return
        with self._finishing_a_save():
            require_finite_weights(self.model, step=self.budget.step, ranks=self.ranks)
        self.run.save(
            TrainerState(
                step=self.budget.step,
                elapsed_seconds=self.budget.elapsed_seconds,
                num_skipped=self.bad_steps.num,
            ),
            self.model,
            self.optimizers,
            self.data,
            keep_last=self.config.keep_last,
        )
        self.saved_step = self.budget.step

    @contextmanager
    def _finishing_a_save(self) -> Iterator[None]:
        """For what raises in all processes or in none."""
        try:
            yield
        except BertptError:
            self._finish_save()
            raise

    def _finish_save(self) -> None:
        """Waits in all processes: where one leaves, torchrun and srun end who still saves."""
        self.run.wait()
        self.ranks.barrier()

    def _tell_best(self) -> None:
        """Says so where an earlier step was better than the last one."""
        best = self.run.metrics.best
        if best is not None and best["step"] != self.budget.step:
            self.progress.log(
                f"step {best['step']} had the lowest held-out loss, {best['loss']:.3f}: "
                f"{self.run.path / 'best'}"
            )

    def _log(self, result: StepResult, tokens_per_second: float) -> dict[str, Any]:
        entry = {
            "step": self.budget.step,
            "epoch": self.budget.step / self.training.steps_per_epoch,
            "split": "train",
            **dataclasses.asdict(result),
            **learning_rates(self.optimizers),
            "tokens_per_second": tokens_per_second,
            "elapsed_seconds": self.budget.elapsed_seconds,
        }
        self.run.log(entry)
        return entry
