"""The learning rate over a run, counted by hand, and the clock that decides how far it is."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.training import schedule
from bertpt.training.schedule import Budget, linear

SHARES = st.floats(0, 1)


def scales(num_steps, *, warmup_steps):
    """The shares of the peak that the steps of a run get."""
    budget = Budget(num_steps=num_steps, max_seconds=None)
    found = []
    while (used := budget.used()) < 1:
        after = budget.used_after_next(used)
        found.append(linear(used, after, warmup=warmup_steps / num_steps))
        budget.count_step(0.0)
    return found


@pytest.mark.parametrize(
    ("num_steps", "warmup_steps", "expected"),
    [
        (1, 0, [1.0]),
        (1, 1, [1.0]),
        (4, 0, [1.0, 0.75, 0.5, 0.25]),
        (4, 2, [0.5, 1.0, 1.0, 0.5]),
        (5, 1, [1.0, 1.0, 0.75, 0.5, 0.25]),
        (5, 5, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (6, 3, [1 / 3, 2 / 3, 1.0, 1.0, 2 / 3, 1 / 3]),
    ],
)
def test_the_learning_rate_rises_and_falls_as_counted_by_hand(num_steps, warmup_steps, expected):
    assert scales(num_steps, warmup_steps=warmup_steps) == pytest.approx(expected)


def test_warm_up_by_shares_equals_warm_up_by_hand():
    assert linear(0.0, 0.025, warmup=0.05) == pytest.approx(0.5)
    assert linear(0.05, 0.10, warmup=0.05) == pytest.approx(1.0)
    assert linear(0.525, 0.55, warmup=0.05) == pytest.approx(0.5)
    assert linear(0.9, 1.0, warmup=0.0) == pytest.approx(0.1)


@given(before=SHARES, length=st.floats(1e-6, 1), warmup=SHARES)
def test_the_learning_rate_is_never_negative_nor_above_the_peak(before, length, warmup):
    scale = linear(before, before + length, warmup=warmup)
    assert 0 <= scale <= 1
    if before < 1:
        assert scale > 0


@given(before=st.floats(1, 5), length=st.floats(0, 1), warmup=st.floats(0, 0.99))
def test_nothing_is_left_after_the_end(before, length, warmup):
    assert linear(before, before + length, warmup=warmup) == 0


@given(num_steps=st.integers(1, 60), data=st.data())
def test_a_run_rises_to_the_peak_in_its_warm_up_and_falls_from_there(num_steps, data):
    warmup_steps = data.draw(st.integers(0, num_steps))
    found = scales(num_steps, warmup_steps=warmup_steps)
    assert len(found) == num_steps
    peak = max(warmup_steps, 1) - 1
    assert found[peak] == pytest.approx(1.0)
    assert found[: peak + 1] == sorted(found[: peak + 1])
    assert found[peak:] == sorted(found[peak:], reverse=True)


# ------------------------------------------------------------------------------------- the budget


@pytest.fixture
def clock(monkeypatch):
    """A clock that shows `now`, and starts nowhere in particular."""
    clock = SimpleNamespace(now=5_000.0)
    monkeypatch.setattr(schedule, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_budget_of_steps_does_not_look_at_the_clock(clock):
    budget = Budget(num_steps=4, max_seconds=None)
    assert budget.used() == 0.0
    clock.now += 1e6
    assert budget.used() == 0.0
    assert budget.used_after_next(0.0) == 0.25
    budget.count_step(1e6)
    assert budget.step == 1
    assert budget.used() == 0.25
    assert budget.used_after_next(0.25) == 0.5


@pytest.mark.usefixtures("clock")
def test_a_budget_of_steps_is_never_more_than_used_up():
    budget = Budget(num_steps=4, max_seconds=None)
    budget.start(step=7)
    assert budget.used() == 1.0


def test_a_budget_of_seconds_follows_the_clock(clock):
    budget = Budget(num_steps=0, max_seconds=60.0)
    assert budget.used() == 0.0
    clock.now += 15
    assert budget.used() == pytest.approx(0.25)
    assert budget.elapsed_seconds == pytest.approx(15)
    clock.now += 300
    assert budget.used() == 1.0
    assert budget.step == 0


def test_the_next_step_of_a_budget_of_seconds_should_last_as_long_as_the_last(clock):
    budget = Budget(num_steps=0, max_seconds=60.0)
    assert 0 < budget.used_after_next(0.0) < 0.001  # the first step: nothing is known yet
    clock.now += 6
    budget.count_step(6.0)
    assert budget.used_after_next(budget.used()) == pytest.approx(0.2)


def test_a_resumed_budget_goes_on_where_it_stopped(clock):
    budget = Budget(num_steps=0, max_seconds=60.0)
    clock.now += 1000
    budget.start(step=9, elapsed_seconds=30.0)
    assert budget.step == 9
    assert budget.used() == pytest.approx(0.5)
    clock.now += 3
    assert budget.elapsed_seconds == pytest.approx(33)
