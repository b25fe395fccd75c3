"""What can go wrong with TF Serving behind a front, with two servers: with one of them, or with both."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.callers import CALLERS, steady
from benchmarks.chaos.processes import Front, Server, add_version, fronts
from benchmarks.chaos.report import Result, result

_BURST_SECONDS = 0.2  # of each second


@dataclass(frozen=True)
class Setting:
    model_dir: Path
    servers: Sequence[Server]
    front: Front

    async def each(self, *servers: Server, do: Callable[[Server], None]) -> None:
        await asyncio.gather(*(asyncio.to_thread(do, server) for server in servers or self.servers))


@dataclass(frozen=True)
class Scenario:
    """``trouble`` lasts as long as it is told; ``end`` puts things right."""

    name: str
    trouble: Callable[[Setting, float], Awaitable[None]]
    end: Callable[[Setting], Awaitable[None]]
    may_pass_through: bool = True
    callers: int = CALLERS


@asynccontextmanager
async def setting(model_dir: Path, folder: Path) -> AsyncIterator[Setting]:
    servers = [await asyncio.to_thread(Server, model_dir, folder) for _ in range(2)]
    settings = {
        "backend": "tf_serving",
        "tf_serving.addresses": [server.address for server in servers],
        "tf_serving.version_label": "stable",
    }
    try:
        async with fronts(model_dir, settings) as [front]:
            yield Setting(model_dir, servers, front)
    finally:
        for server in servers:
            server.kill()


async def run(scenario: Scenario, where: Setting, seconds: float) -> Result:
    """So many seconds before, during and after the trouble, each."""
    async with steady(where.front.address, scenario.callers) as records:
        await asyncio.sleep(seconds)
        began = time.monotonic()
        await scenario.trouble(where, seconds)
        await scenario.end(where)
        ended = time.monotonic()
        await asyncio.sleep(max(seconds, 8.0))
    return result(scenario.name, records, began, ended, may_pass_through=scenario.may_pass_through)


def scenarios() -> list[Scenario]:
    return [
        Scenario("one of two killed, started anew", _killed(1), _started),
        # More turns at once than the reserve of retries (resilience.retry.reserve_turns).
        Scenario("one of two killed, started anew, 40 callers", _killed(1), _started, callers=40),
        Scenario("both killed, started anew", _killed(2), _started),
        Scenario("one of two stalls", _fault("stall", 1), _cleared),
        Scenario("both stall", _fault("stall", 2), _cleared),
        Scenario("one of two slow (0.3 s)", _fault("slow", 1, wait=0.3), _cleared),
        Scenario("bursts of UNAVAILABLE from both", _bursts, _cleared),
        Scenario("one of two answers wrong shapes", _fault("wrong_shape", 1), _cleared),
        Scenario("both answer wrong shapes", _fault("wrong_shape", 2), _cleared),
        Scenario("one of two answers NaN", _fault("nan", 1), _cleared),
        Scenario("one of two hangs up and comes back", _down(1), _up),
        Scenario("both hang up and come back", _down(2), _up),
        Scenario("a new version is loaded", _new_version, _nothing, may_pass_through=False),
        Scenario("the label moves to it", _label_moves, _nothing, may_pass_through=False),
    ]


def _killed(count: int) -> Callable[[Setting, float], Awaitable[None]]:
    async def trouble(where: Setting, seconds: float) -> None:
        await where.each(*where.servers[:count], do=Server.kill)
        await asyncio.sleep(seconds)

    return trouble


def _fault(kind: str, count: int, wait: float = 0.0) -> Callable[[Setting, float], Awaitable[None]]:
    async def trouble(where: Setting, seconds: float) -> None:
        await where.each(*where.servers[:count], do=lambda server: server.order(fault=kind, seconds=wait))
        await asyncio.sleep(seconds)

    return trouble


async def _bursts(where: Setting, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await where.each(do=lambda server: server.order(fault="unavailable"))
        await asyncio.sleep(_BURST_SECONDS)
        await where.each(do=lambda server: server.order(clear=True))
        await asyncio.sleep(1 - _BURST_SECONDS)


def _down(count: int) -> Callable[[Setting, float], Awaitable[None]]:
    async def trouble(where: Setting, seconds: float) -> None:
        await where.each(*where.servers[:count], do=lambda server: server.order(down=True))
        await asyncio.sleep(seconds)

    return trouble


async def _new_version(where: Setting, seconds: float) -> None:
    await asyncio.to_thread(add_version, where.model_dir, 2)
    await where.each(do=lambda server: server.order(poll=True))
    await asyncio.sleep(seconds)


async def _label_moves(where: Setting, seconds: float) -> None:
    await where.each(do=lambda server: server.move_label(2))
    await asyncio.sleep(seconds)


async def _started(where: Setting) -> None:
    await where.each(do=Server.start)


async def _cleared(where: Setting) -> None:
    await where.each(do=lambda server: server.order(clear=True))


async def _up(where: Setting) -> None:
    await where.each(do=lambda server: server.order(up=True))


async def _nothing(where: Setting) -> None:
    pass
