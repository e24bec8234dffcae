"""Every setting of bertpt, once: its name, default, range and one line of help.

The command line makes its options from these dataclasses, the folders on disk record them, and
library users pass them. Nothing here needs torch.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from bertpt.errors import SettingError
from bertpt.settings import Settings, setting

# ------------------------------------------------------------------------------- text to examples

OBJECTIVES = ("nsp", "sop", "mlm")
SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


def parse_shard(shard: str | None) -> tuple[int, int]:
    """Which part of a corpus, counted from 1, and of how many; `None` is all of it, (1, 1).

    Raises:
        SettingError: it is not I/N with 1 <= I <= N.
    """
    if shard is None:
        return 1, 1
    form = SHARD.fullmatch(shard)
    part, num_parts = map(int, form.groups()) if form else (0, 0)
    if not num_parts:
        raise SettingError("shard", f"{shard!r} is not I/N, such as 3/16 (is a variable unset?)")
    if not 1 <= part <= num_parts:
        raise SettingError(
            "shard", f"{shard} must be one of 1/{num_parts} to {num_parts}/{num_parts}"
        )
    return part, num_parts


@dataclass(frozen=True)
class TokenizerConfig(Settings):
    """How a WordPiece vocabulary is learned."""

    vocab_size: int = setting(
        30_522, "Entries of a learned vocabulary, special tokens included.", at_least=6
    )
    lowercase: bool = setting(default=True, help="Lower-case the text.")
    strip_accents: bool | None = setting(
        None,
        "Strip accents: é becomes e; wrong for Hindi, Thai or Korean (default: as --lowercase).",
    )
    min_frequency: int = setting(
        2, "Merge no characters into a word piece that is seen less often than this.", at_least=1
    )
    limit_alphabet: int | None = setting(
        None,
        "Keep only this many characters, the commonest ones; the others become [UNK]. "
        "By default a quarter of the vocabulary, and 1000 at least.",
        at_least=1,
    )

    @property
    def strips_accents(self) -> bool:
        """Whether accents are stripped, the default being resolved."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


