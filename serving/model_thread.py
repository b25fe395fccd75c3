"""The one thread that the model runs on. It may hang for ever; nothing else has to wait for it then."""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")

_Work = Callable[[], None]

# A nicer model lets the event loop go first: in a flood, turns are refused in 4 ms in the middle instead of 30.
_NICER = 5


class ModelThread:
    """Runs one function after the other. A daemon: a process does not wait for it to end, as for a pool's threads."""

    def __init__(self, name: str = "model", clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def busy_seconds(self) -> float:
        """How long the function that runs now has been running; 0 if none does."""
        since = self._busy_since
        return 0.0 if since is None else self._clock() - since

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Raises what the function raises. Cancelled, it still runs to its end, which nobody hears of."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def work() -> None:
            try:
                result = function(*arguments)
            except BaseException as error:
                _tell(loop, future, future.set_exception, error)
            else:
                _tell(loop, future, future.set_result, result)

        self._work.put(work)
        return await future

    def close(self) -> None:
        """The thread ends when it has done what it was given; returns at once."""
        self._work.put(None)

    def _run(self) -> None:
        _give_way()
        while (work := self._work.get()) is not None:
            self._busy_since = self._clock()
            work()
            self._busy_since = None


def _give_way() -> None:
    """This thread, and those that TensorFlow starts from it, get the processor after the rest of the process."""
    if sys.platform == "linux":  # elsewhere a priority is a whole process's
        with contextlib.suppress(OSError):  # a sandbox may forbid it, and then it is as it was
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICER)


def _tell(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", say: Callable[[Any], None], what: Any
) -> None:
    def tell() -> None:
        if not future.done():
            say(what)

    # A loop that is closed has nobody left who waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(tell)
