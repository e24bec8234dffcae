"""Models into and out of Hugging Face folders, every weight accounted for.

Names of tensors are those in a BertForPreTraining.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from bertpt import files
from bertpt.config import BertConfig
from bertpt.errors import InputError, OutputError
from bertpt.model.hf_files import (
    WEIGHTS,
    declared_classes,
    find_model,
    listed,
    read_config,
    stored_tensors,
)
from bertpt.model.initialization import make_published
from bertpt.model.sharded import assign, whole
from bertpt.model.tensors import save_tensors

if TYPE_CHECKING:
    from typing_extensions import Self

# Names that may stand in a file beside the tensor that they are tied to.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
POSITIONS = "bert.embeddings.position_embeddings.weight"
# Constants that transformers before 4.31 wrote among the weights.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")

POOLER, MLM_HEAD, NSP_HEAD = "pooler", "MLM head", "NSP head"
# What a folder may lack as a whole, by the beginning of its names.
PARTS = {POOLER: "bert.pooler.", MLM_HEAD: "cls.predictions.", NSP_HEAD: "cls.seq_relationship."}
# What the classes of transformers have of these; others have the encoder alone.
PARTS_OF_CLASS = {
    "BertForPreTraining": (POOLER, MLM_HEAD, NSP_HEAD),
    "BertForMaskedLM": (MLM_HEAD,),
    "BertLMHeadModel": (MLM_HEAD,),
    "BertForNextSentencePrediction": (POOLER, NSP_HEAD),
    "BertForSequenceClassification": (POOLER,),
    "BertForMultipleChoice": (POOLER,),
}

Model = TypeVar("Model", bound="FolderModule")


@dataclass(frozen=True)
class Account:
    """What became of every tensor of a folder and of a model, by the names of each.

    Attributes:
        loaded: parameters of the model that the folder has.
        tied: tensors of the folder that repeat another, as they should.
        new: parameters of parts that the folder lacks as a whole, newly initialised.
        left_out: tensors of the folder that the model has no place for: a task's head, constants.
    """

    loaded: tuple[str, ...]
    tied: tuple[str, ...]
    new: tuple[str, ...]
    left_out: tuple[str, ...]

    def lacks(self, part: str) -> bool:
        """Whether the folder lacks one of `PARTS`."""
        return any(_is_of(part, name) for name in self.new)

    def require(self, part: str, folder: Path) -> None:
        """Checks that the folder has one of `PARTS`.

        Raises:
            InputError: it has not.
        """
        if self.lacks(part):
            raise InputError(
                f"{folder} has no {part} ({PARTS[part]}*); train one with bertpt pretrain DATA "
                f"--init-from {folder}"
            )

    def about_left_out(self) -> str:
        """Names what was left out, in one line; empty where there is nothing to tell."""
        # That an encoder has no place for the pretraining heads goes without saying.
        foreign = [name for name in self.left_out if not any(_is_of(p, name) for p in PARTS)]
        return f"left out {listed(foreign)}" if foreign else ""

    def __str__(self) -> str:
        """What is not as in a folder of our own, in one line; empty where there is nothing."""
        told = [line] if (line := self.about_left_out()) else []
        for part in PARTS:
            if self.lacks(part):
                names = listed(name for name in self.new if _is_of(part, name))
                told.append(f"no {part} (newly initialised: {names})")
        return "; ".join(told)


class FolderModule(nn.Module):
    """A module that a Hugging Face folder can hold; it is made from a `BertConfig`."""

    config: BertConfig
    name_prefix: ClassVar[str] = ""

    @classmethod
    def from_folder(cls, path: str | Path, *, new_heads: bool = False) -> "Self":
        """Loads a model, in eval mode, on the CPU, in float32.

        Args:
            path: a run, a checkpoint, or a folder that transformers saved from a BERT of any class.
            new_heads: start a pooler or a head that the folder lacks anew, as published.

        Raises:
            InputError: the folder is damaged or is no BERT's, a weight is missing, unexpected or of
                another shape, or a head is missing and `new_heads` is off.
        """
        folder = find_model(Path(path))
        model, account = load_model(cls, folder)
        if account.new and not new_heads:
            raise InputError(
                f"{folder} lacks {listed(account.new)}; new_heads=True starts them anew"
            )
        return model

    def save_folder(self, path: str | Path) -> None:
        """Writes config.json and model.safetensors, which transformers opens, into a folder.

        The folder is made where there is none. A tokenizer is saved beside them with its own
        `save`.

        Raises:
            OutputError: the place cannot be written to.
        """
        write_folder(path, type(self).__name__, self.config, self.weights())

    def weights(self, *, device: str = "cpu") -> dict[str, Tensor]:
        """A copy of every parameter, on the CPU; a tied one has one name, and is there once.

        Each is whole; where the model is sharded, all processes must ask at once, though some may
        have no use for the answer (`device` "meta").
        """
        return {
            name: whole(parameter.detach()).to(device, copy=True).contiguous()
            for name, parameter in self.named_parameters()
        }


# ------------------------------------------------------------------------------------------- save


def write_folder(
    path: str | Path, architecture: str, config: BertConfig, weights: Mapping[str, Tensor]
) -> None:
    """Writes config.json and model.safetensors into a folder, which is made where there is none.

    Raises:
        OutputError: the place cannot be written to.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror}") from error
    save_tensors(folder / WEIGHTS, weights)
    files.write_json(
        folder / "config.json",
        {
            "architectures": [architecture],
            "model_type": "bert",
            "tie_word_embeddings": True,
            "dtype": "float32",
            **config.to_dict(),
        },
    )


