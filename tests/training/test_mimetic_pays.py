"""A mimetic start against the published one, on the sample corpus."""

import subprocess
import sys
from pathlib import Path

import pytest

from bertpt.build.build import build_data
from bertpt.config import BuildConfig, PretrainConfig, TokenizerConfig
from bertpt.training.pretrain import pretrain

SAMPLE = Path(__file__).parents[2] / "data" / "python_docs.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mimetic")
    with (folder / "docs.txt").open("wb") as file:
        subprocess.run([sys.executable, SAMPLE], stdout=file, check=True)
    build_data(
        [str(folder / "docs.txt")],
        folder / "data",
        tokenizer_path=None,
        config=BuildConfig(seq_len=64),
        tokenizer_config=TokenizerConfig(vocab_size=4000),
    )
    return folder / "data"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_mimetic_start_learns_faster_on_every_seed(data, tmp_path, seed):
    loss = {}
    for init in ("mimetic", "published"):
        config = PretrainConfig(
            model="tiny", init=init, seed=seed, steps=300, eval_every=0, save_every=0
        )
        loss[init] = pretrain(data, tmp_path / init, config=config)["mlm_loss"]
    assert loss["mimetic"] < loss["published"] - 0.05
