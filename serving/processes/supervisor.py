"""Starts workers, keeps as many of them running as there should be, and ends with them."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from serving.processes.restarts import Restarts

_LOGGER = logging.getLogger(__name__)

# What a worker ends with when its settings or its model cannot be used. At first, trying again would not help; later,
# something of the kind may only be out of reach for a while.
UNUSABLE = 2
_FIRST_SECONDS = 60.0


class Process(Protocol):
    """What is needed of ``asyncio.subprocess.Process``."""

    pid: int

    def send_signal(self, number: int) -> None: ...

    async def wait(self) -> int: ...


class Observer(Protocol):
    def started(self, pid: int) -> None: ...

    def ended(self, pid: int) -> None: ...


class Supervisor:
    """``start`` starts the worker of a number. ``stop_seconds`` is what a worker may take to end."""

    def __init__(
        self,
        workers: int,
        start: Callable[[int], Awaitable[Process]],
        observer: Observer,
        *,
        stop_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._workers = workers
        self._start = start
        self._observer = observer
        self._stop_seconds = stop_seconds
        self._clock = clock
        self._sleep = sleep
        self._processes: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Returns the status to end with, once told to stop or if no worker can be used; no worker is left then."""
        keeping = [asyncio.create_task(self._keep(number)) for number in range(self._workers)]
        await self._stopping.wait()
        self.tell(signal.SIGTERM)
        _, unfinished = await asyncio.wait(keeping, timeout=self._stop_seconds)
        if unfinished:
            _LOGGER.error("%d workers did not end within %.0f s and are killed", len(unfinished), self._stop_seconds)
            self.tell(signal.SIGKILL)
            await asyncio.wait(unfinished)
        return self._status

    def stop(self) -> None:
        self._stopping.set()

    def tell(self, number: int) -> None:
        """Sends a signal to every worker."""
        for process in self._processes.values():
            _send(process, number)

    async def _keep(self, number: int) -> None:
        restarts, first = Restarts(), self._clock()
        while not self._stopping.is_set():
            began = self._clock()
            status = await self._live(number)
            lived = self._clock() - began
            if self._stopping.is_set():
                return
            if status == UNUSABLE and began - first < _FIRST_SECONDS:
                _LOGGER.error("worker %d cannot use its settings or its model: stopping", number)
                self._status = UNUSABLE
                self.stop()
                return
            pause = restarts.pause_seconds(lived)
            _LOGGER.warning("worker %d lived for %.1f s, starting anew in %.1f s", number, lived, pause)
            await self._pause(pause)

    async def _live(self, number: int) -> int:
        try:
            process = self._processes[number] = await self._start(number)
        except OSError as error:
            _LOGGER.error("worker %d cannot be started: %s", number, error)
            return 1
        self._observer.started(process.pid)
        _LOGGER.info("worker %d is process %d", number, process.pid)
        if self._stopping.is_set():
            _send(process, signal.SIGTERM)  # it was not there yet when the others were told
        status = await process.wait()
        del self._processes[number]
        self._observer.ended(process.pid)
        _LOGGER.info("worker %d ended with status %d", number, status)
        return status

    async def _pause(self, seconds: float) -> None:
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._sleep(seconds)),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _send(process: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        process.send_signal(number)
