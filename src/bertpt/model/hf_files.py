"""The files of a Hugging Face model folder: config.json and safetensors."""

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bertpt import files
from bertpt.config import BertConfig
from bertpt.errors import InputError, OutputError

WEIGHTS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CHECKSUM = "bertpt_sha256"  # in a file's metadata; other programs drop it when they rewrite a file
TASK_CLASSES = (
    "BertForSequenceClassification",
    "BertForMultipleChoice",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
)
# Options of transformers' config.json, and the only value that this model supports.
SUPPORTED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
MAX_LISTED = 10  # names of one kind in a message

# ------------------------------------------------------------------------------------- folders


def find_model(path: Path) -> Path:
    """Return the model folder at `path`, or its model/ if `path` is a run.

    Raises:
        InputError: there is none, or its weights are a pickle.
    """
    if path.is_file():
        raise InputError(f"{path} is a file; give the folder that contains it")
    if not path.is_dir():
        raise InputError(f"no such model folder: {path} (download a Hub model first)")
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file() and _has_weights(folder):
            return folder
    if pickles := [path / name for name in PICKLES if (path / name).is_file()]:
        raise InputError(
            f"{path} contains only a pickle, which can run any code; {_conversion(pickles[-1])}"
        )
    found = {"config.json": (path / "config.json").is_file(), WEIGHTS: _has_weights(path)}
    missing = " or ".join(name for name in found if not found[name])
    raise InputError(f"{path} has no {missing}, and no model/ folder with both")


def _has_weights(folder: Path) -> bool:
    return (folder / WEIGHTS).is_file() or (folder / SHARDS).is_file()


def _conversion(pickle: Path) -> str:
    """Return advice with the command that converts a pickle (or an index) to safetensors.

    The class follows from the tensor names, which a pickle contains as plain bytes. So no head is
    lost and none is invented.
    """
    content = pickle.read_bytes()
    folder = pickle.parent
    config = folder / "config.json"
    declared = declared_classes(files.read_json(config)) if config.is_file() else []
    tasks = [name for name in declared if name in TASK_CLASSES]
    has_nsp = b"cls.seq_relationship." in content
    options = ""
    if b"cls.predictions." in content:
        kind = "BertForPreTraining" if has_nsp else "BertForMaskedLM"
    elif has_nsp:
        kind = "BertForNextSentencePrediction"
    elif tasks:
        kind = tasks[0]
    else:
        kind = "BertModel"
        options = "" if b"pooler.dense." in content else ", add_pooling_layer=False"
    quoted = json.dumps(str(folder))
    code = (
        f"from transformers import {kind} as M; "
        f"M.from_pretrained({quoted}{options}).save_pretrained({quoted})"
    )
    return f"if you trust it, convert it: python -c {shlex.quote(code)}"


# -------------------------------------------------------------------------------------- config


def declared_classes(config: Mapping[str, Any]) -> list[str]:
    """Return the transformers classes that a config.json lists as `architectures`."""
    declared = config.get("architectures")
    names = declared if isinstance(declared, list) else []
    return [name for name in names if isinstance(name, str)]


def read_config(folder: Path) -> BertConfig:
    """Read a folder's config.json.

    Raises:
        InputError: it is not a BERT's, or needs something that bertpt's BERT does not support.
    """
    path = folder / "config.json"
    values: dict[str, Any] = files.read_json(path)
    if values.get("model_type") != "bert":
        raise InputError(f"{path} has model type {values.get('model_type')}; bertpt reads bert")
    for name, value in SUPPORTED.items():
        if values.get(name) not in (value, None):
            raise InputError(f"{path}: {name} is {values[name]!r}; bertpt supports only {value!r}")
    known = {name: values[name] for name in BertConfig.__dataclass_fields__ if name in values}
    if known.get("pad_token_id", 0) is None:  # transformers allows None
        del known["pad_token_id"]
    return BertConfig.read(known, path)


# ------------------------------------------------------------------------------------- tensors


