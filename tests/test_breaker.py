import pytest
from clock import Clock

from serving.resilience.breaker import Breaker, State
from serving.resilience.settings import BreakerSettings

SETTINGS = BreakerSettings(
    failures_in_a_row=3, failure_percent=50, min_failures=4, window_seconds=10, open_seconds=1, max_open_seconds=4
)


def breaker(clock: Clock, *, random: float = 0.5, changes: list[State] | None = None) -> Breaker:
    noting = changes.append if changes is not None else lambda state: None
    return Breaker("there:8500", SETTINGS, clock, lambda: random, noting)


def fail(under_test: Breaker, times: int) -> None:
    for _ in range(times):
        under_test.failed(under_test.generation)


def succeed(under_test: Breaker, times: int) -> None:
    for _ in range(times):
        under_test.succeeded(under_test.generation, 0.02)


def readmit(under_test: Breaker, clock: Clock) -> None:
    clock.advance(under_test.seconds_to_probe() or 0.0)
    under_test.begin_probe()
    while not under_test.probe_answered():
        pass


def test_failures_in_a_row_open_it_and_one_success_between_them_does_not() -> None:
    under_test = breaker(Clock())
    fail(under_test, 2)
    succeed(under_test, 9)
    fail(under_test, 2)
    assert under_test.closed
    fail(under_test, 1)
    assert under_test.state is State.OPEN


def test_many_failures_among_successes_open_it() -> None:
    under_test = breaker(Clock())
    for _ in range(3):
        succeed(under_test, 1)
        fail(under_test, 1)
    assert under_test.closed
    succeed(under_test, 1)
    fail(under_test, 1)
    assert under_test.state is State.OPEN


def test_failures_before_the_window_do_not_count() -> None:
    clock = Clock()
    under_test = breaker(clock)
    for _ in range(20):
        succeed(under_test, 1)
        fail(under_test, 1)
        clock.advance(5)
    assert under_test.closed


def test_it_closes_after_enough_probes_and_only_when_it_is_time_for_them() -> None:
    clock = Clock()
    under_test = breaker(clock)
    fail(under_test, 3)
    assert under_test.seconds_to_probe() == pytest.approx(1.0)
    clock.advance(2)
    assert under_test.seconds_to_probe() == 0.0
    under_test.begin_probe()
    assert under_test.seconds_to_probe() is None
    assert not under_test.probe_answered()
    assert not under_test.closed
    assert under_test.probe_answered()
    assert under_test.closed


def test_it_stays_open_longer_each_time_up_to_a_limit() -> None:
    clock, pauses = Clock(), []
    under_test = breaker(clock)
    fail(under_test, 3)
    for _ in range(5):
        pauses.append(under_test.seconds_to_probe())
        clock.advance(10)
        under_test.begin_probe()
        under_test.probe_failed()
    assert pauses == pytest.approx([1, 2, 4, 4, 4])


def test_a_relapse_opens_it_for_longer_and_a_good_minute_is_forgiveness() -> None:
    clock = Clock()
    under_test = breaker(clock)
    fail(under_test, 3)
    readmit(under_test, clock)
    fail(under_test, 3)
    assert under_test.seconds_to_probe() == pytest.approx(2.0)
    readmit(under_test, clock)
    clock.advance(61)
    fail(under_test, 3)
    assert under_test.seconds_to_probe() == pytest.approx(1.0)


@pytest.mark.parametrize(("random", "seconds"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_fronts_that_lost_one_server_together_do_not_come_back_together(random: float, seconds: float) -> None:
    under_test = breaker(Clock(), random=random)
    fail(under_test, 3)
    assert under_test.seconds_to_probe() == pytest.approx(seconds)


def test_calls_from_before_a_change_of_state_say_nothing_after_it() -> None:
    clock = Clock()
    under_test = breaker(clock)
    before = under_test.generation
    fail(under_test, 3)
    readmit(under_test, clock)
    for _ in range(10):
        under_test.failed(before)
    assert under_test.closed
    assert under_test.totals().calls == 0


def test_every_change_of_state_is_told() -> None:
    clock, changes = Clock(), []
    under_test = breaker(clock, changes=changes)
    fail(under_test, 3)
    readmit(under_test, clock)
    under_test.trip("out of line")
    assert changes == [State.OPEN, State.PROBING, State.CLOSED, State.OPEN]
