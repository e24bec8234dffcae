"""What a Hugging Face model folder holds: its config, and its tensors under one set of names."""

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bertpt import files
from bertpt.config import BertConfig
from bertpt.errors import InputError
from bertpt.model.tensors import load_tensors

WEIGHTS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
TASK_CLASSES = (
    *("BertForSequenceClassification", "BertForMultipleChoice", "BertForTokenClassification"),
    "BertForQuestionAnswering",
)

# What a BERT's config.json may ask for, and this model has only one of.
ONLY = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}

AT_MOST = 10  # names that a message lists of one kind


def find_model(path: Path) -> Path:
    """The model folder that MODEL means: a run's newest, or the folder itself.

    Raises:
        InputError: there is none, or only a pickle.
    """
    if not path.is_dir():
        if path.is_file():
            raise InputError(f"{path} is a file; give the folder that it lies in")
        raise InputError(
            f"no such model folder: {path} (one of the Hub has to be downloaded first)"
        )
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file() and _has_weights(folder):
            return folder
    if pickles := [path / name for name in PICKLES if (path / name).is_file()]:
        raise InputError(
            f"{path} holds a pickle only, which can run any code; {_convert(pickles[-1])}"
        )
    there = {"config.json": (path / "config.json").is_file(), WEIGHTS: _has_weights(path)}
    lost = " with ".join(name for name in there if not there[name])
    raise InputError(f"{path} holds no {lost}, and no model/ that does")


def _has_weights(folder: Path) -> bool:
    return (folder / WEIGHTS).is_file() or (folder / SHARDS).is_file()


def _convert(pickle: Path) -> str:
    """How to turn a pickle, or the index of several, into safetensors.

    The class is chosen by the names in the file, which stand there in plain bytes, so that nothing
    is lost and no head is made up.
    """
    content = pickle.read_bytes()
    has_mlm, has_nsp, has_pooler = (
        name in content
        for name in (b"cls.predictions.", b"cls.seq_relationship.", b"pooler.dense.")
    )
    folder = pickle.parent
    config = folder / "config.json"
    declared = declared_classes(files.read_json(config)) if config.is_file() else []
    tasks = [name for name in declared if name in TASK_CLASSES]
    options = ""
    if has_mlm:
        kind = "BertForPreTraining" if has_nsp else "BertForMaskedLM"
    elif has_nsp:
        kind = "BertForNextSentencePrediction"
    elif tasks:
        kind = tasks[0]
    else:
        kind, options = "BertModel", "" if has_pooler else ", add_pooling_layer=False"
    place = json.dumps(str(folder))
    code = (
        f"from transformers import {kind} as M; "
        f"M.from_pretrained({place}{options}).save_pretrained({place})"
    )
    return f"convert it if you trust it: python -c {shlex.quote(code)}"


def declared_classes(config: Mapping[str, Any]) -> list[str]:
    """The classes of transformers that a config.json says the folder is of."""
    declared = config.get("architectures")
    return (
        [name for name in declared if isinstance(name, str)] if isinstance(declared, list) else []
    )


def read_config(folder: Path) -> BertConfig:
    """Reads a folder's config.json.

    Raises:
        InputError: it is not a BERT's, or asks for something that this model has not.
    """
    path = folder / "config.json"
    stored: dict[str, Any] = files.read_json(path)
    if stored.get("model_type") != "bert":
        raise InputError(f"{path} is of model type {stored.get('model_type')}, not bert")
    for name, value in ONLY.items():
        if stored.get(name) not in (value, None):
            raise InputError(
                f"{path}: {name} is {stored[name]!r}; bertpt's BERT has {value!r} only"
            )
    known = {name: stored[name] for name in BertConfig.__dataclass_fields__ if name in stored}
    if known.get("pad_token_id", 0) is None:  # transformers may have none
        del known["pad_token_id"]
    return BertConfig.read(known, path)


def stored_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, of one file or several, under BertForPreTraining's names."""
    if (folder / WEIGHTS).is_file():
        tensors = load_tensors(folder / WEIGHTS)
    else:
        tensors = _load_shards(folder)
    named: dict[str, Tensor] = {}
    originals: dict[str, str] = {}
    # A folder of BertModel has its parameters without the prefix.
    is_bare = not any(name.startswith("bert.") for name in tensors)
    for old, tensor in tensors.items():
        # as Google's TensorFlow named them, and transformers' first conversions
        name = old.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if is_bare and name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"bert.{name}"
        if name in named:
            raise InputError(f"{folder} has {name} twice, as {originals[name]} and as {old}")
        named[name], originals[name] = tensor, old
    return named


def _load_shards(folder: Path) -> dict[str, Tensor]:
    """Reads the files that an index lists, each tensor from where the index says it is."""
    index = folder / SHARDS
    places = files.read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(f, str) for f in places.values()):
        raise InputError(f"{index} has no weight_map")
    shards = {name: load_tensors(_beside(index, name)) for name in sorted(set(places.values()))}
    if lost := sorted(name for name, shard in places.items() if name not in shards[shard]):
        raise InputError(f"{index}: {listed(lost)} is not in the file it names")
    held = {(name, shard) for shard, tensors in shards.items() for name in tensors}
    if unlisted := held - places.items():
        names = listed(f"{name} of {shard}" for name, shard in unlisted)
        raise InputError(f"{index} does not list {names}")
    return {name: shards[shard][name] for name, shard in places.items()}


def _beside(index: Path, name: str) -> Path:
    if not name.endswith(".safetensors") or not name.isprintable() or Path(name).name != name:
        raise InputError(f"{index} names {name!r}, which is not a file beside it")
    return index.with_name(name)


def listed(names: Iterable[str]) -> str:
    """Names for a message: sorted, and not too many of them."""
    names = sorted(names)
    more = f" and {len(names) - AT_MOST} more" if len(names) > AT_MOST else ""
    return ", ".join(names[:AT_MOST]) + more