def read_weights(folder: Path, *, verify: bool = True) -> dict[str, Tensor]:
    """Read a folder's tensors, from one file or several, named as in BertForPreTraining.

    Args:
        folder: from `find_model`.
        verify: see `load_tensors`.

    Raises:
        InputError: a file is missing or damaged, or a tensor occurs twice.
    """
    if (folder / WEIGHTS).is_file():
        tensors = load_tensors(folder / WEIGHTS, verify=verify)
    else:
        tensors = _load_shards(folder / SHARDS)
    renamed: dict[str, Tensor] = {}
    original_names: dict[str, str] = {}
    # BertModel saves its parameters without the prefix.
    is_encoder = not any(name.startswith("bert.") for name in tensors)
    for old, tensor in tensors.items():
        # Google's TensorFlow names, which early versions of transformers kept
        name = old.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if is_encoder and name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"bert.{name}"
        if name in renamed:
            raise InputError(f"{folder} has {name} twice, as {original_names[name]} and as {old}")
        renamed[name], original_names[name] = tensor, old
    return renamed


def _load_shards(index: Path) -> dict[str, Tensor]:
    """Read the files of an index; each tensor must be in the file that the index names."""
    file_of = files.read_json(index).get("weight_map")
    if not isinstance(file_of, dict) or not all(isinstance(f, str) for f in file_of.values()):
        raise InputError(f"{index} has no weight_map")
    names = sorted(set(file_of.values()))
    for name in names:
        if not name.endswith(".safetensors") or not name.isprintable() or Path(name).name != name:
            raise InputError(f"{index} names {name!r}, which is not a file in its folder")
    shards = {name: load_tensors(index.with_name(name)) for name in names}
    if missing := [name for name, file in file_of.items() if name not in shards[file]]:
        raise InputError(f"{index}: {listed(missing)} is not in the file that the index names")
    stored = {(name, file) for file, tensors in shards.items() for name in tensors}
    if unlisted := stored - file_of.items():
        raise InputError(
            f"{index} does not list {listed(f'{name} of {file}' for name, file in unlisted)}"
        )
    return {name: shards[file][name] for name, file in file_of.items()}


def save_tensors(path: Path, tensors: Mapping[str, Tensor], *, checksum: bool = True) -> None:
    """Write a safetensors file under a temporary name, then rename it.

    Args:
        path: of the file.
        tensors: on the CPU, contiguous.
        checksum: store a SHA-256 of names, shapes and values in the header.

    Raises:
        OutputError: the file cannot be written, for example because the disk is full.
    """
    metadata = {"format": "pt"}
    if checksum:
        metadata[CHECKSUM] = _checksum(tensors)
    try:
        with files.new_file(path) as temporary:
            safetensors.torch.save_file(dict(tensors), temporary, metadata=metadata)
            _sort_metadata(temporary)
    except SafetensorError as error:
        raise OutputError(f"cannot write {path}: {error}") from error


def load_tensors(path: Path, *, verify: bool = True) -> dict[str, Tensor]:
    """Read a safetensors file and verify its checksum, if it has one.

    Args:
        path: the file.
        verify: off for files whose bytes were checked already, as those of a checkpoint.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            expected = (file.metadata() or {}).get(CHECKSUM)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise InputError(f"{path} cannot be read: {files.problem(error)}") from error
    except SafetensorError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if verify and expected and expected != (found := _checksum(tensors)):
        raise InputError(
            f"{path} is damaged: its tensors have checksum {found[:12]}, expected {expected[:12]}; "
            "use another copy or checkpoint"
        )
    return tensors


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 of every tensor's name, dtype, shape and bytes, sorted by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _sort_metadata(path: Path) -> None:
    """Sort a header's metadata, which safetensors writes in the random order of a hash map."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length
        file.seek(8)
        file.write(text.ljust(length))


def listed(names: Iterable[str]) -> str:
    """Join names for a message: sorted, the first `MAX_LISTED` of them."""
    names = sorted(names)
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
