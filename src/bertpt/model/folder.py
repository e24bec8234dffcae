"""Hugging Face model folders: config.json and model.safetensors, every weight accounted for."""

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from bertpt import files
from bertpt.config import BertConfig
from bertpt.errors import InputError, OutputError
from bertpt.model.bert import BertForPreTraining

WEIGHTS = "model.safetensors"
# Names that may stand in a file beside the tensor that they are tied to.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

# What a BERT's config.json may ask for, and this model has only one of.
ONLY = {"tie_word_embeddings": True, "position_embedding_type": "absolute", "is_decoder": False}


def find_model(path: Path) -> Path:
    """The model folder that MODEL means: a run's newest, or the folder itself.

    Raises:
        InputError: there is none.
    """
    if not path.is_dir():
        raise InputError(f"no such model folder: {path}")
    for folder in (path, path / "model"):
        if (folder / WEIGHTS).is_file() and (folder / "config.json").is_file():
            return folder
    raise InputError(f"{path} holds no config.json with {WEIGHTS}, and no model/ that does")


def save_weights(folder: Path, model: BertForPreTraining) -> None:
    """Writes config.json and model.safetensors into a folder; tied tensors are stored once."""
    weights = {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    save_tensors(folder / WEIGHTS, weights)
    files.write_json(
        folder / "config.json",
        {
            "architectures": ["BertForPreTraining"],
            "model_type": "bert",
            "tie_word_embeddings": True,
            "dtype": "float32",
            **model.config.to_dict(),
        },
    )


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes a safetensors file.

    Raises:
        OutputError: it cannot be written, the disk being full, say.
    """
    try:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        raise OutputError(f"cannot write {path.name}: {error}") from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        return safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def load_weights(folder: Path) -> BertForPreTraining:
    """Makes the model that a folder describes, with its weights, in eval mode on the CPU.

    Raises:
        InputError: the folder is damaged, is no BERT, or a weight is missing, unexpected or of
            another shape; the message lists them.
    """
    config = read_config(folder / "config.json")
    tensors = load_tensors(folder / WEIGHTS)
    model = BertForPreTraining(config)
    parameters = dict(model.named_parameters())
    _check_names(folder, parameters, tensors)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
    return model.eval()


def _check_names(folder: Path, parameters: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    problems = []
    if missing := sorted(parameters.keys() - tensors.keys()):
        problems.append(f"missing {', '.join(missing)}")
    if unexpected := sorted(tensors.keys() - parameters.keys() - TIED.keys()):
        problems.append(f"unexpected {', '.join(unexpected)}")
    problems += [
        f"{name} is {list(tensor.shape)}, not {list(parameters[name].shape)}"
        for name, tensor in sorted(tensors.items())
        if name in parameters and tensor.shape != parameters[name].shape
    ]
    if not problems:
        problems = [
            f"{name} differs from {other}, to which it should be tied"
            for name, other in TIED.items()
            if name in tensors and not torch.equal(tensors[name], tensors[other])
        ]
    if problems:
        raise InputError(f"{folder / WEIGHTS} does not fit its config.json: {'; '.join(problems)}")


def read_config(path: Path) -> BertConfig:
    """Reads a Hugging Face config.json.

    Raises:
        InputError: it is not a BERT's, or asks for something that this model has not.
    """
    stored = files.read_json(path)
    if stored.get("model_type") != "bert":
        raise InputError(f"{path} is of model type {stored.get('model_type')}, not bert")
    for name, value in ONLY.items():
        if stored.get(name, value) != value:
            raise InputError(
                f"{path}: {name} is {stored[name]!r}; bertpt's BERT has {value!r} only"
            )
    known = {name: stored[name] for name in BertConfig.__dataclass_fields__ if name in stored}
    return BertConfig.read(known, path)
