"""One background job at a time; its errors are raised at the next call."""

import signal
import threading

import pytest

from bertpt.training.background import Background, is_working

SECONDS = 30  # after which a test that hangs gives up


def failing():
    raise OSError("full")


def test_the_caller_continues_while_a_job_runs():
    background, go, done = Background(), threading.Event(), []

    def job():
        go.wait(SECONDS)
        done.append("job")

    background.start(job)
    done.append("caller")
    go.set()
    background.wait()
    assert done == ["caller", "job"]


def test_the_next_job_begins_after_the_one_before():
    background, done = Background(), []
    for number in range(20):
        background.start(lambda n=number: done.append(n))
        assert done[:number] == list(range(number))
    background.wait()
    assert done == list(range(20))


@pytest.mark.parametrize("ask", [Background.wait, lambda b: b.start(lambda: None)])
def test_an_error_is_raised_once_by_who_asks_next(ask):
    background = Background()
    background.start(failing)
    with pytest.raises(OSError, match="full"):
        ask(background)
    background.wait()
    background.check()


def test_ctrl_c_while_waiting_ends_neither_the_job_nor_the_next_wait():
    background, go, done = Background(), threading.Event(), []

    def job():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        go.wait(SECONDS)
        done.append("job")

    def start_and_wait():
        background.start(job)
        background.wait()

    with pytest.raises(KeyboardInterrupt):
        start_and_wait()
    go.set()
    background.wait()
    assert done == ["job"]


def test_check_does_not_wait():
    background, go = Background(), threading.Event()
    background.start(lambda: go.wait(SECONDS))
    background.check()
    go.set()
    background.wait()


def test_where_no_thread_can_be_started_the_caller_does_the_job(monkeypatch):
    def no_thread(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    background, done = Background(), []
    background.start(lambda: done.append("job"))
    assert done == ["job"]
    background.start(failing)
    with pytest.raises(OSError, match="full"):
        background.wait()
    assert not is_working()
