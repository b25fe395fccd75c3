"""The small parts: windows, retry budget, run times, outliers."""

import pytest
from clock import Clock

from serving.resilience.outliers import find_outliers
from serving.resilience.retries import RetryBudget
from serving.resilience.run_times import RunTimes
from serving.resilience.settings import LimitSettings, OutlierSettings, RetrySettings
from serving.resilience.windows import Totals, Window


def test_a_window_counts_what_happened_within_it() -> None:
    clock = Clock()
    window = Window(10, clock)
    window.succeeded(0.2)
    clock.advance(6)
    window.succeeded(0.4)
    window.failed()
    totals = window.totals()
    assert (totals.successes, totals.failures, totals.mean_seconds) == (2, 1, pytest.approx(0.3))
    assert totals.failure_share == pytest.approx(1 / 3)
    clock.advance(6)
    assert (window.totals().successes, window.totals().failures) == (1, 1)
    clock.advance(60)
    assert window.totals() == Totals()


def test_retries_are_a_share_of_all_turns() -> None:
    budget = RetryBudget(RetrySettings(percent=10, reserve_turns=3))
    retried = 0
    for _ in range(1000):
        budget.pay_in()
        retried += budget.take()
    assert 100 <= retried <= 103


def test_a_quiet_time_saves_up_no_more_than_the_reserve() -> None:
    budget = RetryBudget(RetrySettings(percent=10, reserve_turns=3))
    for _ in range(1000):
        budget.pay_in()
    assert [budget.take() for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("reserve", [0, 10])
def test_no_percent_is_no_retry(reserve: int) -> None:
    budget = RetryBudget(RetrySettings(percent=0, reserve_turns=reserve))
    for _ in range(100):
        budget.pay_in()
    assert not budget.take()


def test_a_budget_without_reserve_still_earns_retries() -> None:
    budget = RetryBudget(RetrySettings(percent=10, reserve_turns=0))
    assert not budget.take()
    for _ in range(10):
        budget.pay_in()
    assert budget.take()


def test_the_fastest_run_of_a_kind_is_what_it_needs_at_least() -> None:
    times = RunTimes(Clock())
    assert times.fastest("short") == 0.0
    for seconds in (0.3, 0.2, 5.0):
        times.note("short", seconds)
    times.note("long", 1.0)
    assert (times.fastest("short"), times.fastest("long")) == (0.2, 1.0)


def test_run_times_are_forgotten_so_that_a_slow_hour_is_not_for_ever() -> None:
    clock = Clock()
    times = RunTimes(clock)
    times.note("short", 5.0)
    clock.advance(4)
    assert times.fastest("short") == 5.0
    clock.advance(2)
    assert times.fastest("short") == 0.0


GOOD = Totals(successes=100, failures=0, seconds=2.0)
SLOW = Totals(successes=100, failures=0, seconds=10.0)
BAD = Totals(successes=70, failures=30, seconds=1.4)
SETTINGS = OutlierSettings()


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ({"a": GOOD, "b": GOOD, "c": GOOD}, []),
        ({"a": GOOD, "b": SLOW, "c": GOOD}, ["b"]),
        ({"a": GOOD, "b": BAD, "c": GOOD}, ["b"]),
        ({"a": BAD, "b": BAD, "c": BAD}, []),
        ({"a": SLOW}, []),
        ({"a": GOOD, "b": SLOW}, ["b"]),
        ({"a": GOOD, "b": Totals(successes=5, failures=5, seconds=5.0)}, []),
        ({"a": GOOD, "b": GOOD, "c": BAD, "d": SLOW, "e": GOOD}, ["c", "d"]),
        ({"a": GOOD, "b": GOOD, "c": GOOD, "d": SLOW, "e": BAD, "f": GOOD, "g": GOOD}, ["e", "d"]),
    ],
)
def test_an_address_out_of_line_with_the_others_is_found(totals: dict[str, Totals], expected: list[str]) -> None:
    assert list(find_outliers(totals, SETTINGS)) == expected


def test_no_more_than_a_share_of_the_addresses_is_left_alone() -> None:
    totals = {"a": GOOD, "b": GOOD, "c": GOOD, "d": SLOW, "e": BAD}
    assert list(find_outliers(totals, OutlierSettings(max_ejected_percent=20))) == ["e"]
    assert list(find_outliers(totals, SETTINGS, already_out=1)) == ["e", "d"]
    assert list(find_outliers({"a": GOOD, "b": SLOW}, SETTINGS, already_out=1)) == []
    assert list(find_outliers(totals, OutlierSettings(max_ejected_percent=0))) == []


def test_limits_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="min_turns <= initial_turns <= max_turns, found 8, 4, 512"):
        LimitSettings(initial_turns=4)
