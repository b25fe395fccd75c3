import asyncio
from collections.abc import Iterator

import pytest
from clock import Clock

from serving.backend import BackendOverloaded
from serving.resilience.limits import AdaptiveLimit, Places, patient
from serving.resilience.settings import LimitSettings

SETTINGS = LimitSettings(target_seconds=0.5, initial_turns=20, min_turns=4, max_turns=30, bulk_share=0.5)


def turns(limit: AdaptiveLimit, clock: Clock, seconds: float, *, windows: int = 1, in_flight: int = 20) -> None:
    """So many windows of ten turns that all took so long."""
    for _ in range(windows):
        clock.advance(max(0.11, seconds))
        for _ in range(10):
            limit.note(seconds, in_flight)


def test_fast_turns_raise_the_limit_by_one_each_window_up_to_the_most() -> None:
    clock, told = Clock(), []
    limit = AdaptiveLimit(SETTINGS, clock, told.append)
    turns(limit, clock, 0.02, windows=3)
    assert limit.turns == 23
    turns(limit, clock, 0.02, windows=50)
    assert limit.turns == 30
    assert told == list(range(21, 31))


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    clock = Clock()
    limit = AdaptiveLimit(SETTINGS, clock)
    turns(limit, clock, 0.02, windows=20, in_flight=9)
    assert limit.turns == 20


@pytest.mark.parametrize(("seconds", "expected"), [(0.51, 18), (0.625, 16), (5.0, 10)])
def test_slow_turns_cut_the_limit_by_how_slow_they_are(seconds: float, expected: int) -> None:
    clock = Clock()
    limit = AdaptiveLimit(SETTINGS, clock)
    turns(limit, clock, seconds)
    assert limit.turns == expected


def test_the_limit_never_falls_below_the_least() -> None:
    clock = Clock()
    limit = AdaptiveLimit(SETTINGS, clock)
    turns(limit, clock, 5.0, windows=20)
    assert limit.turns == 4


def test_a_slow_turn_in_ten_changes_nothing_and_two_do() -> None:
    clock = Clock()
    limit = AdaptiveLimit(SETTINGS, clock)
    clock.advance(0.11)
    for seconds in [0.02] * 9 + [2.0]:
        limit.note(seconds, 5)
    assert limit.turns == 20
    clock.advance(0.3)
    for seconds in [0.02] * 8 + [2.0, 2.0]:
        limit.note(seconds, 5)
    assert limit.turns < 20


def test_one_slow_round_trip_is_one_cut() -> None:
    clock = Clock()
    limit = AdaptiveLimit(SETTINGS, clock)
    clock.advance(1.0)
    for _ in range(200):
        limit.note(1.0, 20)
    assert limit.turns == 10


def test_a_few_turns_of_a_quiet_hour_conclude_nothing() -> None:
    clock = Clock()
    limit = AdaptiveLimit(SETTINGS, clock)
    for _ in range(100):
        clock.advance(10)
        limit.note(2.0, 1)
    assert limit.turns == 20


def test_the_limit_settles_where_the_latency_is_the_target() -> None:
    """A server that answers 100 turns a second, whatever waits: with n at once, each takes n / 100 seconds."""
    clock = Clock()
    limit = AdaptiveLimit(LimitSettings(target_seconds=0.5, initial_turns=400), clock)
    for _ in range(200):
        turns(limit, clock, limit.turns / 100, in_flight=limit.turns)
    assert 40 <= limit.turns <= 52


def places(turns: int, bulk_share: float = 0.5) -> Places:
    settings = LimitSettings(initial_turns=turns, min_turns=1, max_turns=turns, bulk_share=bulk_share)
    return Places(AdaptiveLimit(settings, Clock()), settings)


@pytest.fixture
def be_patient() -> Iterator[None]:
    with patient():
        yield


async def waiting(under_test: Places, count: int, seconds: float = 30.0) -> list[asyncio.Task[None]]:
    async def wait() -> None:
        with patient():
            await under_test.take(seconds)

    tasks = [asyncio.create_task(wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.asyncio
async def test_a_turn_beyond_the_limit_is_refused_at_once() -> None:
    under_test = places(2)
    await under_test.take(30)
    await under_test.take(30)
    with pytest.raises(BackendOverloaded):
        await under_test.take(30)
    under_test.give_back(0.02)
    await under_test.take(30)


@pytest.mark.asyncio
async def test_the_patient_wait_in_order_and_leave_places_for_the_others() -> None:
    under_test = places(4)
    first, second, third, fourth = await waiting(under_test, 4)
    assert (first.done(), second.done(), third.done()) == (True, True, False)
    await under_test.take(30)
    assert under_test.in_use == 3
    under_test.give_back(0.02)
    await asyncio.sleep(0)
    assert not third.done()  # two of theirs are still in
    under_test.give_back(0.02)
    await third
    assert not fourth.done()
    fourth.cancel()
    await asyncio.wait([fourth])
    assert under_test.in_use == 2


@pytest.mark.asyncio
async def test_patience_ends_and_leaves_no_place_taken() -> None:
    under_test = places(2)
    [first] = await waiting(under_test, 1)
    [second] = await waiting(under_test, 1, seconds=0.01)
    with pytest.raises(BackendOverloaded):
        await second
    under_test.give_back(0.02)
    assert under_test.in_use == 0
    await first


@pytest.mark.asyncio
async def test_whoever_is_let_in_and_leaves_at_the_same_moment_gives_the_place_back() -> None:
    under_test = places(2)
    [first, second, third] = await waiting(under_test, 3)
    under_test.give_back(0.02)  # lets the second in, who does not know it yet
    second.cancel()
    await asyncio.wait([second, third])
    assert (second.cancelled(), third.done(), under_test.in_use) == (True, True, 1)
    await first
