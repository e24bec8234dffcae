"""Safetensors files that know their own checksum."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bertpt import files
from bertpt.errors import InputError, OutputError

CHECKSUM = "bertpt_sha256"  # in the metadata of a file, so whoever writes it anew leaves it out


def save_tensors(path: Path, tensors: Mapping[str, Tensor], *, checksum: bool = True) -> None:
    """Writes a safetensors file, with a checksum of names, shapes and values in its header.

    It is written under a temporary name and renamed.

    Args:
        path: of the file.
        tensors: on the CPU, contiguous.
        checksum: off where another file has one of this file, for it takes its time.

    Raises:
        OutputError: it cannot be written, the disk being full, say.
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


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file; where its header has a checksum, that must be right.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            expected = (file.metadata() or {}).get(CHECKSUM)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise InputError(f"{path} cannot be read: {files.problem(error)}") from error
    except SafetensorError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if expected and expected != (found := _checksum(tensors)):
        raise InputError(
            f"{path} is damaged: its tensors have checksum {found[:12]}, and {expected[:12]} was "
            "written; take another copy or checkpoint"
        )
    return tensors


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of every tensor's name, format, shape and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _sort_metadata(path: Path) -> None:
    """Puts a header's metadata into one order: safetensors writes it in that of a hash map."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length
        file.seek(8)
        file.write(text.ljust(length))
