"""Settings of the commands that use data and models: inspect, eval-mlm, encode, fill-mask."""

from dataclasses import dataclass

from bertpt.config.data import SPLITS
from bertpt.config.fields import DEVICES, PRECISIONS, Settings, setting
from bertpt.errors import SettingError


@dataclass(frozen=True)
class InspectConfig(Settings):
    """Settings of inspect."""

    split: str = setting("train", "Which examples.", choices=SPLITS)
    examples: int = setting(3, "Examples to show, evenly spaced.", at_least=0)


@dataclass(frozen=True)
class EvalConfig(Settings):
    """Settings of eval-mlm."""

    split: str = setting("valid", "Which examples.", choices=SPLITS)
    batch_size: int = setting(
        32, "Examples per forward pass; does not change the results.", at_least=1
    )
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
    precision: str = setting(
        "float32",
        "Number format of matrix products; bfloat16 is faster if the hardware supports it, and "
        "changes losses by about 1e-4.",
        choices=PRECISIONS,
    )


@dataclass(frozen=True)
class EncodeConfig(Settings):
    """Settings of encode."""

    pooling: str = setting(
        "mean",
        "Vector of a text: mean (of all tokens, including [CLS] and [SEP]), cls (the vector of "
        "[CLS]), pooler (the pooler's output), or tokens (a vector for each token).",
        choices=("mean", "cls", "pooler", "tokens"),
    )
    layer: int | None = setting(
        None, "Layer to take vectors from; 0 is the embeddings (default: the last).", at_least=0
    )
    normalize: bool = setting(default=False, help="Scale every vector to length 1.")
    batch_size: int = setting(
        32, "Texts per forward pass; does not change the results.", at_least=1
    )
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
    precision: str = setting(
        "float32",
        "Number format of matrix products; bfloat16 is faster if the hardware has it, but less "
        "precise.",
        choices=PRECISIONS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling == "pooler" and self.layer is not None:
            raise SettingError(
                "layer", "and `pooling` pooler exclude each other: the pooler reads the last layer"
            )


@dataclass(frozen=True)
class FillMaskConfig(Settings):
    """Settings of fill-mask."""

    top_k: int = setting(5, "Candidates per mask.", at_least=1)
    joint: bool = setting(
        default=False,
        help="Fill the masks of a text one after another, the most certain first, instead of each "
        "independently.",
    )
    mask_word: str | None = setting(
        None, "Mask every occurrence of this word in a text.", metavar="WORD"
    )
    device: str = setting("auto", "Where to compute.", choices=DEVICES)
