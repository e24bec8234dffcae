"""Repeated hashes, counted and found in parts that fit in memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.build import duplicates
from bertpt.build.duplicates import count_repeated, is_first


@pytest.fixture(scope="module", params=[1, 3, 1 << 20])
def at_once(request):
    """Several sizes of the parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "HASHES_AT_ONCE", request.param)
        yield


@pytest.mark.usefixtures("at_once")
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9)))
def test_repeats_are_counted_and_found(numbers):
    hashes = np.array(numbers, dtype=np.uint64)
    assert count_repeated(hashes) == len(numbers) - len(set(numbers))
    expected = [number not in numbers[:place] for place, number in enumerate(numbers)]
    assert is_first(hashes).tolist() == expected
