"""What all tests share."""

from pathlib import Path

import pytest
import torch

SHARED = Path(__file__).parents[2] / "shared"


# Sums depend on how they are split among threads, and some tests compare bits.
torch.set_num_threads(1)


@pytest.fixture
def shared():
    """Real texts, vocabularies and other systems' outputs, which are no part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"needs {SHARED}, which this machine lacks")
    return SHARED