@dataclass(frozen=True)
class BuildConfig(Settings):
    """How text becomes examples."""

    language: str = setting(
        "en", "Language that sentences are split by: an ISO 639-1 code such as en, de or zh."
    )
    sentence_per_line: bool = setting(
        default=False, help="Take each line as one sentence instead of splitting it."
    )
    text_field: str = setting("text", "Field of a JSONL or Parquet row that holds its text.")
    strict: bool = setting(
        default=False,
        help="Refuse text that is not clean (invalid UTF-8, NUL, lone surrogates) instead of "
        "mending and counting it.",
    )
    seq_len: int = setting(
        128, "Tokens in an example, [CLS] and both [SEP] included.", at_least=5, at_most=65_535
    )
    short_seq_prob: float = setting(
        0.1, "Share of the pairs drawn shorter on purpose, as in BERT.", at_least=0, at_most=1
    )
    masked_lm_prob: float = setting(
        0.15, "Share of an example's tokens to predict.", above=0, at_most=1
    )
    max_predictions_per_seq: int | None = setting(
        None, "Cap on the tokens to predict in an example (default: none binds).", at_least=1
    )
    whole_word: bool = setting(default=False, help="Predict all pieces of a word or none of them.")
    span: bool = setting(
        default=False,
        help="Predict runs of words, of geometrically distributed length, as in SpanBERT.",
    )
    objective: str = setting(
        "nsp",
        "What goes with MLM: nsp (does B follow A, or is it random), sop (sentence order: A and B "
        "stand as they were or swapped, as in ALBERT), or mlm (nothing: one segment, as long as "
        "it may be).",
        choices=OBJECTIVES,
    )
    pairing: str = setting(
        "balanced",
        "How B is drawn: balanced (even labels that lengths do not give away) or google "
        "(google-research/bert's algorithm and masks, draw for draw).",
        choices=("balanced", "google"),
    )
    dupe_factor: int = setting(
        1, "Passes over the text, each with other pairs and masks.", at_least=1
    )
    valid_fraction: float = setting(
        0.05, "Share of the documents held out for valid/.", at_least=0, below=1
    )
    shard: str | None = setting(
        None,
        "Build part I of N: of the files that INPUT stands for every N-th, from the I-th on; or, "
        "where they are fewer than N, every N-th document. Needs --tokenizer.",
        metavar="I/N",
    )
    seed: int = setting(0, "Seed of every random draw.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_shard(self.shard)
        if self.span and self.pairing == "google":
            raise SettingError("span", "and --pairing google exclude each other: Google has none")
        if self.objective != "nsp" and self.pairing == "google":
            raise SettingError(
                "objective", f"{self.objective} and --pairing google exclude each other"
            )

    def of_part(self, what: str) -> str:
        """The name of a random draw: each part of a corpus has draws of its own."""
        part, num_parts = parse_shard(self.shard)
        return what if num_parts == 1 else f"{what} of part {part}/{num_parts}"


# -------------------------------------------------------------------------------------- the model

# layers, hidden size; a head is 64 wide and the feed-forward layer 4 times the hidden size
MODEL_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


POOLER_HELP = "What NSP sees: the [CLS] vector, or the mean of all (transformers knows cls only)."


@dataclass(frozen=True)
class BertConfig(Settings):
    """The shape of a BERT, in the words of Hugging Face's config.json."""

    vocab_size: int = setting(30_522, "Rows of the word embedding.", at_least=1)
    hidden_size: int = setting(768, "Width of the encoder.", at_least=1)
    num_hidden_layers: int = setting(12, "Layers of the encoder.", at_least=1)
    num_attention_heads: int = setting(12, "Attention heads of a layer.", at_least=1)
    intermediate_size: int = setting(3072, "Width of a feed-forward layer.", at_least=1)
    hidden_act: str = setting(
        "gelu",
        "Activation of the feed-forward layers and the MLM head.",
        choices=("gelu", "relu", "gelu_new", "gelu_pytorch_tanh"),
    )
    hidden_dropout_prob: float = setting(
        0.1, "Dropout on embeddings and layer outputs.", at_least=0, below=1
    )
    attention_probs_dropout_prob: float = setting(
        0.1, "Dropout on attention weights.", at_least=0, below=1
    )
    max_position_embeddings: int = setting(512, "Longest sequence, in tokens.", at_least=1)
    type_vocab_size: int = setting(2, "Segment kinds.", at_least=1)
    layer_norm_eps: float = setting(1e-12, "Added to the variance in LayerNorm.", above=0)
    initializer_range: float = setting(0.02, "Standard deviation of fresh weights.", above=0)
    pad_token_id: int = setting(0, "Id of [PAD].", at_least=0)
    objective: str = setting(
        "nsp",
        "What the head on the pooler was trained for; with mlm, nothing.",
        choices=OBJECTIVES,
    )
    pooler: str = setting(
        "cls",
        POOLER_HELP,
        choices=("cls", "mean"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            raise SettingError(
                "num_attention_heads",
                f"{self.num_attention_heads} does not divide --hidden-size {self.hidden_size}; "
                "choose a divisor, for example hidden size / 64",
            )


# ----------------------------------------------------------------------------------- pretraining

# What --recipe stands for; any of these can be given on its own as well. "fast" is for budgets of
# minutes to days; "published" is Devlin et al. (2019), appendix A.2, made for a million steps.
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
# Rates that weights which have learned something already survive, whatever the recipe.
RATES_WITH_INIT_FROM = {"learning_rate": 1e-4, "muon_learning_rate": 2e-3}
DEFAULT_EPOCHS = 10
DEFAULT_DECAY = 0.2
DEFAULT_SHAPE = {"model": "mini", "max_position_embeddings": 512, "pooler": "cls"}
# What the model of --init-from decides.
SHAPE = (
    *("model", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "pooler", "init"),
)
SCHEDULES = ("linear", "cosine", "constant", "wsd", "google")
LENGTHS = ("steps", "epochs", "max_minutes")
DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "float32", "bfloat16")
SPLITS = ("train", "valid")


def _by_recipe(name: str) -> str:
    return " (default: by recipe, " + ", ".join(f"{r} {v[name]:}" for r, v in RECIPES.items()) + ")"


def share_of_run(length: float, num_steps: int) -> float:
    """A share of a run that is given as such (below 1) or as a number of its steps (from 1 on)."""
    return length if length < 1 else length / num_steps


@dataclass(frozen=True)
class PretrainConfig(Settings):
    """How a model is trained. Where a field is None, `resolve` fills in the recipe's value."""

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
        None, "Heads a layer (default: width / 64).", at_least=1
    )
    intermediate_size: int | None = setting(
        None, "Feed-forward width (default: 4 x width).", at_least=1
    )
    max_position_embeddings: int | None = setting(
        None, "Longest sequence that the model can read, in tokens (default: 512).", at_least=1
    )
    pooler: str | None = setting(
        None,
        POOLER_HELP.removesuffix(".") + " (default: cls).",
        choices=("cls", "mean"),
    )
    init_from: str | None = setting(
        None,
        "Go on from the weights of this model instead: a run, a checkpoint, or a folder that "
        "transformers saved from a BERT. It decides the shape; DATA must be built with its "
        "tokenizer.",
        metavar="MODEL",
    )
    extend_positions: bool = setting(
        default=False,
        help="Where DATA's sequences are longer than the model of --init-from reads, repeat its "
        "position embeddings.",
    )
    recipe: str = setting(
        "fast",
        "Set of defaults: fast (mimetic start, Muon, no dropout) or published (as in the paper).",
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
        + "; with --init-from 0.0001).",
        above=0,
    )
    muon_learning_rate: float | None = setting(
        None, "Peak learning rate of Muon (default: 0.02; with --init-from 0.002).", above=0
    )
    warmup: float | None = setting(
        None,
        "Warm-up: below 1 a share of the run, from 1 on a number of steps"
        + _by_recipe("warmup")
        + ".",
        at_least=0,
    )
    schedule: str = setting(
        "linear",
        "The learning rate after the warm-up: linear (falls to 0), cosine (half a cosine down to "
        "0), constant (the peak), wsd (warm-up, stable, decay: the peak, then down to 0 over "
        "--decay, by 1 - sqrt), or google (google-research/bert's with its faults: rate 0 in the "
        "first step, and a drop where the warm-up ends, for it falls from the first step on).",
        choices=SCHEDULES,
    )
    decay: float | None = setting(
        None,
        "Decay of --schedule wsd, at the end: below 1 a share of the run, from 1 on a number of "
        f"steps (default: {DEFAULT_DECAY:g}).",
        at_least=0,
    )
    weight_decay: float | None = setting(
        None,
        "Decay of matrices and embeddings, never of biases and LayerNorm"
        + _by_recipe("weight_decay")
        + ".",
        at_least=0,
    )
    dropout: float | None = setting(
        None, "Dropout everywhere" + _by_recipe("dropout") + ".", at_least=0, below=1
    )
    max_grad_norm: float = setting(1.0, "Gradients are clipped to this norm.", above=0)
    steps: int | None = setting(
        None,
        "Stop after this many optimizer steps (for more of them on --resume, see there).",
        at_least=1,
    )
    epochs: int | None = setting(
        None,
        f"Stop after this many passes over the data (default: {DEFAULT_EPOCHS}, where neither "
        "--steps nor --max-minutes is given).",
        at_least=1,
    )
    max_minutes: float | None = setting(
        None,
        "Train for this many minutes, pauses to evaluate and save included; the schedule runs on "
        "the clock. The step under way, a last evaluation and a save follow.",
        above=0,
    )
    batch_size: int = setting(
        32, "Examples in an optimizer step, over all processes together.", at_least=1
    )
    micro_batch_size: int | None = setting(
        None,
        "Examples in one forward pass of a process; smaller needs less memory and, dropout apart, "
        "gives the same result (default: all that it has of the batch).",
        at_least=1,
    )
    sharding: str = setting(
        "none",
        "What processes that train together hold: the whole model each (none), or a part of its "
        "weights, gradients and optimizer state (full), for models that do not fit.",
        choices=("none", "full"),
    )
    distributed_timeout_minutes: float = setting(
        10.0, "How long processes that train together wait for one another.", above=0
    )
    masking: str = setting(
        "fresh",
        "fresh masks each epoch, or the ones stored in DATA.",
        choices=("fresh", "stored"),
    )
    eval_every: int = setting(
        500, "Evaluate on valid/ every N steps, and at the end (0: at the end only).", at_least=0
    )
    eval_examples: int = setting(
        1000, "Held-out examples in such an evaluation (0: all of them).", at_least=0
    )
    save_every: int = setting(
        1000, "Save a checkpoint every N steps, and at the end (0: at the end only).", at_least=0
    )
    skip_bad_batches: int = setting(
        0,
        "Steps whose loss or gradient is not finite that may be left out, and logged, before the "
        "run ends.",
        at_least=0,
    )
    loader_workers: int = setting(
        0, "Processes that prepare examples beside training; changes no result.", at_least=0
    )
    keep_last: int = setting(2, "Checkpoints to keep, the newest by number (0: all).", at_least=0)
    log_every: int = setting(10, "Write to metrics.jsonl every N steps.", at_least=1)
    seed: int = setting(0, "Seed of every random draw.", at_least=0)
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
    precision: str = setting(
        "auto",
        "Number format of matrix products; auto is bfloat16 where the hardware has it.",
        choices=PRECISIONS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(lengths) > 1:
            raise SettingError(
                lengths[0], f"and --{lengths[1].replace('_', '-')} exclude each other"
            )
        if not self.init_from and self.init_from is not None:
            raise SettingError("init_from", "'' is no model; give its folder")
        for name in SHAPE if self.init_from else ():
            if getattr(self, name) is not None:
                raise SettingError(
                    name, f"and --init-from exclude each other: {self.init_from} decides it"
                )
        if self.extend_positions and not self.init_from:
            raise SettingError("extend_positions", "is for a model given by --init-from")
        if self.micro_batch_size and self.micro_batch_size > self.batch_size:
            raise SettingError(
                "micro_batch_size",
                f"{self.micro_batch_size} exceeds --batch-size {self.batch_size}",
            )
        if self.decay is not None and self.schedule != "wsd":
            raise SettingError("decay", f"{self.decay:g} is for --schedule wsd")
        if self.max_minutes and self.schedule == "google":
            raise SettingError(
                "schedule",
                "google counts steps, and --max-minutes does not; give --steps or --epochs",
            )
        self.require_room(self.steps)

    @property
    def length(self) -> str:
        """How long the run is, as on the command line."""
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        name, value = (given[0], getattr(self, given[0])) if given else ("epochs", DEFAULT_EPOCHS)
        return f"--{name.replace('_', '-')} {value}".removesuffix(".0")

    def require_room(self, num_steps: int | None) -> None:
        """Checks that warm-up and decay fit into a run of so many steps, if that is known.

        Raises:
            SettingError: they do not; the message names them and the length.
        """
        parts = {name: getattr(self, name) or 0.0 for name in ("warmup", "decay")}
        length = self.length + (f" ({num_steps} steps)" if num_steps and not self.steps else "")
        for name, value in parts.items():
            if self.max_minutes and value >= 1:
                raise SettingError(
                    name, f"{value:g} counts steps, and --max-minutes does not; give a share"
                )
            if num_steps and value > max(1, num_steps):
                raise SettingError(name, f"{value:g} exceeds {length}")
        if not num_steps and max(parts.values()) >= 1:
            return
        if sum(share_of_run(value, num_steps or 1) for value in parts.values()) > 1 + 1e-9:
            raise SettingError(
                "decay",
                f"{self.decay:g} and --warmup {self.warmup:g} together exceed {length}",
            )

    def resolve(self) -> "PretrainConfig":
        """The same settings with every None that a recipe or default decides filled in."""
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


# --------------------------------------------------------------------- looking at data and models


@dataclass(frozen=True)
class InspectConfig(Settings):
    """What to show of a data folder."""

    split: str = setting("train", "Which examples.", choices=SPLITS)
    examples: int = setting(3, "Examples to show, evenly spaced.", at_least=0)


@dataclass(frozen=True)
class EvalConfig(Settings):
    """How a model is evaluated."""

    split: str = setting("valid", "Which examples.", choices=SPLITS)
    batch_size: int = setting(32, "Examples in one forward pass; changes no result.", at_least=1)
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
    precision: str = setting(
        "float32",
        "Number format of matrix products; bfloat16 is faster where the hardware has it, and off "
        "by about 1e-4.",
        choices=PRECISIONS,
    )


@dataclass(frozen=True)
class EncodeConfig(Settings):
    """How texts become vectors."""

    pooling: str = setting(
        "mean",
        "The mean of a text's token vectors, [CLS] and [SEP] included; the vector of [CLS]; the "
        "pooler's output; or the tokens' vectors one by one.",
        choices=("mean", "cls", "pooler", "tokens"),
    )
    layer: int | None = setting(
        None, "Layer to take vectors from; 0 is the embeddings (default: the last).", at_least=0
    )
    normalize: bool = setting(default=False, help="Scale every vector to length 1.")
    batch_size: int = setting(32, "Texts in one forward pass; changes no result.", at_least=1)
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
    precision: str = setting(
        "float32",
        "Number format of matrix products; bfloat16 is faster where the hardware has it, and "
        "coarser.",
        choices=PRECISIONS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling == "pooler" and self.layer is not None:
            raise SettingError(
                "layer", "and --pooling pooler exclude each other: the pooler reads the last layer"
            )


@dataclass(frozen=True)
class FillMaskConfig(Settings):
    """How masks are filled."""

    top_k: int = setting(5, "Candidates for each mask.", at_least=1)
    joint: bool = setting(
        default=False,
        help="Fill the masks of a text one after another, the surest first, instead of each on "
        "its own.",
    )
    mask_word: str | None = setting(
        None, "Mask this word for you, wherever it stands in a text.", metavar="WORD"
    )
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