# ------------------------------------------------------------------------------------------- load


def load_model(
    kind: type[Model], folder: Path, generator: torch.Generator | None = None
) -> tuple[Model, Account]:
    """Makes the model that a folder describes, in eval mode on the CPU, with its weights.

    Args:
        kind: BertForPreTraining or BertModel.
        folder: as `find_model` gives it.
        generator: draws the values of a head that the folder lacks.

    Raises:
        InputError: the folder is damaged, is no BERT, or a weight is missing, unexpected or of
            another shape; the message lists them.
    """
    model = kind(read_config(folder))
    account = load_into(model, folder, generator)
    return model.eval(), account


def load_into(
    model: FolderModule,
    folder: Path,
    generator: torch.Generator | None = None,
    *,
    extend_positions: bool = False,
) -> Account:
    """Puts the weights of a folder into a model, every one of them accounted for.

    Args:
        model: of the folder's shape.
        folder: as `find_model` gives it.
        generator: draws the values of parts that the folder lacks, as published.
        extend_positions: where the model has more positions than the folder, repeat the folder's
            (row i is row i modulo their number, as in Longformer, Beltagy et al., 2020), so
            inputs of the old length give the same output.

    Raises:
        InputError: the folder is damaged, or a weight is missing, unexpected or of another shape;
            the message lists them. The model is then as it was.
    """
    config, stored = files.read_json(folder / "config.json"), stored_tensors(folder)
    parameters = {model.name_prefix + name: p for name, p in model.named_parameters()}
    own_names = tuple({name.partition(".")[0] + "." for name in parameters})
    if extend_positions and POSITIONS in stored:
        stored[POSITIONS] = _extended(stored[POSITIONS], parameters[POSITIONS].shape)

    new = {name for part in _lacking(config, stored) for name in parameters if _is_of(part, name)}
    tied = {name for name in TIED if name in stored and name.startswith(own_names)}
    loaded = stored.keys() & parameters.keys()
    left_out = stored.keys() - loaded - tied
    unexpected = {name for name in left_out if name.startswith(own_names)} - set(BUFFERS)
    problems = [
        *_list_of("missing", parameters.keys() - loaded - new),
        *_list_of("unexpected", unexpected),
        *_faults({name: stored[name] for name in loaded}, parameters),
    ]
    if problems and left_out - unexpected:
        problems.append(f"unknown {listed(left_out - unexpected)}")
    if not problems and "cls." in own_names:
        problems = _untied(config, stored)
    if problems:
        raise InputError(
            f"{folder} cannot be loaded as its config.json says: {'; '.join(problems)}"
        )

    for name in loaded:
        assign(parameters[name], stored[name])
    make_published(
        [(name, parameter) for name, parameter in parameters.items() if name in new],
        model.config.initializer_range,
        generator or torch.Generator().manual_seed(0),
    )
    return Account(*(tuple(sorted(names)) for names in (loaded, tied, new, left_out)))


# ------------------------------------------------------------------------------------------ check


def _lacking(config: Mapping[str, Any], stored: Mapping[str, Tensor]) -> list[str]:
    """The parts of which a folder has nothing, and need not have anything."""
    present = {part for part in PARTS if any(_is_of(part, name) for name in stored)}
    for name in declared_classes(config):
        present.update(PARTS_OF_CLASS.get(name, ()))
    if NSP_HEAD in present:  # which reads the pooler's output
        present.add(POOLER)
    return [part for part in PARTS if part not in present]


def _is_of(part: str, name: str) -> bool:
    return name.startswith(PARTS[part])


def _faults(stored: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]) -> list[str]:
    faults = []
    for name, tensor in sorted(stored.items()):
        if tensor.shape != parameters[name].shape:
            shapes = f"{list(tensor.shape)}, not {list(parameters[name].shape)}"
            faults.append(f"{name} is {shapes}")
        elif not tensor.is_floating_point():
            faults.append(f"{name} is {str(tensor.dtype).removeprefix('torch.')}, no float")
        elif not tensor.float().isfinite().all():
            faults.append(f"{name} holds a number that is not finite in float32")
    return faults


def _untied(config: Mapping[str, Any], stored: Mapping[str, Tensor]) -> list[str]:
    """What speaks against a decoder that is tied to the word embeddings."""
    way_out = (
        "; bertpt's BERT ties them (to use the encoder alone, save it with transformers' BertModel)"
    )
    has_head = any(_is_of(MLM_HEAD, name) for name in stored)
    if has_head and config.get("tie_word_embeddings") is False:
        return [f"tie_word_embeddings is False, the decoder has weights of its own{way_out}"]
    return [
        f"{name} differs from {other}{way_out}"
        for name, other in TIED.items()
        if name in stored and not torch.equal(stored[name], stored[other])
    ]


def _extended(table: Tensor, shape: torch.Size) -> Tensor:
    """The table with its rows repeated, where that makes it fit."""
    if table.shape[1:] != shape[1:] or not 0 < len(table) < shape[0]:
        return table
    return table[torch.arange(shape[0]) % len(table)]


def _list_of(kind: str, names: Iterable[str]) -> list[str]:
    return [f"{kind} {listed(names)}"] if names else []
