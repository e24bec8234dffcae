"""Worker processes: order, limits, deaths; the files do not depend on their number."""

import math
import multiprocessing
import operator
import os
import random
import tempfile
import time
from functools import partial

import pytest
from helpers import digests

from bertpt.build import make_examples, tokenize, workers
from bertpt.build.build import build_data
from bertpt.build.workers import RESULTS_KEPT, TASKS_ALONE, Workers, num_cores
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.errors import BertptError
from bertpt.tokenizer.train import train_tokenizer


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("num_tasks", [0, 1, TASKS_ALONE, 40])
def test_results_come_in_the_order_of_the_tasks(number, num_tasks):
    with Workers(number) as pool:
        assert list(pool.map(operator.neg, range(num_tasks))) == [-n for n in range(num_tasks)]
        assert list(pool.map(math.sqrt, [4.0, 9.0])) == [2.0, 3.0]


def test_a_few_tasks_start_no_process(monkeypatch):
    monkeypatch.setattr(workers, "ProcessPoolExecutor", None)
    with Workers(8) as pool:
        assert list(pool.map(operator.neg, range(TASKS_ALONE))) == [-n for n in range(TASKS_ALONE)]


def test_processes_started_early_prepare_and_take_the_first_tasks(tmp_path):
    with Workers(3) as pool:
        pool.start(partial(tempfile.mkdtemp, dir=tmp_path))
        started = time.monotonic()
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() - started < 30
            time.sleep(0.01)
        numbers = set(pool.map(operator.methodcaller("__call__"), [os.getpid] * TASKS_ALONE))
    assert numbers - {os.getpid()}


def test_a_single_process_prepares_nothing(tmp_path):
    with Workers(1) as pool:
        pool.start(partial(tempfile.mkdtemp, dir=tmp_path))
        assert list(pool.map(operator.neg, [1])) == [-1]
    assert not list(tmp_path.iterdir())


def test_tasks_are_read_only_as_needed():
    read = []

    def tasks():
        for number in range(100):
            read.append(number)
            yield number

    with Workers(2) as pool:
        for done, _ in enumerate(pool.map(operator.neg, tasks()), start=1):
            assert len(read) <= done + max(2 * RESULTS_KEPT, TASKS_ALONE)
    assert len(read) == 100


def test_an_error_in_a_worker_is_raised_here():
    with Workers(2) as pool, pytest.raises(ValueError, match=r"math domain|nonnegative"):
        list(pool.map(math.sqrt, [1.0] * TASKS_ALONE + [-1.0] * 9))


def test_a_worker_that_dies_ends_the_work_in_seconds(monkeypatch):
    monkeypatch.setattr(workers, "TASKS_ALONE", 0)
    started = time.monotonic()

    def work_and_kill(pool):
        for _ in pool.map(time.sleep, [0.05] * 1000):
            for process in multiprocessing.active_children():
                process.kill()

    with Workers(2) as pool, pytest.raises(BertptError, match="a worker process died"):
        work_and_kill(pool)
    assert time.monotonic() - started < 30


# In a worker, announces a result of 1 MB and dies, as if killed while sending it.
DIE_WHILE_SENDING = """
from multiprocessing import connection, parent_process

def send_header(pipe, _):
    import os, signal, struct
    os.write(pipe.fileno(), struct.pack("!i", 1 << 20))
    os.kill(os.getpid(), signal.SIGKILL)

if parent_process():
    connection.Connection.send_bytes = send_header
"""


def test_a_worker_that_dies_while_sending_a_result_is_noticed(monkeypatch):
    monkeypatch.setattr(workers, "TASKS_ALONE", 0)
    with Workers(2) as pool, pytest.raises(BertptError, match="a worker process died"):
        list(pool.map(exec, [DIE_WHILE_SENDING] * 40))


def test_an_incomplete_result_does_not_keep_the_pool_from_ending():
    with Workers(3) as pool:
        pool.start(partial(exec, DIE_WHILE_SENDING))
        time.sleep(2)


def test_there_is_at_least_one_core():
    assert 1 <= num_cores() <= os.cpu_count()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rng = random.Random(5)
    words = [f"{a}{b}" for a in "bdfgklmn" for b in ("a", "et", "ing", "or", "un")]
    documents = [
        "\n".join(
            " ".join(rng.choices(words, k=rng.randint(1, 30))) + rng.choice([".", "!", ", etc."])
            for _ in range(rng.randint(1, 9))
        )
        for _ in range(150)
    ]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


SMALL = {"TASKS_ALONE": 1, "CHARS_PER_TASK": 900, "TOKENS_PER_TASK": 700}
TINY = {"TASKS_ALONE": 0, "CHARS_PER_TASK": 50, "TOKENS_PER_TASK": 64}


def resize_tasks(patch, sizes):
    """Make tasks so small that every worker gets many of them."""
    patch.setattr(workers, "TASKS_ALONE", sizes["TASKS_ALONE"])
    patch.setattr(tokenize, "CHARS_PER_TASK", sizes["CHARS_PER_TASK"])
    patch.setattr(make_examples, "TOKENS_PER_TASK", sizes["TOKENS_PER_TASK"])


@pytest.mark.parametrize(
    ("pairing", "workers_and_sizes"),
    [
        ("balanced", (3, TINY)),
        ("google", (2, SMALL)),
        pytest.param("balanced", (2, SMALL), marks=pytest.mark.slow),
        pytest.param("google", (3, TINY), marks=pytest.mark.slow),
    ],
)
def test_the_files_are_the_same_for_any_number_of_workers(
    corpus, tmp_path, monkeypatch, pairing, workers_and_sizes
):
    number, sizes = workers_and_sizes
    config = BuildConfig(seq_len=32, dupe_factor=2, sentence_per_line=True, pairing=pairing)

    def build(name, number):
        build_data(
            [str(corpus)],
            tmp_path / name,
            tokenizer_path=None,
            config=config,
            tokenizer_config=TokenizerConfig(vocab_size=150),
            workers=number,
        )
        return digests(tmp_path / name)

    alone = build("alone", 1)
    resize_tasks(monkeypatch, sizes)
    assert build("several", number) == alone


def test_a_part_is_the_same_for_any_number_of_workers(corpus, tmp_path, monkeypatch):
    learned = tmp_path / "tokenizer"
    train_tokenizer([str(corpus)], learned, config=TokenizerConfig(vocab_size=150))
    resize_tasks(monkeypatch, SMALL)
    for number in (1, 2):
        build_data(
            [str(corpus)],
            tmp_path / f"data-{number}",
            tokenizer_path=learned,
            config=BuildConfig(seq_len=32, sentence_per_line=True, shard="2/3"),
            workers=number,
        )
    assert digests(tmp_path / "data-1") == digests(tmp_path / "data-2")
