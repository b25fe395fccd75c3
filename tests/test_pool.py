import asyncio
import contextlib

import pytest
from clock import Clock
from front import features
from members import CONVERSATION, FakeReplica, Told, pool

from serving.answer import Model
from serving.backend import (
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    BackendUnreachable,
    BrokenAnswer,
    ModelChanged,
    Prediction,
)
from serving.resilience.limits import patient
from serving.resilience.pool import Pool

pytestmark = pytest.mark.asyncio


class Misfit(FakeReplica):
    async def start(self) -> None:
        raise BackendUnavailable("of another vocabulary")


async def ask(under_test: Pool, seconds: float = 2.0) -> Prediction:
    served = under_test.serving("")
    source = served.features.encode(CONVERSATION)
    [found] = await served.predict([source], beam=False, timeout_seconds=seconds)
    return found


async def ask_often(under_test: Pool, times: int) -> int:
    """Returns how many were answered."""
    answered = 0
    for _ in range(times):
        with contextlib.suppress(BackendError):
            await ask(under_test)
            answered += 1
    return answered


def two(clock: Clock | None = None) -> tuple[FakeReplica, FakeReplica]:
    clock = clock or Clock()
    return FakeReplica("one", clock), FakeReplica("two", clock)


async def test_addresses_take_turns_when_none_is_busier() -> None:
    one, other = two()
    under_test = pool([one, other])
    await under_test.start()
    assert await ask_often(under_test, 10) == 10
    assert (len(one.asked), len(other.asked)) == (5, 5)
    await under_test.close()
    assert one.closed and other.closed


async def test_the_least_busy_address_is_asked() -> None:
    one, other = two()
    under_test = pool([one, other])
    await under_test.start()
    one.open.clear()
    asking = [asyncio.create_task(ask(under_test)) for _ in range(2)]
    await one.wait_until_asked(1)
    assert await ask_often(under_test, 8) == 8
    assert len(one.asked) == 1  # the one that stalls keeps what it has
    one.open.set()
    await asyncio.gather(*asking)
    await under_test.close()


async def test_a_turn_that_was_not_received_is_asked_once_more_elsewhere() -> None:
    one, other = two()
    told = Told()
    under_test = pool([one, other], told)
    await under_test.start()
    one.trouble = BackendUnreachable("down")
    assert await ask_often(under_test, 4) == 4
    assert told.events.count(("retried", True)) == len(one.asked) > 0
    await under_test.close()


async def test_a_single_address_is_asked_once_more_after_a_pause_and_no_more_than_once() -> None:
    clock, told = Clock(), Told()
    only = FakeReplica("only", clock)
    under_test = pool([only], told)
    await under_test.start()
    only.trouble = BackendUnreachable("down")
    with pytest.raises(BackendUnreachable):
        await ask(under_test)
    assert len(only.asked) == 2
    assert clock.slept == [0.025]
    assert told.events == [("retried", False)]
    await under_test.close()


@pytest.mark.parametrize("trouble", [BackendUnavailable("failed"), BackendTimeout("late"), BrokenAnswer("nonsense")])
async def test_no_other_trouble_is_retried(trouble: BackendError) -> None:
    one, other = two()
    under_test = pool([one, other])
    await under_test.start()
    one.trouble = other.trouble = trouble
    with pytest.raises(type(trouble)):
        await ask(under_test)
    assert len(one.asked) + len(other.asked) == 1
    await under_test.close()


async def test_retries_end_with_their_budget() -> None:
    clock, told = Clock(), Told()
    only = FakeReplica("only", clock)
    never = {"failures_in_a_row": 1000, "min_failures": 1000}
    under_test = pool([only], told, retry={"reserve_turns": 3, "percent": 10}, breaker=never)
    await under_test.start()
    only.trouble = BackendUnreachable("down")
    assert await ask_often(under_test, 50) == 0
    assert told.events.count(("retried", False)) in (7, 8)
    assert told.events.count(("retry refused",)) == 50 - told.events.count(("retried", False))
    await under_test.close()


async def test_no_retry_when_the_time_is_used_up() -> None:
    one, other = two()
    one.takes_seconds = other.takes_seconds = 3.0
    under_test = pool([one, other])
    await under_test.start()
    one.trouble = other.trouble = BackendUnreachable("down, after a long while")
    with pytest.raises(BackendError):
        await ask(under_test, 2.0)
    assert len(one.asked) + len(other.asked) == 1
    await under_test.close()


async def test_a_retry_at_an_address_with_another_version_makes_the_sources_anew() -> None:
    clock = Clock()
    one = FakeReplica("one", clock)
    other = FakeReplica("two", clock, Model("fake", "8", "another"))
    under_test = pool([one, other])
    await under_test.start()
    one.trouble = BackendUnreachable("down")
    with pytest.raises(ModelChanged):
        for _ in range(2):
            await ask(under_test)
    await under_test.close()


