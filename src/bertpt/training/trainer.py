"""What a training run consists of: start or resume, take a step, evaluate, save."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from torch import nn

from bertpt.config import PretrainConfig
from bertpt.data.batches import TrainingExamples, in_order
from bertpt.data.dataset import Dataset
from bertpt.data.example import FILLER, Example
from bertpt.device import choose_precision
from bertpt.errors import BertptError, InputError
from bertpt.evaluation.mlm import evaluate
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import read_config
from bertpt.model.sharded import full_state, full_tensor
from bertpt.progress import Progress
from bertpt.rng import torch_seed
from bertpt.signals import StopRequest
from bertpt.training import console
from bertpt.training.checkpoint import Checkpoint, Snapshot, TrainerState
from bertpt.training.distributed import ALONE, Ranks
from bertpt.training.finite import BadSteps, require_finite_evaluation, require_finite_weights
from bertpt.training.model_card import model_card
from bertpt.training.optimizer import (
    describe_groups,
    learning_rates,
    make_optimizers,
    optimizer_state,
)
from bertpt.training.resume import describe_new_length, require_same_checkpoint
from bertpt.training.run_folder import RunFolder, read_record, read_settings
from bertpt.training.schedule import make_budget, make_schedule
from bertpt.training.setup import describe_start, initialize_weights, model_config
from bertpt.training.step import StepResult, accumulate_gradients


class Trainer:
    """A run: its model, optimizers and data, and how far it is.

    Args:
        data: what to train on.
        config: how; the recipe fills in what it leaves open.
        progress: where to report.
        run: where to save and log; `None` for ranks other than the first, or to keep nothing.
        checkpoint: to continue from, with `resume`.
        ranks: the processes that train together.

    Raises:
        BertptError: settings and data do not fit together.
    """

    def __init__(
        self,
        data: Dataset,
        config: PretrainConfig,
        progress: Progress,
        *,
        run: RunFolder | None = None,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.data, self.run, self.progress, self.ranks = data, run, progress, ranks
        self.config = config = config.resolve()
        self.checkpoint = checkpoint
        examples = data.examples("train")
        if not len(examples):
            raise InputError(f"{data.name} holds no training examples")
        self.valid = data.examples("valid")
        self.training = TrainingExamples(
            examples,
            batch_size=config.batch_size,
            seed=config.seed,
            masking=data.masking if config.masking == "fresh" else None,
            rank=ranks.rank,
            num_ranks=ranks.world_size,
        )
        self.device = ranks.device(config.device)
        self.precision = choose_precision(config.precision, self.device)
        shape = read_config(checkpoint.path) if checkpoint else model_config(config, data)
        self.model = ranks.prepare(BertForPreTraining(shape), self.device, self.precision)
        self.replica: nn.Module = self.model  # what a step calls
        self.optimizers = make_optimizers(self.model, config, self.precision)
        self.budget = make_budget(config, self.training.steps_per_epoch, ranks.broadcast)
        config.require_room(self.budget.num_steps)
        self.schedule = make_schedule(config, self.budget.num_steps)
        self.resumed_at = 0  # step
        self.saved_step: int | None = None  # the newest checkpoint's
        self.evaluated_step: int | None = None
        self.improved = False  # whether this step has the best evaluation, not saved yet
        self.bad_steps = BadSteps(config.skip_bad_batches)

    def start(self, *, overwrite: bool = False) -> None:
        """Initialise the weights, create the RUN folder, and log what is trained on what."""
        initialize_weights(self.model, self.config, self.data, self.progress)
        if self.run:
            self.run.create(self.config, self.data, overwrite=overwrite)
        self.progress.log(
            describe_start(
                self.model,
                self.training[0][: self.config.micro_batch_size] or [FILLER],
                self.data,
                where=self.ranks.describe(self.device),
                precision=self.precision,
                init_from=self.config.init_from,
            )
        )
        self.progress.log(describe_groups(self.optimizers))
        self.budget.start()

    def resume(self) -> None:
        """Continue from the checkpoint."""
        checkpoint = self.checkpoint
        assert checkpoint is not None
        checkpoint.load(self.model, self.optimizers)
        state = checkpoint.state
        self.resumed_at = self.saved_step = state.step
        self.bad_steps.num = state.num_skipped
        path = checkpoint.path.parents[1]
        started_with = read_settings(path)
        require_same_checkpoint(checkpoint, self.ranks)  # all have read the settings afterwards
        if self.run:
            self.run.resume(self.config, self.data, step=state.step)
        newest = self.run.newest if self.run else None
        self.evaluated_step = int(self.ranks.broadcast(newest["step"] if newest else -1))
        self.progress.log(f"resuming {path} after step {state.step}")
        self.budget.start(step=state.step, elapsed_seconds=state.elapsed_seconds)
        if self.config.length != started_with.length and self.budget.used() < 1:
            self.progress.log(
                describe_new_length(
                    started_with, self.config, state, steps_per_epoch=self.training.steps_per_epoch
                )
            )

    # ---------------------------------------------------------------------------------------- step

    def take_step(self, examples: list[Example]) -> StepResult:
        """Run forward and backward over the micro-batches, then update the weights once."""
        config, step = self.config, self.budget.step
        self.model.train()
        result = accumulate_gradients(
            self.replica,
            examples,
            micro_batch_size=config.micro_batch_size or len(examples),
            pad_id=self.data.tokenizer.pad_id,
            precision=self.precision,
            # Dropout, too, depends only on the seed, the step and the micro-batch.
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
        """Log a step that was skipped.

        Raises:
            BertptError: more than `skip_bad_batches` were.
        """
        step = self.budget.step
        rows = self.training.rows(step).tolist()
        entry = {"step": step + 1, "split": "train", **dataclasses.asdict(result)}
        self._log({**entry, "not_taken": console.not_finite(result), "rows": rows})
        with self._finishing_a_save():
            line = self.bad_steps.note_bad(
                console.bad_step(step + 1, result, rows), can_resume=self.saved_step is not None
            )
        self.progress.log(line)

    # -------------------------------------------------------------------------- evaluate, log, save

    def evaluate(self, signals: StopRequest | None = None) -> dict[str, Any] | None:
        """Evaluate on the held-out examples, and log the result.

        Returns:
            The entry of metrics.jsonl. `None` if there are no held-out examples, this step has been
            evaluated, or a signal to stop came first.
        """
        if not len(self.valid) or self.evaluated_step == self.budget.step:
            return None
        with self._finishing_a_save():
            require_finite_weights(self.model, step=self.budget.step, ranks=self.ranks)
        share = -(-self.config.batch_size // self.ranks.world_size)
        batches = in_order(
            self.valid,
            batch_size=min(share, self.config.micro_batch_size or share),
            pad_id=self.data.tokenizer.pad_id,
            at_most=self.config.eval_examples,
            rank=self.ranks.rank,
            num_ranks=self.ranks.world_size,
        )
        result = evaluate(
            self.model,
            takewhile(lambda _: not (signals and signals.stop), batches),
            mask_id=self.data.tokenizer.mask_id,
            num_characters=self.data.tokenizer.num_characters,
            precision=self.ranks.evaluation_precision(self.precision),
            add_up=self.ranks.sum,
        )
        if signals and signals.stop:
            return None
        entry = {"step": self.budget.step, "split": "valid", **result}
        self.improved = self.ranks.any(self._log(entry))  # as the first rank decides
        self.evaluated_step = self.budget.step
        self.progress.log(f"step {self.budget.step}: {console.evaluation(result)}")
        with self._finishing_a_save():
            require_finite_evaluation(result, step=self.budget.step)
        return entry

    def log_step(self, result: StepResult, *, tokens_per_second: float) -> dict[str, Any]:
        """Log the figures of the last step, and return the entry of metrics.jsonl."""
        entry = {
            "step": self.budget.step,
            "epoch": self.budget.step / self.training.steps_per_epoch,
            "split": "train",
            **dataclasses.asdict(result),
            **learning_rates(self.optimizers),
            "tokens_per_second": tokens_per_second,
            "elapsed_seconds": self.budget.elapsed_seconds,
        }
        self._log(entry)
        return entry

    def _log(self, entry: dict[str, Any]) -> bool:
        """Append a line to the metrics; return whether it is the best evaluation so far."""
        return self.run.log(entry) if self.run else False

    def save(self, *, checkpoint: bool) -> None:
        """Save what is due at this step: a checkpoint if asked for, and best/.

        All ranks gather the state; the first one writes it in the background.
        """
        step = self.budget.step
        checkpoint = checkpoint and self.saved_step != step
        if not checkpoint and not self.improved:
            return
        with self._finishing_a_save():
            require_finite_weights(self.model, step=step, ranks=self.ranks)
        if self.run:
            self.run.wait()  # before there are two copies in memory
        device = "cpu" if self.run else "meta"  # where copies of the gathered state go
        snapshot = Snapshot(
            state=TrainerState(step, self.budget.elapsed_seconds, self.bad_steps.num),
            weights=full_state(self.model, device=device),
            optimizer=optimizer_state(self.optimizers, self.model, device=device)
            if checkpoint
            else None,
            config=self.model.config,
            tokenizer=self.data.tokenizer,
            card=self._card(is_best=False),
            best_card=self._card(is_best=True) if self.improved else None,
        )
        if self.run:
            self.run.save(snapshot, keep_last=self.config.keep_last)
        self.improved = False
        if checkpoint:
            self.saved_step = step

    def _card(self, *, is_best: bool) -> str:
        if self.run is None:
            return ""
        return model_card(
            self.config,
            self.model.config,
            step=self.budget.step,
            manifest=self.data.manifest,
            record=read_record(self.run.path),
            evaluation=self.run.newest,
            is_best=is_best,
        )

    @contextmanager
    def _finishing_a_save(self) -> Iterator[None]:
        """Finish the save in progress before an error that all ranks have, or none."""
        try:
            yield
        except BertptError:
            self.finish_save()
            raise

    def finish_save(self) -> None:
        """Wait in all ranks: when one leaves, torchrun and srun kill one that still saves."""
        if self.run:
            self.run.wait()
        self.ranks.barrier()
