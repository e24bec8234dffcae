"""The learning rate over a run, counted by hand, and the clock that decides how far it is."""

import dataclasses
import itertools
import math
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.config import SCHEDULES, PretrainConfig
from bertpt.training import schedule
from bertpt.training.schedule import (
    Budget,
    constant,
    cosine,
    google,
    linear,
    make_budget,
    make_schedule,
    wsd,
)

SHARES = st.floats(0, 1)
RISING = ("linear", "cosine", "constant", "wsd")  # all that begin with a step above 0
FALLING = ("linear", "cosine", "wsd")  # those of them that end near 0


def scales(num_steps, *, name="linear", warmup, decay=None):
    """The shares of the peak that the steps of a run get."""
    config = PretrainConfig(steps=num_steps, schedule=name, warmup=warmup, decay=decay).resolve()
    of_step = make_schedule(config, num_steps)
    budget = make_budget(config, steps_per_epoch=1)
    found = []
    while budget.used() < 1:
        found.append(of_step(*budget.next_step()))
        budget.count_step(0.0)
    return found


def steps_or_shares(num_steps):
    """What --warmup and --decay take."""
    return st.integers(0, num_steps).map(float) | st.floats(0, 1, exclude_max=True)


@st.composite
def runs(draw, names):
    """The arguments of `scales` for any run that is not refused."""
    num_steps, name = draw(st.integers(1, 60)), draw(st.sampled_from(names))
    run = {"num_steps": num_steps, "name": name, "warmup": draw(steps_or_shares(num_steps))}
    if name == "wsd":
        left = num_steps - math.ceil(share(run["warmup"], num_steps) * num_steps)
        run["decay"] = float(draw(st.integers(0, left)))
    return run


def share(length, num_steps):
    """A length in steps, or already in shares, in shares."""
    return length if length < 1 else length / num_steps


# ------------------------------------------------------------------------------- counted by hand


