import asyncio
import contextlib
import math

import pytest
from clock import Clock
from front import features, hypothesis
from members import CONVERSATION, FakeReplica, Told, member

from serving.backend import (
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    BackendUnreachable,
    BrokenAnswer,
    ModelChanged,
    Prediction,
    UnfinishedAnswer,
)
from serving.resilience.breaker import State
from serving.resilience.limits import patient
from serving.resilience.member import Member

pytestmark = pytest.mark.asyncio


async def ask(under_test: Member, seconds: float = 2.0) -> Prediction:
    source = features().encode(CONVERSATION)
    [found] = await under_test.ask(under_test.serving(""), [source], beam=False, timeout_seconds=seconds)
    return found


async def fail(under_test: Member, times: int, seconds: float = 2.0) -> None:
    for _ in range(times):
        with contextlib.suppress(BackendError):
            await ask(under_test, seconds)


async def at_once(under_test: Member, replica: FakeReplica, turns: int) -> int:
    """Returns how many of them were let in."""
    replica.open.clear()
    asking = [asyncio.create_task(ask(under_test, 20)) for _ in range(turns)]
    for _ in range(5):
        await asyncio.sleep(0)
    replica.open.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    return sum(isinstance(result, Prediction) for result in results)


async def started(replica: FakeReplica, told: Told | None = None, **changes: object) -> Member:
    under_test = member(replica, told, **changes)
    await under_test.start()
    return under_test


async def test_a_good_answer_comes_through_as_it_is() -> None:
    replica = FakeReplica("there", Clock())
    under_test = await started(replica)
    assert (await ask(under_test, 1.5)).hypotheses[0].finished
    assert replica.timeouts == [1.5]
    assert under_test.usable


@pytest.mark.parametrize(
    ("trouble", "opens"),
    [
        (BackendUnavailable("down"), True),
        (BackendUnreachable("down"), True),
        (BrokenAnswer("nonsense"), True),
        (BackendTimeout("late"), True),
        (UnfinishedAnswer("endless"), False),
        (BackendOverloaded("full"), False),
        (ModelChanged("moved"), False),
        (asyncio.CancelledError(), False),
    ],
)
async def test_the_breaker_opens_for_faults_of_the_model_and_nothing_else(trouble: BaseException, opens: bool) -> None:
    replica = FakeReplica("there", Clock())
    under_test = await started(replica)
    replica.trouble = trouble
    for _ in range(8):
        with contextlib.suppress(BackendError, asyncio.CancelledError):
            await ask(under_test)
    assert under_test.breaker.closed is not opens
    assert under_test.load == 0


async def test_callers_in_a_hurry_do_not_open_the_breaker() -> None:
    replica = FakeReplica("there", Clock())
    under_test = await started(replica)
    replica.trouble = BackendTimeout("late")
    await fail(under_test, 20, seconds=0.3)
    assert under_test.breaker.closed


async def test_a_call_cancelled_at_its_deadline_is_a_timeout() -> None:
    replica = FakeReplica("there", Clock())
    under_test = await started(replica)
    replica.trouble, replica.takes_seconds = asyncio.CancelledError(), 1.99
    for _ in range(5):
        with pytest.raises(asyncio.CancelledError):
            await ask(under_test, 2.0)
    assert not under_test.breaker.closed


async def test_a_probability_that_is_none_is_a_broken_answer() -> None:
    replica = FakeReplica("there", Clock())
    under_test = await started(replica)
    replica.answer = lambda source: Prediction((hypothesis([17], log_prob=math.nan),))
    with pytest.raises(BrokenAnswer):
        await ask(under_test)


async def test_an_open_breaker_refuses_at_once_without_asking() -> None:
    replica, told = FakeReplica("there", Clock()), Told()
    under_test = await started(replica, told)
    replica.trouble = BackendUnavailable("down")
    await fail(under_test, 5)
    with pytest.raises(BackendUnreachable, match="left alone"):
        await ask(under_test)
    assert len(replica.asked) == 5
    assert told.events == [("refused", "open")]
    assert not under_test.usable


