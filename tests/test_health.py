import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from serving.draining import Drain
from serving.health import MODEL, PROCESS, SERVICE, Condition, Health, statuses
from serving.resilience.settings import HealthSettings

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.mark.parametrize(
    ("condition", "process", "service", "model"),
    [
        (Condition(), False, False, False),
        (Condition(warm=True), True, True, True),
        (Condition(warm=True, model_usable=False, seconds_without_model=1e6), True, True, False),
        (Condition(warm=True, seconds_stuck=59), True, True, True),
        (Condition(warm=True, seconds_stuck=60), False, False, False),
        (Condition(warm=True, stopping=True), False, False, False),
    ],
)
def test_the_process_the_service_and_the_model_have_a_health_of_their_own(
    condition: Condition, process: bool, service: bool, model: bool
) -> None:
    assert statuses(condition, HealthSettings()) == {PROCESS: process, SERVICE: service, MODEL: model}


@pytest.mark.parametrize(("seconds", "ready"), [(29.0, True), (30.0, False)])
def test_an_operator_may_want_fronts_without_a_model_to_get_no_calls(seconds: float, ready: bool) -> None:
    condition = Condition(warm=True, model_usable=False, seconds_without_model=seconds)
    found = statuses(condition, HealthSettings(not_ready_without_model_seconds=30))
    assert (found[PROCESS], found[SERVICE], found[MODEL]) == (True, ready, False)


@asynccontextmanager
async def served(health: Health) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield health_pb2_grpc.HealthStub(channel)
    await server.stop(0)


def asked(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


@pytest.mark.asyncio
async def test_whoever_asks_is_told_by_name() -> None:
    health = Health(Drain())
    async with served(health) as stub:
        assert (await stub.Check(asked(SERVICE))).status == NOT_SERVING
        health.set({PROCESS: True, SERVICE: True, MODEL: False})
        found = [(await stub.Check(asked(name))).status for name in (PROCESS, SERVICE, MODEL)]
        assert found == [SERVING, SERVING, NOT_SERVING]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Check(asked("another"))
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.asyncio
async def test_whoever_watches_is_told_each_change_and_sent_away_by_the_drain_with_the_last_word() -> None:
    drain = Drain()
    health = Health(drain)
    async with served(health) as stub:
        watch, unknown = stub.Watch(asked(SERVICE)), stub.Watch(asked("another"))
        assert (await watch.read()).status == NOT_SERVING
        assert (await unknown.read()).status == SERVICE_UNKNOWN
        health.set({PROCESS: True, SERVICE: True, MODEL: True})
        assert (await watch.read()).status == SERVING
        health.set({PROCESS: True, SERVICE: False, MODEL: True})
        drain.begin()
        assert (await watch.read()).status == NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        assert await asyncio.wait_for(unknown.read(), 10) is grpc.aio.EOF
