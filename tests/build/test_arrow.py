"""Arrays to Arrow and back: the same as by pyarrow, without importing pandas."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertpt.build.arrow import to_arrow, to_lists, to_numpy, to_strings

KINDS = [np.int8, np.uint16, np.int32, np.uint32, np.int64]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_integers_are_those_that_pyarrow_makes(kind, data):
    values = data.draw(arrays.arrays(kind, st.integers(0, 20)))
    start = data.draw(st.integers(0, len(values)))
    step = data.draw(st.sampled_from([1, 2]))
    found = to_arrow(values[start::step])
    assert found.equals(pa.array(values[start::step]))
    found.validate(full=True)
    part = found.slice(len(found) // 2)
    assert to_numpy(part).dtype == kind
    assert to_numpy(part).tolist() == part.to_pylist()


@given(st.lists(st.lists(st.integers(0, 99))))
def test_lists_are_those_that_pyarrow_makes(lists):
    flat = np.array([number for one in lists for number in one], dtype=np.int32)
    found = to_lists(flat, np.array([len(one) for one in lists], dtype=np.int64))
    assert found.equals(pa.array(lists, pa.list_(pa.int32())))
    found.validate(full=True)


@given(st.lists(st.text()))
def test_texts_are_those_that_pyarrow_makes(texts):
    found = to_strings(texts)
    assert found.equals(pa.array(texts, pa.string()))
    found.validate(full=True)


def test_building_data_imports_neither_pandas_nor_datasets(tmp_path):
    """Each would take longer than a small build."""
    (tmp_path / "text.txt").write_text("a b. c d. e f.\n\ng h. i j. k l.\n" * 9)
    script = """
import sys
from bertpt_cli.main import app
try:
    app()
finally:
    assert not {"pandas", "datasets", "torch"} & sys.modules.keys()
"""
    options = ["--vocab-size", "60", "--out", tmp_path / "data", "--quiet"]
    command = [sys.executable, "-c", script, "build-data", tmp_path / "text.txt", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