async def test_failures_before_the_start_do_not_count() -> None:
    replica = FakeReplica("there", Clock())
    under_test = member(replica)
    replica.trouble = BackendUnavailable("not loaded yet")
    await fail(under_test, 20)
    assert under_test.breaker.closed
    assert not under_test.usable


async def test_a_call_with_less_time_than_the_model_needs_is_refused_at_once() -> None:
    replica, told = FakeReplica("there", Clock()), Told()
    replica.takes_seconds = 0.2
    under_test = await started(replica, told)
    await ask(under_test)
    with pytest.raises(BackendTimeout):
        await ask(under_test, 0.1)
    assert len(replica.asked) == 1
    assert told.events == [("refused", "time")]


async def test_turns_beyond_the_limit_are_refused_and_the_patient_wait() -> None:
    replica, told = FakeReplica("there", Clock()), Told()
    limit = {"initial_turns": 2, "min_turns": 1, "max_turns": 2, "bulk_share": 0.5}
    under_test = await started(replica, told, limit=limit)
    replica.open.clear()
    first = [asyncio.create_task(ask(under_test)) for _ in range(2)]
    await replica.wait_until_asked(2)
    with pytest.raises(BackendOverloaded):
        await ask(under_test)
    assert told.events == [("refused", "limit")]
    with patient():
        waiting = asyncio.create_task(ask(under_test))
    await asyncio.sleep(0)
    replica.open.set()
    await asyncio.gather(*first, waiting)
    assert len(replica.asked) == 3


async def test_whoever_waited_gets_only_what_is_left_of_the_time() -> None:
    replica = FakeReplica("there", Clock())
    limit = {"initial_turns": 1, "min_turns": 1, "max_turns": 1}
    under_test = await started(replica, limit=limit)
    replica.takes_seconds = 0.5
    replica.open.clear()
    with patient():
        asking = [asyncio.create_task(ask(under_test, 2.0)) for _ in range(2)]
    await replica.wait_until_asked(1)
    await asyncio.sleep(0)
    replica.open.set()
    await asyncio.gather(*asking)
    assert replica.timeouts == pytest.approx([2.0, 1.5])


async def test_slow_turns_lower_the_limit() -> None:
    replica = FakeReplica("there", Clock())
    under_test = await started(replica, limit={"target_seconds": 0.1, "initial_turns": 10})
    replica.takes_seconds = 0.5
    assert await at_once(under_test, replica, 10) == 10
    assert await at_once(under_test, replica, 10) == 8


async def test_an_open_breaker_is_probed_when_it_is_time_and_closes_when_the_probes_are_answered() -> None:
    clock, told = Clock(), Told()
    replica = FakeReplica("there", clock)
    under_test = await started(replica, told)
    recovering = asyncio.create_task(under_test.recover())
    replica.trouble = BackendUnavailable("down")
    await fail(under_test, 5)
    while len(clock.slept) < 3:
        await asyncio.sleep(0)
    assert clock.slept == pytest.approx([0.5, 1.0, 2.0])
    replica.trouble = None
    while not under_test.breaker.closed:
        await asyncio.sleep(0)
    assert {event[2] for event in told.events if event[0] == "probed"} == {False, True}
    assert under_test.usable
    await ask(under_test)
    replica.trouble = BackendUnavailable("down again")
    await fail(under_test, 5)
    assert under_test.breaker.state is State.OPEN
    replica.trouble = None
    while not under_test.breaker.closed:
        await asyncio.sleep(0)
    recovering.cancel()
    await asyncio.wait([recovering])


async def test_a_probe_that_gets_nonsense_is_no_answer() -> None:
    clock, told = Clock(), Told()
    replica = FakeReplica("there", clock)
    under_test = await started(replica, told)
    recovering = asyncio.create_task(under_test.recover())
    replica.answer = lambda source: Prediction((hypothesis([17], log_prob=math.nan),))
    await fail(under_test, 5)
    while len(told.events) < 2:
        await asyncio.sleep(0)
    assert told.events[:2] == [("probed", "there", False)] * 2
    recovering.cancel()
    await asyncio.wait([recovering])
