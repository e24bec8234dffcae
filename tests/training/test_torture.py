"""benchmarks/torture.py, with numbers that a test can afford."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[2] / "benchmarks" / "torture.py"


def torture(**numbers):
    command = [sys.executable, str(TORTURE)]
    for name, number in numbers.items():
        command += [f"--{name}", str(number)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits():
    told = torture(kills=10, corruptions=0, seed=3)
    assert "kills: 10" in told
    assert len(re.findall(r"bit-identical with those of a run never stopped: True", told)) == 3


@pytest.mark.slow
def test_damaged_checkpoints_are_passed_over_or_refused_in_one_line():
    told = torture(kills=0, corruptions=100, seed=3)
    assert "passed over, same weights in the end" in told
    assert "refused in one line" in told
    assert "WRONG" not in told
