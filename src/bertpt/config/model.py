"""The shape of a model."""

from dataclasses import dataclass

from bertpt.config.data import OBJECTIVES
from bertpt.config.fields import Settings, setting
from bertpt.errors import SettingError

# Layers and hidden size. Heads are 64 wide, the feed-forward layer 4 times the hidden size.
MODEL_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

POOLER_HELP = (
    "Input of the NSP head: the [CLS] vector, or the mean of all tokens (transformers supports "
    "cls only)."
)


@dataclass(frozen=True)
class BertConfig(Settings):
    """The shape of a BERT, named as in Hugging Face's config.json."""

    vocab_size: int = setting(30_522, "Rows of the word embedding.", at_least=1)
    hidden_size: int = setting(768, "Width of the encoder.", at_least=1)
    num_hidden_layers: int = setting(12, "Layers of the encoder.", at_least=1)
    num_attention_heads: int = setting(12, "Attention heads per layer.", at_least=1)
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
    type_vocab_size: int = setting(2, "Number of segment types.", at_least=1)
    layer_norm_eps: float = setting(1e-12, "Added to the variance in LayerNorm.", above=0)
    initializer_range: float = setting(0.02, "Standard deviation of initial weights.", above=0)
    pad_token_id: int = setting(0, "Id of [PAD].", at_least=0)
    objective: str = setting(
        "nsp",
        "What the NSP head is trained for; with mlm, nothing.",
        choices=OBJECTIVES,
    )
    pooler: str = setting("cls", POOLER_HELP, choices=("cls", "mean"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            raise SettingError(
                "num_attention_heads",
                f"{self.num_attention_heads} does not divide `hidden_size` {self.hidden_size}; "
                "choose a divisor, for example hidden size / 64",
            )
