"""Run benchmarks/torture.py with fewer kills and corruptions."""

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
def test_a_run_killed_ten_times_gives_the_same_bits():
    output = torture(kills=10, corruptions=0, seed=3)
    assert "kills: 10" in output
    assert len(re.findall(r"as an uninterrupted run, bit for bit: True", output)) == 3


@pytest.mark.slow
def test_damaged_checkpoints_are_skipped_or_refused_in_one_line():
    output = torture(kills=0, corruptions=100, seed=3)
    assert "skipped, same final weights" in output
    assert "refused in one line" in output
    assert "WRONG" not in output
