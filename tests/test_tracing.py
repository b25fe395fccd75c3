"""Spans as a collector gets them, and the way of a trace from the caller to the model."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from front import FakeBackend, failing_with, front
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rewriter.features import Source
from serving.backend import BackendUnavailable, Prediction
from serving.batch_metrics import BatchMetrics
from serving.batching import Batcher
from serving.call import Call, Observability, add_stages, stage
from serving.config import TracingSettings
from serving.metrics import Metrics
from serving.pb import rewriter_pb2 as pb
from serving.tf_serving.endpoint import Endpoint
from serving.tf_serving.settings import TFServingSettings
from serving.tracing import Tracing, connect, trace_id, trace_metadata

pytestmark = pytest.mark.asyncio

HISTORY = ["西安今天的天气怎么样"]
UTTERANCE = "明天有雨吗"
REQUEST = pb.RewriteRequest(history=HISTORY, utterance=UTTERANCE)
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = (("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "vendor=1"))


class Recorder:
    """Keeps spans in memory, as they end."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observability = Observability(Metrics(), Tracing(provider.get_tracer("test")))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.spans if span.name == name]
        return found


class NotingBackend(FakeBackend):
    """Notes what it would send along with a call of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, str]] = []

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        with stage("model"):
            self.sent.append(dict(trace_metadata()))
            return await super().predict(sources, beam=beam, timeout_seconds=timeout_seconds)


def hex_id(number: int, digits: int = 16) -> str:
    return f"{number:0{digits}x}"


async def test_a_call_is_a_span_of_the_callers_trace_and_its_parts_are_spans_below_it() -> None:
    recorder, backend = Recorder(), NotingBackend()
    async with front(backend, observability=recorder.observability) as served:
        await served.stub.Rewrite(REQUEST, metadata=SAMPLED)
    call = recorder.span("rewriter.v1.RewriterService/Rewrite")
    assert call.context is not None and call.parent is not None and call.attributes is not None
    assert (hex_id(call.context.trace_id, 32), hex_id(call.parent.span_id)) == (TRACE, PARENT)
    turn = recorder.span("turn")
    assert turn.parent is not None and turn.parent.span_id == call.context.span_id
    for name in ("tokenise", "model"):
        span = recorder.span(name)
        assert span.parent is not None and turn.context is not None
        assert span.parent.span_id == turn.context.span_id
    model = recorder.span("model").context
    assert model is not None
    assert backend.sent == [{"traceparent": f"00-{TRACE}-{hex_id(model.span_id)}-01", "tracestate": "vendor=1"}]
    assert call.attributes["rpc.response.status_code"] == "OK"
    assert call.attributes["rewriter.outcomes"] == ("REWRITTEN",)


async def test_every_turn_of_a_batch_and_a_stream_has_its_own_spans_below_the_call() -> None:
    async def requests() -> AsyncIterator[pb.StreamRewriteRequest]:
        for _ in range(3):
            yield pb.StreamRewriteRequest(request=REQUEST)

    recorder, backend = Recorder(), NotingBackend()
    async with front(backend, observability=recorder.observability) as served:
        await served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[REQUEST] * 2))
        async for _ in served.stub.StreamRewrite(requests()):
            pass
    contexts = {
        name: recorder.span(f"rewriter.v1.RewriterService/{name}").context for name in ("BatchRewrite", "StreamRewrite")
    }
    for name, count in (("BatchRewrite", 2), ("StreamRewrite", 3)):
        found = contexts[name]
        assert found is not None
        below = [span for span in recorder.spans if span.parent and span.parent.span_id == found.span_id]
        assert [span.name for span in below] == ["turn"] * count
    assert len({sent["traceparent"] for sent in backend.sent}) == 5


async def test_a_failed_call_is_a_failed_span_that_tells_the_type_of_the_error_and_no_more() -> None:
    recorder = Recorder()
    request = pb.RewriteRequest(history=HISTORY, utterance=UTTERANCE, failure_mode=pb.FAILURE_MODE_ERROR)
    async with front(failing_with(RuntimeError(UTTERANCE)), observability=recorder.observability) as served:
        with pytest.raises(grpc.aio.AioRpcError):
            await served.stub.Rewrite(request)
    call = recorder.span("rewriter.v1.RewriterService/Rewrite")
    assert (call.status.status_code, call.status.description) == (StatusCode.ERROR, "INTERNAL")
    assert recorder.span("turn").status.description == "RuntimeError"
    assert UTTERANCE not in repr([span.to_json() for span in recorder.spans])


async def test_a_passthrough_is_no_error_and_has_its_reason() -> None:
    recorder = Recorder()
    backend = failing_with(BackendUnavailable("down"))
    async with front(backend, observability=recorder.observability) as served:
        await served.stub.Rewrite(REQUEST)
    call = recorder.span("rewriter.v1.RewriterService/Rewrite")
    assert call.status.status_code is StatusCode.UNSET and call.attributes is not None
    assert call.attributes["rewriter.passthrough_reasons"] == ("MODEL_UNAVAILABLE",)


async def test_without_tracing_the_callers_trace_goes_on_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    backend = NotingBackend()
    async with front(backend) as served:
        await served.stub.Rewrite(REQUEST, metadata=SAMPLED)
        await served.stub.Rewrite(REQUEST)
    assert backend.sent == [dict(SAMPLED), {}]
    lines = [vars(record)["facts"] for record in caplog.records if record.name == "serving.requests"]
    assert [line["trace_id"] for line in lines] == [TRACE, ""]


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01" * 50])
async def test_a_header_that_is_no_trace_is_left_alone(header: str) -> None:
    recorder = Recorder()
    async with front(FakeBackend(), observability=recorder.observability) as served:
        assert (await served.stub.Rewrite(REQUEST, metadata=(("traceparent", header),))).text == "西安明天有雨吗"
    assert recorder.span("rewriter.v1.RewriterService/Rewrite").parent is None


async def test_turns_of_several_callers_in_one_batch_have_spans_in_their_own_traces() -> None:
    recorder = Recorder()
    contexts: list[str] = []

    async def run(items: Sequence[int]) -> Sequence[int]:
        contexts.append(trace_id())
        return items

    batcher = Batcher(
        run,
        lambda item: 0,
        max_batch_size=8,
        max_queue_size=8,
        observer=BatchMetrics(recorder.observability.metrics, 8),
    )

    async def one_call(item: int) -> str:
        call = Call("Rewrite", {}, recorder.observability)
        await batcher.submit(item, 30)
        found = trace_id()
        call.end()
        return found

    traces = await asyncio.gather(*(asyncio.create_task(one_call(item)) for item in range(3)))
    await batcher.close()
    assert len(set(traces)) == 3
    # What runs for all of them runs in the name of the oldest.
    assert contexts == [traces[0]]
    for name in ("queue", "model"):
        spans = [span for span in recorder.spans if span.name == name]
        assert sorted(hex_id(span.context.trace_id, 32) for span in spans if span.context) == sorted(traces)
    for span in recorder.spans:
        assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time


async def test_calls_to_tf_serving_carry_the_trace() -> None:
    received: list[dict[str, str]] = []

    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        received.append(dict(context.invocation_metadata()))
        return b""

    server = grpc.aio.server()
    methods = {"GetModelStatus": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tensorflow.serving.ModelService", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    endpoint = Endpoint(f"127.0.0.1:{port}", TFServingSettings())
    await endpoint.available_versions(10)
    call = Call("Rewrite", dict(SAMPLED), Recorder().observability)
    await endpoint.available_versions(10)
    call.end()
    await endpoint.close()
    await server.stop(0)
    assert "traceparent" not in received[0]
    assert received[1]["traceparent"].startswith(f"00-{TRACE}-")


async def test_stages_outside_of_a_call_do_nothing() -> None:
    with stage("model"):
        assert trace_metadata() == ()
    add_stages(queue=1.0)
    assert trace_id() == ""


async def test_spans_reach_a_collector_over_otlp_with_headers_and_sampling() -> None:
    received: list[tuple[dict[str, str], Any]] = []

    class Collector(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.append((dict(context.invocation_metadata()), request))
            return trace_service_pb2.ExportTraceServiceResponse()

    collector = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), collector)
    port = collector.add_insecure_port("127.0.0.1:0")
    collector.start()
    settings = TracingSettings(
        endpoint=f"http://127.0.0.1:{port}",
        headers="X-Key=hush, x-other=2",  # type: ignore[arg-type]
        sample_ratio=0,
    )
    observability = Observability(Metrics(), connect(settings, "1.2"))
    async with front(FakeBackend(), observability=observability) as served:
        await served.stub.Rewrite(REQUEST)
        await served.stub.Rewrite(REQUEST, metadata=SAMPLED)
    # Stopping the front sends what was not sent yet.
    collector.stop(0)
    spans = [
        span
        for _, request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    # Nothing of ours is sampled; a caller's decision to sample is followed.
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {span.name for span in spans} == {"rewriter.v1.RewriterService/Rewrite", "turn", "tokenise"}
    headers, request = received[0]
    assert (headers["x-key"], headers["x-other"]) == ("hush", "2")
    resource = {each.key: each.value.string_value for each in request.resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["service.version"]) == ("rewriter", "1.2")


async def test_a_collector_that_is_down_harms_no_call(caplog: pytest.LogCaptureFixture) -> None:
    settings = TracingSettings(endpoint="http://127.0.0.1:1", sample_ratio=1)
    tracing = connect(settings, "1.2")
    observability = Observability(Metrics(), Tracing(tracing._tracer))
    async with front(FakeBackend(), observability=observability) as served:
        assert (await served.stub.Rewrite(REQUEST)).text == "西安明天有雨吗"


async def test_without_the_extra_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ValueError, match=re.escape("expected the packages of `pip install '.[tracing]'`")):
        connect(TracingSettings(endpoint="http://localhost:4317"), "1.2")
