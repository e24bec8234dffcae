"""Settings of pretrain, and the recipes that give their defaults."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from bertpt.config.fields import DEVICES, PRECISIONS, Settings, setting
from bertpt.config.model import MODEL_SIZES, POOLER_HELP, BertConfig
from bertpt.errors import SettingError

# Defaults by `recipe`. "fast" is for budgets of minutes to days; "published" is that of Devlin et
# al. (2019), appendix A.2, for a million steps.
RECIPES: dict[str, dict[str, Any]] = {
    "fast": {
        "init": "mimetic",
        "optimizer": "muon",
        "learning_rate": 1e-3,
        "muon_learning_rate": 0.02,
        "warmup": 0.05,
        "weight_decay": 0.01,
        "dropout": 0.0,
    },
    "published": {
        "init": "published",
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "muon_learning_rate": 0.02,
        "warmup": 0.01,
        "weight_decay": 0.01,
        "dropout": 0.1,
    },
}
# Lower rates with `init_from`, so that training does not destroy what the model has learned.
RATES_WITH_INIT_FROM = {"learning_rate": 1e-4, "muon_learning_rate": 2e-3}
DEFAULT_EPOCHS = 10
DEFAULT_DECAY = 0.2
DEFAULT_SHAPE = {"model": "mini", "max_position_embeddings": 512, "pooler": "cls"}
# Determined by the model of `init_from`.
SHAPE = (
    *("model", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "pooler", "init"),
)
SCHEDULES = ("linear", "cosine", "constant", "wsd", "google")
LENGTHS = ("steps", "epochs", "max_minutes")


def _by_recipe(name: str) -> str:
    return " (default: by recipe, " + ", ".join(f"{r} {v[name]:}" for r, v in RECIPES.items()) + ")"


def share_of_run(length: float, num_steps: int) -> float:
    """Return the fraction of a run, given as a fraction (below 1) or as steps (from 1)."""
    return length if length < 1 else length / num_steps


@dataclass(frozen=True)
class PretrainConfig(Settings):
    """Settings of pretrain. `resolve` replaces None by the recipe's value."""

    model: str | None = setting(
        None,
        "Size, in layers/width: "
        + ", ".join(f"{name} {layers}/{width}" for name, (layers, width) in MODEL_SIZES.items())
        + " (default: mini).",
        choices=tuple(MODEL_SIZES),
    )
    hidden_size: int | None = setting(None, "Width, instead of the size's.", at_least=1)
    num_hidden_layers: int | None = setting(None, "Layers, instead of the size's.", at_least=1)
    num_attention_heads: int | None = setting(
        None, "Attention heads per layer (default: width / 64).", at_least=1
    )
    intermediate_size: int | None = setting(
        None, "Feed-forward width (default: 4 x width).", at_least=1
    )
    max_position_embeddings: int | None = setting(
        None, "Longest sequence that the model can read, in tokens (default: 512).", at_least=1
    )
    pooler: str | None = setting(
        None, POOLER_HELP.removesuffix(".") + " (default: cls).", choices=("cls", "mean")
    )
    init_from: str | None = setting(
        None,
        "Start from the weights of this model: a run, a checkpoint, or a folder that transformers "
        "saved from a BERT. Its shape is kept; DATA must be built with its tokenizer.",
        metavar="MODEL",
    )
    extend_positions: bool = setting(
        default=False,
        help="Repeat the position embeddings of `init_from` if DATA has longer sequences.",
    )
    recipe: str = setting(
        "fast",
        "Defaults: fast (mimetic start, Muon, no dropout) or published (as in the paper).",
        choices=tuple(RECIPES),
    )
    init: str | None = setting(
        None, "Starting weights" + _by_recipe("init") + ".", choices=("mimetic", "published")
    )
    optimizer: str | None = setting(
        None,
        "adamw, or muon for the encoder's matrices with adamw for the rest"
        + _by_recipe("optimizer")
        + ".",
        choices=("muon", "adamw"),
    )
    learning_rate: float | None = setting(
        None,
        "Peak learning rate of AdamW"
        + _by_recipe("learning_rate").removesuffix(")")
        + "; with `init_from` 0.0001).",
        above=0,
    )
    muon_learning_rate: float | None = setting(
        None, "Peak learning rate of Muon (default: 0.02; with `init_from` 0.002).", above=0
    )
    warmup: float | None = setting(
        None,
        "Length of the warm-up: a fraction of the run if below 1, otherwise steps"
        + _by_recipe("warmup")
        + ".",
        at_least=0,
    )
    schedule: str = setting(
        "linear",
        "The learning rate after the warm-up: linear (to 0), cosine (to 0), constant, wsd "
        "(constant, then to 0 over `decay`, as 1 - sqrt), or google (as google-research/bert "
        "computes it, with a rate of 0 in the first step).",
        choices=SCHEDULES,
    )
    decay: float | None = setting(
        None,
        "Length of the final decay with `schedule` wsd: a fraction of the run if below 1, "
        f"otherwise steps (default: {DEFAULT_DECAY:g}).",
        at_least=0,
    )
    weight_decay: float | None = setting(
        None,
        "Weight decay of matrices and embeddings; biases and LayerNorm have none"
        + _by_recipe("weight_decay")
        + ".",
        at_least=0,
    )
    dropout: float | None = setting(
        None, "Dropout everywhere" + _by_recipe("dropout") + ".", at_least=0, below=1
    )
    max_grad_norm: float = setting(1.0, "Clip gradients to this norm.", above=0)
    steps: int | None = setting(None, "Stop after this many optimizer steps.", at_least=1)
    epochs: int | None = setting(
        None,
        f"Stop after this many passes over the data (default: {DEFAULT_EPOCHS}, unless `steps` "
        "or `max_minutes` is given).",
        at_least=1,
    )
    max_minutes: float | None = setting(
        None,
        "Train for this many minutes, including evaluations and saves; the schedule follows the "
        "clock. The current step, a last evaluation and a save come on top.",
        above=0,
    )
    batch_size: int = setting(32, "Examples per optimizer step, over all processes.", at_least=1)
    micro_batch_size: int | None = setting(
        None,
        "Examples per forward pass of a process. A smaller number needs less memory and, without "
        "dropout, gives the same result (default: the process's share of the batch).",
        at_least=1,
    )
    sharding: str = setting(
        "none",
        "Whether to shard weights, gradients and optimizer state over the processes (full), for "
        "models that do not fit into one, or to give each process a copy (none).",
        choices=("none", "full"),
    )
    distributed_timeout_minutes: float = setting(
        10.0, "Minutes that processes wait for each other before they give up.", above=0
    )
    masking: str = setting(
        "fresh", "New masks each epoch, or those stored in DATA.", choices=("fresh", "stored")
    )
    eval_every: int = setting(
        500, "Evaluate on valid/ every N steps, and at the end (0: at the end only).", at_least=0
    )
    eval_examples: int = setting(1000, "Held-out examples per evaluation (0: all).", at_least=0)
    save_every: int = setting(
        1000, "Save a checkpoint every N steps, and at the end (0: at the end only).", at_least=0
    )
    skip_bad_batches: int = setting(
        0,
        "Skip and log up to this many steps whose loss or gradient is not finite, then stop with "
        "an error.",
        at_least=0,
    )
    loader_workers: int = setting(
        0, "Processes that load examples; does not change the results.", at_least=0
    )
    keep_last: int = setting(2, "Number of checkpoints to keep, the newest (0: all).", at_least=0)
    log_every: int = setting(10, "Write to metrics.jsonl every N steps.", at_least=1)
    seed: int = setting(0, "Seed of all random draws.", at_least=0)
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
    precision: str = setting(
        "auto",
        "Number format of matrix products and of Muon; auto is bfloat16 if the hardware supports "
        "it, unless the environment variable BERTPT_PRECISION is set. Evaluation uses float32.",
        choices=PRECISIONS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(lengths) > 1:
            raise SettingError(lengths[0], f"and `{lengths[1]}` exclude each other")
        if not self.init_from and self.init_from is not None:
            raise SettingError("init_from", "'' is not a model folder")
        for name in SHAPE if self.init_from else ():
            if getattr(self, name) is not None:
                raise SettingError(
                    name, f"and `init_from` exclude each other: it is that of {self.init_from}"
                )
        if self.extend_positions and not self.init_from:
            raise SettingError("extend_positions", "requires `init_from`")
        if self.micro_batch_size and self.micro_batch_size > self.batch_size:
            raise SettingError(
                "micro_batch_size",
                f"{self.micro_batch_size} exceeds `batch_size` {self.batch_size}",
            )
        if self.decay is not None and self.schedule != "wsd":
            raise SettingError("decay", f"{self.decay:g} requires `schedule` wsd")
        if self.max_minutes and self.schedule == "google":
            raise SettingError(
                "schedule",
                "google needs a number of steps; use `steps` or `epochs` instead of `max_minutes`",
            )
        self.require_room(self.steps)

    @property
    def length(self) -> str:
        """The setting that determines the length of the run, and its value, for messages."""
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        name, value = (given[0], getattr(self, given[0])) if given else ("epochs", DEFAULT_EPOCHS)
        return f"`{name}` {value}".removesuffix(".0")

    def require_room(self, num_steps: int | None) -> None:
        """Check that warm-up and decay fit into the run.

        Raises:
            SettingError: they do not; the message names them and the length.
        """
        parts = {name: getattr(self, name) or 0.0 for name in ("warmup", "decay")}
        length = self.length + (f" ({num_steps} steps)" if num_steps and not self.steps else "")
        for name, value in parts.items():
            if self.max_minutes and value >= 1:
                raise SettingError(
                    name, f"{value:g} is a number of steps; with `max_minutes`, give a fraction"
                )
            if num_steps and value > max(1, num_steps):
                raise SettingError(name, f"{value:g} exceeds {length}")
        if not num_steps and max(parts.values()) >= 1:
            return
        if sum(share_of_run(value, num_steps or 1) for value in parts.values()) > 1 + 1e-9:
            raise SettingError(
                "decay", f"{self.decay:g} and `warmup` {self.warmup:g} together exceed {length}"
            )

    def resolve(self) -> "PretrainConfig":
        """Return these settings with the recipe's value in place of each None."""
        defaults = {**RECIPES[self.recipe], **DEFAULT_SHAPE, "micro_batch_size": self.batch_size}
        if self.init_from:
            defaults = {name: value for name, value in defaults.items() if name not in SHAPE}
            defaults.update(RATES_WITH_INIT_FROM)
        if self.steps is None and self.max_minutes is None and self.epochs is None:
            defaults["epochs"] = DEFAULT_EPOCHS
        if self.schedule == "wsd":
            defaults["decay"] = DEFAULT_DECAY
        open_ones = {k: value for k, value in defaults.items() if getattr(self, k) is None}
        return dataclasses.replace(self, **open_ones)

    def bert_config(
        self, *, vocab_size: int, pad_token_id: int, objective: str = "nsp"
    ) -> BertConfig:
        """The new model that these settings ask for, on a vocabulary; not with `init_from`."""
        asked = self.resolve()
        assert asked.model is not None
        assert asked.max_position_embeddings is not None
        assert asked.dropout is not None
        assert asked.pooler is not None
        layers, width = MODEL_SIZES[asked.model]
        hidden_size = asked.hidden_size or width
        return BertConfig(
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            objective=objective,
            hidden_size=hidden_size,
            num_hidden_layers=asked.num_hidden_layers or layers,
            num_attention_heads=asked.num_attention_heads or max(1, hidden_size // 64),
            intermediate_size=asked.intermediate_size or 4 * hidden_size,
            max_position_embeddings=asked.max_position_embeddings,
            hidden_dropout_prob=asked.dropout,
            attention_probs_dropout_prob=asked.dropout,
            pooler=asked.pooler,
        )
