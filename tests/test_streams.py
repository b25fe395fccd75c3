import asyncio
from collections.abc import AsyncIterator

import pytest

from serving.streams import map_as_completed

pytestmark = pytest.mark.asyncio


class Numbers:
    """An endless stream that counts how many numbers were taken from it."""

    def __init__(self, end: int) -> None:
        self.taken = 0
        self.end = end

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        if self.taken == self.end:
            raise StopAsyncIteration
        self.taken += 1
        return self.taken


async def double(number: int) -> int:
    return 2 * number


async def test_every_item_is_answered() -> None:
    results = [result async for result in map_as_completed(double, Numbers(20), 3)]
    assert sorted(results) == list(range(2, 42, 2))


async def test_an_empty_stream_has_no_results() -> None:
    assert [result async for result in map_as_completed(double, Numbers(0), 3)] == []


async def test_results_come_as_they_are_ready() -> None:
    second_is_done = asyncio.Event()

    async def slow_first(number: int) -> int:
        if number == 1:
            await second_is_done.wait()
        return number

    results = map_as_completed(slow_first, Numbers(2), 2)
    assert await anext(results) == 2
    second_is_done.set()
    assert await anext(results) == 1


async def test_no_more_is_read_while_the_limit_is_at_work() -> None:
    reached, release = asyncio.Semaphore(0), asyncio.Event()

    async def stuck(number: int) -> int:
        reached.release()
        await release.wait()
        return number

    numbers = Numbers(100)
    results = map_as_completed(stuck, numbers, 4)
    first = asyncio.ensure_future(anext(results))
    for _ in range(4):
        await reached.acquire()
    assert numbers.taken == 4
    release.set()
    await first
    assert numbers.taken == 4  # nobody has taken the other three results yet
    await results.aclose()


async def test_leaving_early_cancels_the_work() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck_second(number: int) -> int:
        if number == 1:
            await started.wait()
            return number
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return number

    results = map_as_completed(stuck_second, Numbers(2), 2)
    assert await anext(results) == 1
    await results.aclose()
    assert cancelled.is_set()


async def test_an_error_ends_the_stream() -> None:
    async def broken(number: int) -> int:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        async for _ in map_as_completed(broken, Numbers(5), 2):
            pass
