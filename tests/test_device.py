import pytest
import torch

from bertpt import device
from bertpt.errors import SettingError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("abilities", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": False, "amx_bf16": False, "avx2": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_is_bfloat16_only_where_the_processor_has_it(monkeypatch, abilities, expected):
    monkeypatch.delenv("BERTPT_PRECISION", raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities)
    assert device.choose_precision("auto", CPU) == expected


def test_a_precision_that_is_asked_for_is_used():
    assert device.choose_precision("bfloat16", CPU) == torch.bfloat16
    assert device.choose_precision("float32", CPU) == torch.float32


def test_missing_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.choose_device("auto") == CPU
    with pytest.raises(SettingError, match="`device` cuda is not available"):
        device.choose_device("cuda")


def test_float32_leaves_matrix_products_as_they_are():
    x = torch.ones(2, 2)
    with device.autocast(CPU, torch.float32):
        assert (x @ x).dtype == torch.float32
    with device.autocast(CPU, torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16


def test_the_environment_decides_what_auto_means(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    monkeypatch.setenv("BERTPT_PRECISION", "float32")
    assert device.choose_precision("auto", CPU) == torch.float32
    assert device.choose_precision("bfloat16", CPU) == torch.bfloat16
    monkeypatch.setenv("BERTPT_PRECISION", "float16")
    with pytest.raises(SettingError, match=r"`precision` auto: BERTPT_PRECISION is 'float16'"):
        device.choose_precision("auto", CPU)
