"""Dynamic batching, with no knowledge of what is batched.

An item runs at once when nothing is running; what arrives meanwhile is collected and runs together next. So nothing
ever waits for a batch to fill, and batches grow by themselves as the load does. Items of different kinds (of different
length, say) never share a batch.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFull(Exception):
    """Too many items are waiting; this one was not accepted."""


class DeadlinePassed(Exception):
    """The item's deadline came before its result."""


class BatcherClosed(Exception):
    """No more items are accepted."""


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[Item, Result]):
    item: Item
    kind: Hashable
    deadline: float  # by the loop's clock
    result: asyncio.Future[Result]


class Batcher(Generic[Item, Result]):
    """Collects the items of many tasks and gives them to ``run``, one batch at a time, oldest first."""

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        kind_of: Callable[[Item], Hashable],
        *,
        max_batch_size: int,
        max_queue_size: int,
    ) -> None:
        self._run = run
        self._kind_of = kind_of
        self._max_batch_size = max_batch_size
        self._max_queue_size = max_queue_size
        self._waiting: deque[_Waiting[Item, Result]] = deque()
        self._worker: asyncio.Task[None] | None = None  # None while there is nothing to do
        self._closed = False

    async def submit(self, item: Item, timeout_seconds: float) -> Result:
        """Returns the item's result; raises what ``run`` raised, QueueFull, DeadlinePassed or BatcherClosed.

        An item whose caller is gone or whose deadline has passed leaves the queue and is never run.
        """
        if self._closed:
            raise BatcherClosed
        if len(self._waiting) >= self._max_queue_size:
            raise QueueFull
        loop = asyncio.get_running_loop()
        waiting = _Waiting(item, self._kind_of(item), loop.time() + timeout_seconds, loop.create_future())
        self._waiting.append(waiting)
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        try:
            async with asyncio.timeout_at(waiting.deadline):
                result: Result = await waiting.result
                return result
        except TimeoutError:
            raise DeadlinePassed from None
        finally:
            if waiting.result.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiting.remove(waiting)

    async def close(self) -> None:
        """Finishes everything accepted so far."""
        self._closed = True
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        while batch := self._next_batch():
            await self._run_batch(batch)
        self._worker = None

    def _next_batch(self) -> list[_Waiting[Item, Result]]:
        """Takes the oldest item still worth running, and the next ones of its kind."""
        now = asyncio.get_running_loop().time()
        alive = [waiting for waiting in self._waiting if waiting.deadline > now]
        batch = [waiting for waiting in alive if waiting.kind == alive[0].kind][: self._max_batch_size]
        taken = set(map(id, batch))
        self._waiting = deque(waiting for waiting in alive if id(waiting) not in taken)
        return batch

    async def _run_batch(self, batch: Sequence[_Waiting[Item, Result]]) -> None:
        try:
            results = await self._run([waiting.item for waiting in batch])
            pairs = list(zip(batch, results, strict=True))
        except Exception as error:
            for waiting in batch:
                if not waiting.result.done():
                    waiting.result.set_exception(error)
            return
        for waiting, result in pairs:
            if not waiting.result.done():
                waiting.result.set_result(result)
