"""What health means here, by the name that is asked for (``grpc.health.v1``); docs/resilience.md says who asks what.

``""``                            the process: NOT_SERVING means that only a restart helps
``"rewriter.v1.RewriterService"`` ready for calls: NOT_SERVING means that another server should get them
``"model"``                       rewrites: NOT_SERVING means that turns are passed through just now

A front without a model still answers every turn, at once, with the turn itself; without a front, a chatbot waits for
nothing. So the second does not follow the third, unless an operator says so.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from serving.draining import Drain
from serving.pb import rewriter_pb2 as pb
from serving.resilience.settings import HealthSettings

PROCESS = ""
SERVICE: str = pb.DESCRIPTOR.services_by_name["RewriterService"].full_name
MODEL = "model"

_Response = health_pb2.HealthCheckResponse
_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Condition:
    """What is known of a server. ``warm``: its model has answered once."""

    warm: bool = False
    stopping: bool = False
    model_usable: bool = True
    seconds_without_model: float = 0.0
    seconds_stuck: float = 0.0


def statuses(condition: Condition, settings: HealthSettings) -> dict[str, bool]:
    """True is SERVING."""
    patience = settings.not_ready_without_model_seconds
    up = condition.warm and not condition.stopping
    process = up and condition.seconds_stuck < settings.stuck_seconds
    given_up = patience is not None and not condition.model_usable and condition.seconds_without_model >= patience
    return {PROCESS: process, SERVICE: process and not given_up, MODEL: process and condition.model_usable}


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # gRPC has no types
    """Answers with what was ``set`` last; whoever watches is told each change, and sent away by the drain."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._statuses = dict.fromkeys((PROCESS, SERVICE, MODEL), False)
        self._changed = asyncio.Event()

    def set(self, serving: Mapping[str, bool]) -> None:
        if serving != self._statuses:
            self._statuses = dict(serving)
            self._changed.set()
            self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "expected a known service, found another one")
        return _Response(status=self._status(request.service))

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext) -> None:
        last: int | None = None
        while True:
            changed, status = self._changed, self._status(request.service)
            if status != last:
                await context.write(_Response(status=status))
                last = status
            try:
                async with self._drain.cutting_short():
                    await changed.wait()
            except TimeoutError:
                if self._status(request.service) == last:
                    return

    def _status(self, service: str) -> int:
        if service not in self._statuses:
            return int(_Response.SERVICE_UNKNOWN)
        return int(_Response.SERVING if self._statuses[service] else _Response.NOT_SERVING)


class ModelState(Protocol):
    def usable(self) -> bool:
        """False while turns are passed through for want of a model."""

    def seconds_stuck(self) -> float:
        """How long a model in this process has been at one batch."""


class AlwaysUsable:
    """Of a backend that says nothing about itself."""

    def usable(self) -> bool:
        return True

    def seconds_stuck(self) -> float:
        return 0.0


class HealthWatch:
    """Keeps the health of a server in line with its model, and with ``warm`` and ``stopping``; ``look`` to apply them.

    ``stuck`` is set once only a restart helps.
    """

    def __init__(
        self,
        health: Health,
        settings: HealthSettings,
        model: ModelState,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.warm = False
        self.stopping = False
        self.stuck = asyncio.Event()
        self._health = health
        self._settings = settings
        self._model = model
        self._clock = clock
        self._usable_at = clock()

    def look(self) -> None:
        now = self._clock()
        usable, seconds_stuck = self._model.usable(), self._model.seconds_stuck()
        if usable or not self.warm:
            self._usable_at = now
        condition = Condition(self.warm, self.stopping, usable, now - self._usable_at, seconds_stuck)
        self._health.set(statuses(condition, self._settings))
        if self.warm:
            self.look_for_hang()

    def look_for_hang(self) -> None:
        """For a model that is not warm yet, once it has had the time for its first answers."""
        if self._model.seconds_stuck() >= self._settings.stuck_seconds:
            self.stuck.set()

    async def keep(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Looks until cancelled."""
        while True:
            self.look()
            await sleep(_LOOK_SECONDS)
