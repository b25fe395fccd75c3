"""A server that is told to stop: nobody's call is broken off, and nobody can hold it up."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from front import FakeBackend, Front, front
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from saved_models import FINGERPRINT, write_model

from serving.embedded import EmbeddedBackend
from serving.pb import rewriter_pb2 as pb
from serving.server import SERVICE

pytestmark = pytest.mark.asyncio

# What nothing here may need, since everything ends by itself; the tests end in a fraction of it.
GRACE = 200


def request(request_id: str = "") -> pb.RewriteRequest:
    return pb.RewriteRequest(history=["西安今天的天气怎么样"], utterance="明天有雨吗", request_id=request_id)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    info = error_details_pb2.ErrorInfo()
    status = rpc_status.from_call(error)
    [packed] = [detail for detail in status.details if detail.Is(info.DESCRIPTOR)]
    packed.Unpack(info)
    return str(info.reason)


def silent_call(served: Front) -> Any:
    """A Rewrite whose message never comes."""

    async def messages() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    return served.channel.stream_unary(f"/{SERVICE}/Rewrite")(messages())


async def until_in_flight(served: Front, *methods: str) -> None:
    """What has not reached the server when it is told to stop, gRPC ends in its own way."""
    in_flight = served.server.observability.metrics.calls_in_flight
    while not all(in_flight(method)._value.get() for method in methods):
        await asyncio.sleep(0.01)


async def test_a_stream_is_told_to_end_once_everything_it_said_is_answered() -> None:
    backend = FakeBackend()
    async with front(backend, shutdown_grace_seconds=GRACE) as served:
        stream = served.stub.StreamRewrite()
        backend.open.clear()
        for name in ("one", "two"):
            await stream.write(pb.StreamRewriteRequest(request=request(name)))
        await backend.wait_until_asked(2)
        stopping = asyncio.create_task(served.server.stop())
        await asyncio.sleep(0)
        backend.open.set()
        answers = {(await stream.read()).request_id for _ in range(2)}
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        await stopping
    assert answers == {"one", "two"}
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert reason_of(raised.value) == "STOPPING"


async def test_a_stream_that_has_said_everything_ends_well() -> None:
    backend = FakeBackend()
    async with front(backend, shutdown_grace_seconds=GRACE) as served:
        stream = served.stub.StreamRewrite()
        backend.open.clear()
        await stream.write(pb.StreamRewriteRequest(request=request()))
        await stream.done_writing()
        await backend.wait_until_asked(1)
        stopping = asyncio.create_task(served.server.stop())
        backend.open.set()
        assert (await stream.read()).response.text == "西安明天有雨吗"
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        await stopping


async def test_a_stream_that_its_rate_limit_holds_up_does_not_hold_up_the_stop() -> None:
    limit = {"turns_per_second": 0.001, "burst_turns": 1}
    async with front(FakeBackend(), shutdown_grace_seconds=GRACE, rate_limit=limit) as served:
        stream = served.stub.StreamRewrite()
        for name in ("at once", "in a thousand seconds"):
            await stream.write(pb.StreamRewriteRequest(request=request(name)))
        assert (await stream.read()).request_id == "at once"
        while not served.server.observability.metrics.rate_limited.labels("address")._value.get():
            await asyncio.sleep(0.01)
        await asyncio.wait_for(served.server.stop(), 30)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert reason_of(raised.value) == "STOPPING"


async def test_those_who_only_wait_are_sent_away() -> None:
    async with front(FakeBackend(), shutdown_grace_seconds=GRACE) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        reflection = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo()
        await reflection.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        await reflection.read()
        silent = silent_call(served)
        idle = served.stub.StreamRewrite()
        await until_in_flight(served, "StreamRewrite", "Rewrite", "ServerReflectionInfo")
        await asyncio.wait_for(served.server.stop(), 30)
        assert await silent.code() is grpc.StatusCode.UNAVAILABLE
        assert await idle.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_call_whose_message_never_comes_is_ended_while_serving() -> None:
    async with front(FakeBackend(), resilience={"receive_seconds": 0.05}) as served:
        silent = silent_call(served)
        assert await silent.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await silent.details() == "expected a message within 0.05 seconds, found none"


async def test_a_model_that_hangs_does_not_hold_up_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = EmbeddedBackend(
        write_model(tmp_path) / "1", FINGERPRINT, max_batch_size=4, max_queue_size=4, close_seconds=0.05
    )
    hangs, go_on = threading.Event(), threading.Event()

    def hang(jobs: object) -> None:
        hangs.set()
        go_on.wait()

    monkeypatch.setattr(backend, "_run", hang)
    async with front(backend, shutdown_grace_seconds=0.05) as served:
        await backend.start()
        call = served.stub.Rewrite(request())
        await asyncio.to_thread(hangs.wait)
        assert backend.busy_seconds > 0
        await asyncio.wait_for(served.server.stop(), 30)
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    assert "is left behind" in caplog.text
    go_on.set()


async def test_a_backend_that_never_closes_is_left_behind() -> None:
    class Endless(FakeBackend):
        async def close(self) -> None:
            await asyncio.Event().wait()

    async with front(Endless(), resilience={"close_seconds": 0}) as served:
        await asyncio.wait_for(served.server.stop(), 30)
