import asyncio
from collections.abc import AsyncIterator

import pytest

from serving.draining import Drain, Draining, NoMessage, Stopping, receive

pytestmark = pytest.mark.asyncio


async def messages(*items: str, then: asyncio.Event | None = None) -> AsyncIterator[str]:
    for item in items:
        yield item
    if then is not None:
        await then.wait()


async def test_a_message_that_comes_is_received() -> None:
    assert await receive(messages("one", "two"), 10, Drain()) == "one"


async def test_a_message_that_never_comes_is_waited_for_no_longer_than_that() -> None:
    with pytest.raises(NoMessage, match="within 0.01 seconds"):
        await receive(messages(then=asyncio.Event()), 0.01, Drain())


async def test_a_caller_who_says_that_he_is_done_and_said_nothing_has_sent_no_message() -> None:
    with pytest.raises(NoMessage):
        await receive(messages(), 10, Drain())


async def test_whoever_waits_for_a_message_is_sent_away_when_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.draining._LAST_MESSAGE_SECONDS", 0.01)
    drain = Drain()
    receiving = asyncio.create_task(receive(messages(then=asyncio.Event()), 1000, drain))
    await asyncio.sleep(0)
    drain.begin()
    with pytest.raises(Stopping):
        await receiving


async def test_the_server_stops_well_at_the_moment_at_which_somebody_has_waited_long_enough() -> None:
    drain = Drain()
    receiving = asyncio.create_task(receive(messages(then=asyncio.Event()), 0, drain))
    for _ in range(2):
        await asyncio.sleep(0)
    [(limit, _)] = drain._waiting
    assert limit.expired()
    drain.begin()
    with pytest.raises(Stopping):
        await receiving


async def test_a_message_on_its_way_when_the_server_stops_still_counts() -> None:
    drain, arrives = Drain(), asyncio.Event()

    async def late() -> AsyncIterator[str]:
        await arrives.wait()
        yield "late"

    receiving = asyncio.create_task(receive(late(), 1000, drain))
    await asyncio.sleep(0)
    drain.begin()
    arrives.set()
    assert await receiving == "late"


async def test_items_come_through_to_their_end() -> None:
    items = Draining(messages("one", "two"), Drain())
    assert [item async for item in items] == ["one", "two"]
    assert not items.cut


async def test_items_end_when_the_drain_begins_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.draining._LAST_MESSAGE_SECONDS", 0.01)
    drain = Drain()
    items = Draining(messages("one", then=asyncio.Event()), drain)

    async def read() -> list[str]:
        return [item async for item in items]

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    drain.begin()
    assert await reading == ["one"]
    assert items.cut


async def test_items_that_never_end_do_when_the_drain_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.draining._LAST_MESSAGE_SECONDS", 0.05)

    async def endless() -> AsyncIterator[int]:
        while True:
            await asyncio.sleep(0)
            yield 1

    drain = Drain()
    items = Draining(endless(), drain)
    drain.begin()
    assert [item async for item in items]
    assert items.cut


async def test_what_begins_to_wait_after_the_drain_does_not_wait() -> None:
    drain = Drain()
    drain.begin()
    with pytest.raises(TimeoutError):
        async with drain.cutting_short(1000):
            await asyncio.Event().wait()


async def test_an_exception_of_the_items_is_theirs() -> None:
    async def broken() -> AsyncIterator[str]:
        raise RuntimeError("broken")
        yield ""

    with pytest.raises(RuntimeError, match="broken"):
        [item async for item in Draining(broken(), Drain())]
