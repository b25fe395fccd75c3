"""Work on a stream of items, some at a time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_as_completed(
    function: Callable[[Item], Awaitable[Result]], items: AsyncIterator[Item], limit: int
) -> AsyncGenerator[Result, None]:
    """Yields the results as they come. While ``limit`` are unfinished or untaken, no further item is read.

    That is the flow control: a caller who sends faster than we work, or who does not take the answers, has to wait.
    The first exception of either side ends everything.
    """
    working: set[asyncio.Task[Result]] = set()
    reading: asyncio.Task[Item] | None = None
    exhausted = False
    try:
        while working or not exhausted:
            if reading is None and not exhausted and len(working) < limit:
                reading = asyncio.ensure_future(_read(items))
            await asyncio.wait(_both(working, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading and reading.done():
                try:
                    working.add(asyncio.ensure_future(_call(function, reading.result())))
                except StopAsyncIteration:
                    exhausted = True
                reading = None
            for task in [task for task in working if task.done()]:
                yield task.result()
                working.remove(task)
    finally:
        unfinished = _both(working, reading)
        for waiting in unfinished:
            waiting.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


def _both(working: set[asyncio.Task[Result]], reading: asyncio.Task[Item] | None) -> list[asyncio.Task[Any]]:
    return [*working] if reading is None else [*working, reading]


async def _read(items: AsyncIterator[Item]) -> Item:
    return await anext(items)


async def _call(function: Callable[[Item], Awaitable[Result]], item: Item) -> Result:
    return await function(item)