async def test_an_address_that_fails_is_left_alone_until_it_answers_probes() -> None:
    one, other = two()
    under_test = pool([one, other])
    await under_test.start()
    one.trouble = BrokenAnswer("nonsense")
    await ask_often(under_test, 10)
    asked = len([timeout for timeout in one.timeouts if timeout == 2.0])
    assert asked >= 5
    assert await ask_often(under_test, 10) == 10
    one.trouble = None
    for _ in range(50):
        await asyncio.sleep(0)
    one.asked.clear()
    await ask_often(under_test, 10)
    assert len(one.asked) == 5
    await under_test.close()


async def test_with_every_breaker_open_the_answer_is_unavailable_at_once_and_the_pool_unusable() -> None:
    one, other = two()
    under_test = pool([one, other])
    await under_test.start()
    assert under_test.usable
    one.trouble = other.trouble = BackendUnavailable("failed")
    for _ in range(10):
        with contextlib.suppress(BackendError):
            source = features().encode(CONVERSATION)
            await under_test.predict([source], beam=False, timeout_seconds=2.0)
    assert not under_test.usable
    with pytest.raises(BackendUnreachable):
        await ask(under_test)
    await under_test.close()


async def test_a_turn_that_would_be_refused_is_refused_before_its_arrays_are_made() -> None:
    only = FakeReplica("only", Clock())
    under_test = pool([only], limit={"initial_turns": 1, "min_turns": 1, "max_turns": 1})
    await under_test.start()
    under_test.serving("").check()
    only.open.clear()
    asking = asyncio.create_task(ask(under_test))
    await only.wait_until_asked(1)
    with pytest.raises(BackendOverloaded):
        under_test.serving("").check()
    with patient():
        under_test.serving("").check()
    only.open.set()
    await asking
    only.trouble = BackendUnavailable("failed")
    await ask_often(under_test, 5)
    with pytest.raises(BackendUnreachable):
        under_test.serving("").check()
    await under_test.close()


async def test_an_address_much_slower_than_the_others_is_ejected_and_readmitted_by_a_probe() -> None:
    clock, told = Clock(), Told()
    replicas = [FakeReplica(name, clock) for name in ("one", "two", "three")]
    under_test = pool(replicas, told)
    await under_test.start()
    replicas[2].takes_seconds = 0.2
    await ask_often(under_test, 75)
    assert ("ejected", "three") in told.events
    replicas[2].takes_seconds = 0.02
    for _ in range(50):
        await asyncio.sleep(0)
    asked = len(replicas[2].asked)
    await ask_often(under_test, 9)
    assert len(replicas[2].asked) == asked + 3
    await under_test.close()


async def test_an_address_that_is_not_ready_is_asked_only_if_no_other_is() -> None:
    one, other = two()
    under_test = pool([one, other])
    await under_test.start()
    one.ready = False
    await ask_often(under_test, 6)
    assert (len(one.asked), len(other.asked)) == (0, 6)
    other.ready = False
    assert not under_test.usable
    assert await ask_often(under_test, 6) == 6
    await under_test.close()


async def test_the_start_needs_one_address_and_fails_if_none_will_ever_be_there() -> None:
    one, other = two()
    one.open.clear()
    under_test = pool([one, other])
    await under_test.start()
    assert await ask_often(under_test, 2) == 2
    await under_test.close()
    hopeless = pool([Misfit("one", Clock())])
    with pytest.raises(BackendUnavailable, match="another vocabulary"):
        await hopeless.start()
    await hopeless.close()


async def test_an_address_that_did_not_fit_at_the_start_is_asked_once_it_does() -> None:
    clock = Clock()
    good, misfit = FakeReplica("good", clock), Misfit("misfit", clock)
    misfit.ready = False
    under_test = pool([good, misfit])
    await under_test.start()
    await ask_often(under_test, 6)
    assert (len(good.asked), len(misfit.asked)) == (6, 0)
    misfit.ready = True
    await ask_often(under_test, 6)
    assert (len(good.asked), len(misfit.asked)) == (9, 3)
    await under_test.close()


async def test_an_address_that_is_not_there_keeps_no_other_from_being_ejected() -> None:
    clock, told = Clock(), Told()
    replicas = [FakeReplica(name, clock) for name in ("one", "two", "nowhere")]
    replicas[2].open.clear()
    under_test = pool(replicas, told)
    await under_test.start()
    replicas[1].takes_seconds = 0.2
    await ask_often(under_test, 75)
    assert ("ejected", "two") in told.events
    await under_test.close()