@pytest.mark.parametrize(
    ("num_steps", "warmup", "expected"),
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
def test_the_learning_rate_rises_and_falls_as_counted_by_hand(num_steps, warmup, expected):
    assert scales(num_steps, warmup=warmup) == pytest.approx(expected)


# (1 + cos 45 degrees) / 2 and (1 - cos 45 degrees) / 2
HIGH, LOW = (2 + math.sqrt(2)) / 4, (2 - math.sqrt(2)) / 4
TEN_STEPS = {
    "linear": [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8],
    "constant": [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    # A step counts what is done before it: of the last four steps 0, 1/4, 2/4 and 3/4.
    "wsd": [0.5, 1, 1, 1, 1, 1, 1, 1 - 0.5, 1 - math.sqrt(0.5), 1 - math.sqrt(0.75)],
    # global_step / 2 while that is below 1; then 1 - global_step / 10, as if there had been none
    "google": [0, 0.5, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1],
}


@pytest.mark.parametrize("name", TEN_STEPS)
def test_ten_steps_with_two_of_warm_up_are_as_counted_by_hand(name):
    decay = 4 if name == "wsd" else None
    assert scales(10, name=name, warmup=2, decay=decay) == pytest.approx(TEN_STEPS[name])


def test_a_cosine_over_eight_steps_is_as_counted_by_hand():
    expected = [(1 + math.cos(math.pi * k / 8)) / 2 for k in range(8)]
    assert expected[2:7:4] == pytest.approx([HIGH, LOW])
    assert scales(10, name="cosine", warmup=2) == pytest.approx([0.5, 1, *expected])


@pytest.mark.parametrize("name", TEN_STEPS)
def test_shares_of_a_run_mean_what_as_many_steps_do(name):
    decay, steps = (0.4, 4) if name == "wsd" else (None, None)
    by_share = scales(10, name=name, warmup=0.2, decay=decay)
    assert by_share == pytest.approx(scales(10, name=name, warmup=2, decay=steps))


def test_warm_up_by_shares_equals_warm_up_by_hand():
    assert linear(0.0, 0.025, warmup=0.05) == pytest.approx(0.5)
    assert linear(0.05, 0.10, warmup=0.05) == pytest.approx(1.0)
    assert linear(0.525, 0.55, warmup=0.05) == pytest.approx(0.5)
    assert linear(0.9, 1.0, warmup=0.0) == pytest.approx(0.1)


def test_a_decay_is_a_fifth_of_a_run_unless_given():
    assert scales(50, name="wsd", warmup=0) == scales(50, name="wsd", warmup=0, decay=10)


def test_google_rounds_a_warm_up_down_to_full_steps():
    # int(30 * 0.05) is 1: only the first step is one of warm-up, and its rate is 0.
    expected = [0, *(1 - step / 30 for step in range(1, 30))]
    assert scales(30, name="google", warmup=0.05) == pytest.approx(expected)
    assert scales(10, name="google", warmup=0.05)[0] == 1.0  # int(0.5) is none


@given(num_steps=st.integers(1, 300), data=st.data())
def test_google_equals_the_formula_of_google_at_every_step(num_steps, data):
    num_warmup_steps = data.draw(st.integers(0, num_steps))
    expected = [
        step / num_warmup_steps if step < num_warmup_steps else 1 - step / num_steps
        for step in range(num_steps)
    ]
    found = scales(num_steps, name="google", warmup=float(num_warmup_steps))
    assert found == pytest.approx(expected)


# ------------------------------------------------------------------------------ what always holds


def test_every_schedule_of_the_settings_is_there():
    assert {*RISING, "google"} == set(SCHEDULES)
    for name in SCHEDULES:
        assert len(scales(3, name=name, warmup=1)) == 3


OF_SHARES = {
    "linear": linear,
    "cosine": cosine,
    "constant": constant,
    "google": google,
    **{f"wsd {decay}": partial(wsd, decay=decay) for decay in (0.0, 1e-9, 0.2, 1.0)},
}


@pytest.mark.parametrize("name", OF_SHARES)
@given(before=SHARES, length=st.floats(1e-6, 1), warmup=SHARES)
def test_the_learning_rate_is_never_negative_nor_above_the_peak(name, before, length, warmup):
    scale = OF_SHARES[name](before, before + length, warmup=warmup)
    assert 0 <= scale <= 1
    if before < 1 and name != "google":
        assert scale > 0


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd 0.2"])
@given(before=st.floats(1, 5), length=st.floats(0, 1), warmup=st.floats(0, 0.99))
def test_nothing_is_left_after_the_end(name, before, length, warmup):
    assert OF_SHARES[name](before, before + length, warmup=warmup) == 0


@given(run=runs(RISING))
def test_no_step_is_at_zero_or_above_the_peak(run):
    found = scales(**run)
    assert len(found) == run["num_steps"]
    assert min(found) > 0
    assert max(found) <= 1


@given(run=runs(["google"]))
def test_google_wastes_its_first_step_in_a_warm_up_and_no_other(run):
    found = scales(**run)
    assert (found[0] == 0) == (share(run["warmup"], run["num_steps"]) * run["num_steps"] >= 1)
    assert all(0 < scale <= 1 for scale in found[1:])


@given(run=runs(RISING))
def test_all_but_google_rise_alike_and_never_again(run):
    found, num_steps = scales(**run), run["num_steps"]
    warmup = share(run["warmup"], num_steps)
    num_rising = math.floor(warmup * num_steps + 1e-9)
    expected = [(step + 1) / (warmup * num_steps) for step in range(num_rising)]
    assert found[:num_rising] == pytest.approx(expected)
    assert found[num_rising + 1 :] == sorted(found[num_rising + 1 :], reverse=True)


@given(run=runs(["constant", "wsd"]))
def test_between_warm_up_and_decay_the_learning_rate_is_exactly_the_peak(run):
    num_steps = run["num_steps"]
    first = math.ceil(share(run["warmup"], num_steps) * num_steps)
    last = num_steps - int(run.get("decay", 0))
    assert scales(**run)[first:last] == [1.0] * (last - first)


@given(run=runs(FALLING))
def test_what_falls_ends_within_a_steps_share_of_zero(run):
    num_steps = run["num_steps"]
    length = run["decay"] if run["name"] == "wsd" else num_steps - run["warmup"]
    if length >= 1 and run["warmup"] >= 1:
        assert scales(**run)[-1] <= 1 / length + 1e-9


@given(run=runs(RISING))
def test_no_jump_is_bigger_than_a_steps_progress_allows(run):
    found, num_steps = scales(**run), run["num_steps"]
    warmup = share(run["warmup"], num_steps)
    rising = 1 / num_steps / warmup if warmup else 0.0
    falling = {
        "linear": 1 / num_steps / (1 - warmup) if warmup < 1 else 0.0,
        "cosine": math.pi / 2 / num_steps / (1 - warmup) if warmup < 1 else 0.0,
        "constant": 0.0,
        "wsd": 1 / math.sqrt(run["decay"]) if run.get("decay") else 0.0,
    }[run["name"]]
    for one, other in itertools.pairwise(found):
        assert -falling - 1e-9 <= other - one <= rising + 1e-9


def test_google_drops_where_the_warm_up_ends():
    found = scales(100, name="google", warmup=40)
    assert found[39] == pytest.approx(39 / 40)
    assert found[40] == pytest.approx(60 / 100)


@given(num_steps=st.integers(1, 60), data=st.data())
def test_without_a_decay_wsd_is_constant(num_steps, data):
    warmup = data.draw(steps_or_shares(num_steps))
    without = scales(num_steps, name="wsd", warmup=warmup, decay=0.0)
    assert without == scales(num_steps, name="constant", warmup=warmup)


@given(num_steps=st.integers(1, 60))
def test_a_run_that_is_all_warm_up_is_the_same_for_all_but_google(num_steps):
    expected = [(step + 1) / num_steps for step in range(num_steps)]
    for name in RISING:
        decay = 0.0 if name == "wsd" else None
        found = scales(num_steps, name=name, warmup=float(num_steps), decay=decay)
        assert found == pytest.approx(expected)


@given(warmup=st.floats(0, 0.99), done=SHARES)
def test_a_cosine_is_above_a_line_at_first_and_below_it_later(warmup, done):
    before = warmup + done * (1 - warmup)
    difference = cosine(before, 1, warmup=warmup) - linear(before, 1, warmup=warmup)
    assert (difference if done < 0.5 else -difference) >= -1e-9
    if done == 0.5:
        assert difference == pytest.approx(0)


@given(num_steps=st.integers(1, 60), data=st.data())
def test_a_run_rises_to_the_peak_in_its_warm_up_and_falls_from_there(num_steps, data):
    warmup_steps = data.draw(st.integers(0, num_steps))
    found = scales(num_steps, warmup=float(warmup_steps))
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
    assert budget.next_step() == (0.0, 0.25)
    budget.count_step(1e6)
    assert budget.step == 1
    assert budget.used() == 0.25
    assert budget.next_step() == (0.25, 0.5)


@pytest.mark.usefixtures("clock")
def test_a_budget_of_steps_never_exceeds_1():
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
    before, after = budget.next_step()
    assert before < after < 0.001  # the first step: nothing is known yet
    clock.now += 6
    budget.count_step(6.0)
    assert budget.next_step() == pytest.approx((0.1, 0.2))


def test_a_resumed_budget_continues_where_it_stopped(clock):
    budget = Budget(num_steps=0, max_seconds=60.0)
    clock.now += 1000
    budget.start(step=9, elapsed_seconds=30.0)
    assert budget.step == 9
    assert budget.used() == pytest.approx(0.5)
    clock.now += 3
    assert budget.elapsed_seconds == pytest.approx(33)


@pytest.mark.parametrize("name", RISING)
def test_a_run_resumed_at_half_its_minutes_continues_at_half_the_schedule(clock, name):
    config = PretrainConfig(max_minutes=10, schedule=name, warmup=0.1).resolve()
    of_step = make_schedule(config, 0)

    def go_on(budget, num_steps):
        """Steps of 3 s; where they begin and what they get."""
        found = []
        for _ in range(num_steps):
            found.append((budget.elapsed_seconds, of_step(*budget.next_step())))
            clock.now += 3
            budget.count_step(3.0)
        return found

    whole = make_budget(config, 1)
    expected = go_on(whole, 200)
    assert whole.used() == 1.0

    stopped = make_budget(config, 1)
    found = go_on(stopped, 100)
    clock.now += 86_400  # a day in which nothing runs
    resumed = make_budget(config, 1)
    clock.now += 50  # nor does what comes before the first step count
    resumed.start(step=100, elapsed_seconds=300.0)
    assert resumed.used() == pytest.approx(0.5)
    found += go_on(resumed, 100)
    assert resumed.used() == 1.0
    assert found == [pytest.approx(one, abs=1e-9) for one in expected]


@given(
    name=st.sampled_from(FALLING),
    steps=st.lists(st.floats(0.5, 2.0), min_size=200, max_size=200),
    pauses=st.floats(0, 5),
)
def test_a_run_of_minutes_ends_in_time_near_zero_whatever_the_steps_last(name, steps, pauses):
    config = PretrainConfig(max_minutes=1, schedule=name, warmup=0.05).resolve()
    of_step, now = make_schedule(config, 0), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "time", SimpleNamespace(monotonic=lambda: now))
        budget = make_budget(config, 1)
        while budget.used() < 1:
            if budget.step % 10 == 9 and budget.has_time_for_pause():
                now += pauses
                budget.count_pause(pauses)
            scale = of_step(*budget.next_step())
            now += steps[budget.step]
            budget.count_step(steps[budget.step])
        assert now < 60 + 2.0 + (pauses if budget.step < 20 else 0)
    assert scale <= 2.0 / 60 / (0.2 if name == "wsd" else 0.95)


def test_a_pause_that_would_outlast_the_run_is_not_taken(clock):
    budget = Budget(num_steps=0, max_seconds=60.0)
    clock.now += 20
    assert budget.has_time_for_pause()  # nothing is known yet
    budget.count_pause(12.0)
    budget.count_pause(2.0)
    clock.now += 27
    assert budget.has_time_for_pause()
    clock.now += 2
    assert not budget.has_time_for_pause()


@pytest.mark.usefixtures("clock")
def test_a_budget_of_steps_always_has_time_for_a_pause():
    budget = Budget(num_steps=4, max_seconds=None)
    budget.start(step=3)
    budget.count_pause(1e6)
    assert budget.has_time_for_pause()


@pytest.mark.parametrize(
    ("name", "jumps"), [("linear", True), ("cosine", True), ("constant", False), ("wsd", False)]
)
def test_more_steps_count_as_if_given_at_the_start(name, jumps):
    config = PretrainConfig(steps=10, schedule=name, warmup=2.0).resolve()
    longer = dataclasses.replace(config, steps=20)
    old, new = make_budget(config, 1), make_budget(longer, 1)
    old.start(step=8)
    new.start(step=8)
    before, after = (
        make_schedule(c, b.num_steps)(*b.next_step()) for c, b in ((config, old), (longer, new))
    )
    assert (after > before + 1e-6) == jumps
    assert after == scales(20, name=name, warmup=2.0)[8]
