"""Where to compute, and in which number format."""

import os

import torch

from bertpt.errors import SettingError


def choose_device(name: str) -> torch.device:
    """Return the device for "auto", "cpu" or "cuda"; auto is cuda if there is a GPU.

    Raises:
        SettingError: cuda is asked for but not available.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device", "cuda is not available here; use cpu or auto")
    return torch.device(name)


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bfloat16 matrices natively.

    Without such instructions a processor emulates them, several times slower than float32
    (benchmarks/precision.py).
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    abilities = torch.cpu.get_capabilities()
    return any(abilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the format of matrix products for "auto", "float32" or "bfloat16".

    Auto is what the environment variable BERTPT_PRECISION says, or else bfloat16 where the hardware
    has it.

    Raises:
        SettingError: BERTPT_PRECISION is neither float32 nor bfloat16.
    """
    formats = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name != "auto":
        return formats[name]
    chosen = os.environ.get("BERTPT_PRECISION")
    if not chosen:
        return torch.bfloat16 if has_bfloat16(device) else torch.float32
    if chosen not in formats:
        raise SettingError(
            "precision", f"auto: BERTPT_PRECISION is {chosen!r}; set it to float32 or bfloat16"
        )
    return formats[chosen]


def autocast(device: torch.device, precision: torch.dtype) -> torch.autocast:
    """Return a context that runs matrix products in `precision`; float32 changes nothing."""
    return torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32)
