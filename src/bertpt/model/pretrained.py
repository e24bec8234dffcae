"""Load models from Hugging Face folders and save them, accounting for every weight.

Tensors are named as in BertForPreTraining.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bertpt import files
from bertpt.config import BertConfig
from bertpt.errors import InputError, OutputError
from bertpt.model.bert import BertForPreTraining, BertModel
from bertpt.model.growth import add_token_rows, repeat_positions
from bertpt.model.hf_files import (
    WEIGHTS,
    declared_classes,
    find_model,
    listed,
    read_config,
    read_weights,
    save_tensors,
)
from bertpt.model.initialization import init_published
from bertpt.model.sharded import assign, full_state

Model = TypeVar("Model", BertForPreTraining, BertModel)

# Tensors that a file may repeat under a second name, and the parameter that each repeats.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Constants that transformers before 4.31 saved with the weights.
BUFFERS = {"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"}

POOLER, MLM_HEAD, NSP_HEAD = "pooler", "MLM head", "NSP head"
# Optional parts of a folder, each with the prefix of its parameters.
PARTS = {POOLER: "bert.pooler.", MLM_HEAD: "cls.predictions.", NSP_HEAD: "cls.seq_relationship."}
# Parts of each transformers class; classes not listed have the encoder only.
PARTS_OF_CLASS = {
    "BertForPreTraining": (POOLER, MLM_HEAD, NSP_HEAD),
    "BertForMaskedLM": (MLM_HEAD,),
    "BertLMHeadModel": (MLM_HEAD,),
    "BertForNextSentencePrediction": (POOLER, NSP_HEAD),
    "BertForSequenceClassification": (POOLER,),
    "BertForMultipleChoice": (POOLER,),
}


def from_pretrained(cls: type[Model], path: str | Path, *, new_heads: bool = False) -> Model:
    """Load a model in eval mode, on the CPU, in float32.

    Args:
        cls: `BertForPreTraining` or `BertModel`.
        path: a run, a checkpoint, or a folder that transformers saved from any BERT class.
        new_heads: initialise a missing pooler or head as published instead of raising.

    Raises:
        InputError: the folder is damaged or not a BERT's; a weight is missing, unexpected or of
            another shape; or a head is missing and `new_heads` is off.
    """
    folder = find_model(Path(path))
    model, report = load_model(cls, folder)
    if report.new and not new_heads:
        raise InputError(
            f"{folder} lacks {listed(report.new)}; pass new_heads=True to initialise them"
        )
    return model


def save_pretrained(model: BertForPreTraining | BertModel, path: str | Path) -> None:
    """Save config.json and model.safetensors, which transformers can load.

    The folder is created if needed. Save a tokenizer to the same folder with its own `save`.

    Raises:
        OutputError: the folder cannot be written to.
    """
    write_folder(path, type(model).__name__, model.config, full_state(model))


def write_folder(
    path: str | Path, architecture: str, config: BertConfig, weights: Mapping[str, Tensor]
) -> None:
    """Write config.json and model.safetensors; create the folder if needed.

    Raises:
        OutputError: the folder cannot be written to.
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


# ------------------------------------------------------------------------------------------ load


@dataclass(frozen=True)
class LoadReport:
    """What happened to each tensor of a folder and each parameter of a model.

    Attributes:
        loaded: parameters read from the folder.
        tied: tensors that repeat a tied parameter.
        new: newly initialised parameters, of parts that the folder does not have.
        ignored: tensors that the model does not have: a task's head, constants.
    """

    loaded: tuple[str, ...]
    tied: tuple[str, ...]
    new: tuple[str, ...]
    ignored: tuple[str, ...]

    def lacks(self, part: str) -> bool:
        """Return whether the folder lacks one of `PARTS`."""
        return any(_is_of(part, name) for name in self.new)

    def require(self, part: str, folder: Path) -> None:
        """Check that the folder has one of `PARTS`.

        Raises:
            InputError: it does not.
        """
        if self.lacks(part):
            raise InputError(
                f"{folder} has no {part} ({PARTS[part]}*); train one with bertpt pretrain DATA "
                f"--init-from {folder}"
            )

    def ignored_note(self) -> str:
        """Return a line that lists the ignored tensors, or "" if there are none.

        Pretraining heads are not listed: a `BertModel` always ignores them.
        """
        foreign = [name for name in self.ignored if not any(_is_of(p, name) for p in PARTS)]
        return f"ignored {listed(foreign)}" if foreign else ""

    def __str__(self) -> str:
        """Return a line on ignored tensors and new parts, or "" if there are none."""
        notes = [self.ignored_note()] if self.ignored_note() else []
        for part in PARTS:
            if self.lacks(part):
                names = listed(name for name in self.new if _is_of(part, name))
                notes.append(f"no {part} (newly initialised: {names})")
        return "; ".join(notes)


