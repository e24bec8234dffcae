"""Every setting of bertpt, once: its name, default, range and one line of help.

The command line makes its options from these dataclasses, the folders on disk record them, and
library users pass them. Nothing here imports torch.
"""

from bertpt.config.data import OBJECTIVES, SPLITS, BuildConfig, TokenizerConfig, parse_shard
from bertpt.config.inference import EncodeConfig, EvalConfig, FillMaskConfig, InspectConfig
from bertpt.config.model import MODEL_SIZES, BertConfig
from bertpt.config.training import RECIPES, SCHEDULES, PretrainConfig, share_of_run

__all__ = [
    "MODEL_SIZES",
    "OBJECTIVES",
    "RECIPES",
    "SCHEDULES",
    "SPLITS",
    "BertConfig",
    "BuildConfig",
    "EncodeConfig",
    "EvalConfig",
    "FillMaskConfig",
    "InspectConfig",
    "PretrainConfig",
    "TokenizerConfig",
    "parse_shard",
    "share_of_run",
]
