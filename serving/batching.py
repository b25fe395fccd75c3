"""Dynamic batching, with no knowledge of what is batched.

An item runs at once when nothing is running; what arrives meanwhile is collected and runs together next. So nothing
ever waits for a batch to fill, and batches grow by themselves as the load does. Items of different kinds (of different
length, say) never share a batch.

No work is done for nothing: an item that would be late even if its batch were the fastest of the last few is not
accepted, and one that has waited too long for that is told so before the batch runs.
"""

import asyncio
import contextlib
import contextvars
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from serving.resilience.run_times import RunTimes

Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFull(Exception):
    """Too many items are waiting, or too many for this one to be in time; it was not accepted."""


class DeadlinePassed(Exception):
    """The item's deadline came before its result, or certainly would have."""


class BatcherClosed(Exception):
    """No more items are accepted."""


class BatchObserver(Protocol):
    """Is told what the batches look like; must be quick and must not raise."""

    def waiting(self, count: int) -> None:
        """So many items wait now."""

    def batch_ended(self, size: int, seconds: float) -> None:
        """A batch of so many items took so long, whether it failed or not."""

    def item_ended(self, queue_seconds: float, run_seconds: float) -> None:
        """Called in the task of the item's caller, for items that were run to an end."""


class NoObserver:
    """Is told, and tells nobody."""

    def waiting(self, count: int) -> None:
        pass

    def batch_ended(self, size: int, seconds: float) -> None:
        pass

    def item_ended(self, queue_seconds: float, run_seconds: float) -> None:
        pass


@dataclass(eq=False)
class _Waiting(Generic[Item, Result]):
    item: Item
    kind: Hashable
    deadline: float  # by the batcher's clock
    result: asyncio.Future[Result]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    submitted: float = field(default_factory=time.perf_counter)
    taken: float = 0.0


class Batcher(Generic[Item, Result]):
    """Collects the items of many tasks and gives them to ``run``, one batch at a time, oldest first."""

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        kind_of: Callable[[Item], Hashable],
        *,
        max_batch_size: int,
        max_queue_size: int,
        observer: BatchObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._kind_of = kind_of
        self._max_batch_size = max_batch_size
        self._max_queue_size = max_queue_size
        self._observer = observer or NoObserver()
        self._waiting: deque[_Waiting[Item, Result]] = deque()
        self._worker: asyncio.Task[None] | None = None  # None while there is nothing to do
        self._clock = clock
        self._run_times = RunTimes(clock)
        self._running: tuple[Hashable, float] | None = None  # the kind of the batch that runs, and since when
        self._closed = False

    async def submit(self, item: Item, timeout_seconds: float) -> Result:
        """Returns the item's result; raises what ``run`` raised, QueueFull, DeadlinePassed or BatcherClosed.

        An item whose caller is gone or whose deadline has passed leaves the queue and is never run.
        """
        kind = self._kind_of(item)
        self._check(kind, timeout_seconds)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(item, kind, self._clock() + timeout_seconds, loop.create_future())
        self._waiting.append(waiting)
        self._observer.waiting(len(self._waiting))
        if self._worker is None:
            # Works for many callers, and must not keep the context of the one that happened to come first.
            self._worker = loop.create_task(self._work(), context=contextvars.Context())
        try:
            async with asyncio.timeout(timeout_seconds):
                result: Result = await waiting.result
            self._observer.item_ended(waiting.taken - waiting.submitted, time.perf_counter() - waiting.taken)
            return result
        except TimeoutError:
            raise DeadlinePassed from None
        finally:
            if waiting.result.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiting.remove(waiting)
                    self._observer.waiting(len(self._waiting))

    async def close(self, patience_seconds: float | None = None) -> bool:
        """Finishes everything accepted so far; after ``patience_seconds``, what is left gets BatcherClosed.

        Returns whether everything was finished.
        """
        self._closed = True
        worker = self._worker
        if worker is None:
            return True
        _, unfinished = await asyncio.wait([worker], timeout=patience_seconds)
        if unfinished:
            worker.cancel()
            _fail(self._waiting, BatcherClosed())
        return not unfinished

    def _check(self, kind: Hashable, timeout_seconds: float) -> None:
        """Raises what ``submit`` does for an item that is not accepted."""
        if self._closed:
            raise BatcherClosed
        if len(self._waiting) >= self._max_queue_size:
            raise QueueFull
        needed = self._run_times.fastest(kind)
        if timeout_seconds < needed:
            raise DeadlinePassed
        if timeout_seconds < needed + self._shortest_wait():
            raise QueueFull

    def _shortest_wait(self) -> float:
        """Seconds until a new item can run, at best: all that is certain to run before it."""
        seconds = 0.0
        if self._running is not None:
            kind, since = self._running
            seconds += max(0.0, self._run_times.fastest(kind) - (self._clock() - since))
        if len(self._waiting) >= self._max_batch_size:
            for kind, count in Counter(waiting.kind for waiting in self._waiting).items():
                seconds += count // self._max_batch_size * self._run_times.fastest(kind)
        return seconds

    async def _work(self) -> None:
        while batch := self._next_batch():
            # What is sent for a batch belongs to the trace of its oldest item.
            await asyncio.get_running_loop().create_task(self._run_batch(batch), context=batch[0].context)
        self._worker = None

    def _next_batch(self) -> list[_Waiting[Item, Result]]:
        """Takes the oldest item still worth running, and the next ones of its kind."""
        alive = [waiting for waiting in self._waiting if self._can_be_in_time(waiting)]
        batch = [waiting for waiting in alive if waiting.kind == alive[0].kind][: self._max_batch_size]
        taken = set(map(id, batch))
        self._waiting = deque(waiting for waiting in alive if id(waiting) not in taken)
        self._observer.waiting(len(self._waiting))
        return batch

    def _can_be_in_time(self, waiting: _Waiting[Item, Result]) -> bool:
        """If not, its caller is told now."""
        if waiting.deadline - self._clock() > self._run_times.fastest(waiting.kind):
            return True
        _fail([waiting], DeadlinePassed())
        return False

    async def _run_batch(self, batch: Sequence[_Waiting[Item, Result]]) -> None:
        started = time.perf_counter()
        self._running = (batch[0].kind, self._clock())
        for waiting in batch:
            waiting.taken = started
        try:
            results = await self._run([waiting.item for waiting in batch])
            pairs = list(zip(batch, results, strict=True))
        except asyncio.CancelledError:
            _fail(batch, BatcherClosed())
            raise
        except Exception as error:
            _fail(batch, error)
            return
        finally:
            kind, since = self._running
            self._running = None
            self._observer.batch_ended(len(batch), time.perf_counter() - started)
        # Only of batches that did not fail: a failure may be quick.
        self._run_times.note(kind, self._clock() - since)
        for waiting, result in pairs:
            if not waiting.result.done():
                waiting.result.set_result(result)


def _fail(items: Iterable[_Waiting[Item, Result]], error: Exception) -> None:
    for waiting in items:
        if not waiting.result.done():
            waiting.result.set_exception(error)