def load_model(
    cls: type[Model], folder: Path, generator: torch.Generator | None = None
) -> tuple[Model, LoadReport]:
    """Load a folder's model, in eval mode, on the CPU.

    Args:
        cls: `BertForPreTraining` or `BertModel`.
        folder: from `find_model`.
        generator: random values for parts that the folder lacks.

    Raises:
        InputError: see `load_into`, or config.json is not a supported BERT's.
    """
    model = cls(read_config(folder))
    report = load_into(model, folder, generator)
    return model.eval(), report


def load_into(
    model: BertForPreTraining | BertModel,
    folder: Path,
    generator: torch.Generator | None = None,
    *,
    extend_positions: bool = False,
    new_tokens: Mapping[int, Sequence[int]] | None = None,
    verify: bool = True,
) -> LoadReport:
    """Load a folder's weights into a model of the same shape.

    Args:
        model: receives the weights.
        folder: from `find_model`.
        generator: random values for parts that the folder lacks, initialised as published.
        extend_positions: if the model has more positions than the folder, repeat the folder's; see
            `bertpt.model.growth.repeat_positions`.
        new_tokens: ids that the folder's tokenizer does not have, each with those of its pieces;
            see `bertpt.model.growth.add_token_rows`.
        verify: see `bertpt.model.hf_files.load_tensors`.

    Raises:
        InputError: the folder is damaged, or weights are missing, unexpected or of another shape;
            the message lists them. The model is unchanged.
    """
    config, tensors = files.read_json(folder / "config.json"), read_weights(folder, verify=verify)
    prefix = "bert." if isinstance(model, BertModel) else ""
    parameters = {prefix + name: parameter for name, parameter in model.named_parameters()}
    own_prefixes = tuple({name.partition(".")[0] + "." for name in parameters})
    if extend_positions:
        repeat_positions(tensors, model.config.max_position_embeddings, model.config.hidden_size)
    if new_tokens:
        add_token_rows(tensors, new_tokens, model.config.vocab_size)

    absent = _absent_parts(config, tensors)
    new = {name for name in parameters if any(_is_of(part, name) for part in absent)}
    tied = {name for name in TIED if name in tensors and name.startswith(own_prefixes)}
    loaded = tensors.keys() & parameters.keys()
    ignored = tensors.keys() - loaded - tied
    unexpected = {name for name in ignored if name.startswith(own_prefixes)} - BUFFERS
    problems = [
        *_list_of("missing", parameters.keys() - loaded - new),
        *_list_of("unexpected", unexpected),
        *_faults({name: tensors[name] for name in loaded}, parameters),
    ]
    if problems:
        problems += _list_of("unknown", ignored - unexpected)
    elif isinstance(model, BertForPreTraining):
        problems = _untied(config, tensors)
    if problems:
        raise InputError(f"{folder} does not match its config.json: {'; '.join(problems)}")

    for name in loaded:
        assign(parameters[name], tensors[name])
    init_published(
        [(name, parameter) for name, parameter in parameters.items() if name in new],
        model.config.initializer_range,
        generator or torch.Generator().manual_seed(0),
    )
    return LoadReport(*(tuple(sorted(names)) for names in (loaded, tied, new, ignored)))


def _is_of(part: str, name: str) -> bool:
    return name.startswith(PARTS[part])


def _absent_parts(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the parts that a folder neither contains nor declares."""
    present = {part for part in PARTS if any(_is_of(part, name) for name in tensors)}
    for name in declared_classes(config):
        present.update(PARTS_OF_CLASS.get(name, ()))
    if NSP_HEAD in present:  # it reads the pooler's output
        present.add(POOLER)
    return [part for part in PARTS if part not in present]


# ---------------------------------------------------------------------------------------- faults


def _list_of(kind: str, names: Iterable[str]) -> list[str]:
    return [f"{kind} {listed(names)}"] if names else []


def _faults(tensors: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]) -> list[str]:
    """Describe tensors of another shape, integers, and values that are not finite."""
    faults = []
    for name, tensor in sorted(tensors.items()):
        if tensor.shape != parameters[name].shape:
            shapes = f"{list(tensor.shape)}, not {list(parameters[name].shape)}"
            faults.append(f"{name} has shape {shapes}")
        elif not tensor.is_floating_point():
            faults.append(f"{name} has dtype {str(tensor.dtype).removeprefix('torch.')}, not float")
        elif not tensor.float().isfinite().all():
            faults.append(f"{name} has a value that is not finite in float32")
    return faults


def _untied(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
    """Describe how a folder's decoder differs from the word embeddings, if it does."""
    advice = (
        "; bertpt's BERT ties them (to use only the encoder, save it as transformers' BertModel)"
    )
    has_head = any(_is_of(MLM_HEAD, name) for name in tensors)
    if has_head and config.get("tie_word_embeddings") is False:
        return [f"tie_word_embeddings is False: the decoder has its own weights{advice}"]
    return [
        f"{name} differs from {other}{advice}"
        for name, other in TIED.items()
        if name in tensors and not torch.equal(tensors[name], tensors[other])
    ]
