"""Where to compute, and in which number format."""

import torch

from bertpt.errors import SettingError


def choose_device(name: str) -> torch.device:
    """The device that auto, cpu or cuda stands for here.

    Raises:
        SettingError: cuda is asked for and not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device", "cuda is not available here; use cpu, or auto")
    return torch.device(name)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware multiplies bfloat16 matrices itself.

    A processor without such instructions emulates them, several times slower than float32
    (benchmarks/precision.py).
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    abilities = torch.cpu.get_capabilities()
    return any(abilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The format of matrix products that auto, float32 or bfloat16 stands for on a device."""
    if name == "auto":
        return torch.bfloat16 if has_bfloat16(device) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def autocast(device: torch.device, precision: torch.dtype) -> torch.autocast:
    """A context in which matrix products run in a format; float32 leaves all as it is."""
    return torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32)
