"""The end of a server: what is in flight ends by itself, so that nothing has to be broken off.

Calls whose message has arrived are answered. Streams are read no further: everything read is answered, then the stream
ends. Whoever only waits (for a message, for changes of health) is sent away.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")

# A message that was on its way when the drain began still counts, and so does the end of a stream.
_LAST_MESSAGE_SECONDS = 0.5


class Stopping(Exception):
    """The server is stopping and did not get to the rest of this call; another server may."""


class NoMessage(Exception):
    """A call began, and its message did not come."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"expected a message within {seconds:g} seconds, found none")


class NoWholeMessage(NoMessage):
    """A call ended before its message: gRPC drops one that is far too large, and nobody else does this."""

    def __init__(self) -> None:
        Exception.__init__(self, "expected one whole message, found none")


class Drain:
    """``begin`` it once, inside the event loop of those who wait."""

    def __init__(self) -> None:
        self._begun_at: float | None = None
        self._waiting: set[tuple[asyncio.Timeout, float]] = set()

    @property
    def begun(self) -> bool:
        return self._begun_at is not None

    def begin(self) -> None:
        self._begun_at = asyncio.get_running_loop().time()
        for limit, grace_seconds in self._waiting:
            if not limit.expired():
                limit.reschedule(self._begun_at + grace_seconds)

    @asynccontextmanager
    async def cutting_short(self, seconds: float | None = None, grace_seconds: float = 0.0) -> AsyncIterator[None]:
        """What is awaited within raises TimeoutError: after ``seconds``, or so long after the drain has begun."""
        when = None if seconds is None else asyncio.get_running_loop().time() + seconds
        if self._begun_at is not None:
            when = self._begun_at + grace_seconds
        async with asyncio.timeout_at(when) as limit:
            entry = (limit, grace_seconds)
            self._waiting.add(entry)
            try:
                yield
            finally:
                self._waiting.discard(entry)


async def receive(messages: AsyncIterator[Item], seconds: float, drain: Drain) -> Item:
    """Returns the first message. Raises NoMessage or Stopping."""
    try:
        async with drain.cutting_short(seconds, min(_LAST_MESSAGE_SECONDS, seconds)):
            return await anext(messages)
    except StopAsyncIteration:
        raise NoWholeMessage from None
    except TimeoutError:
        raise (Stopping() if drain.begun else NoMessage(seconds)) from None


class Draining(Generic[Item]):
    """The items until the drain begins; ``cut`` says why no more were taken, though they had not come to an end."""

    def __init__(self, items: AsyncIterator[Item], drain: Drain) -> None:
        self.cut: Exception | None = None
        self._items = items
        self._drain = drain

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        try:
            async with self._drain.cutting_short(grace_seconds=_LAST_MESSAGE_SECONDS):
                return await anext(self._items)
        except TimeoutError:
            self.cut = Stopping()
            raise StopAsyncIteration from None
