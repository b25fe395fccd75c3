"""What Prometheus is told of the calls, the queue and the model."""

import asyncio
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from front import FakeBackend, Front, failing_with, front
from prometheus_client.parser import text_string_to_metric_families
from saved_models import VOCABULARY, write_model

from serving.backend import BackendTimeout
from serving.batch_metrics import BatchMetrics
from serving.batching import Batcher, QueueFull
from serving.client import AsyncRewriter
from serving.config import MetricsSettings, ServerSettings
from serving.generate import REPOSITORY
from serving.metrics import Metrics, exposed
from serving.pb import rewriter_pb2 as pb
from serving.processes.metrics import FOLDER_VARIABLE, WorkerMetrics
from serving.resilience_metrics import ResilienceMetrics
from serving.server import SERVICE, create

HISTORY = ["西安今天的天气怎么样"]
UTTERANCE = "明天有雨吗"
REQUEST = pb.RewriteRequest(history=HISTORY, utterance=UTTERANCE)


def value(source: Front | Metrics, name: str, /, **labels: str) -> float | None:
    metrics = source if isinstance(source, Metrics) else source.server.observability.metrics
    return metrics.registry.get_sample_value(f"rewriter_{name}", labels)


def scrape(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as response:
        return str(response.read().decode())


@pytest.mark.asyncio
async def test_calls_are_counted_by_method_and_code_and_turns_by_outcome() -> None:
    bad = pb.RewriteRequest(history=HISTORY)
    async with front(FakeBackend()) as served:
        await served.stub.Rewrite(REQUEST)
        with pytest.raises(grpc.aio.AioRpcError):
            await served.stub.Rewrite(bad)
        alone = pb.RewriteRequest(utterance=UTTERANCE)
        await served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[REQUEST, alone, bad]))
        assert value(served, "calls_total", method="Rewrite", code="OK") == 1
        assert value(served, "calls_total", method="Rewrite", code="INVALID_ARGUMENT") == 1
        assert value(served, "calls_total", method="BatchRewrite", code="OK") == 1
        assert value(served, "turns_total", outcome="REWRITTEN", version="7") == 2
        assert value(served, "turns_total", outcome="UNCHANGED", version="7") == 1
        assert value(served, "turns_total", outcome="PASSTHROUGH", version="7") == 0
        assert value(served, "turns_total", outcome="ERROR", version="") == 1
        assert value(served, "call_duration_seconds_count", method="Rewrite") == 2
        assert value(served, "stage_duration_seconds_count", stage="turn") == 3
        assert value(served, "model_info", name="fake", version="7", vocabulary=VOCABULARY.fingerprint[:12]) == 1


@pytest.mark.asyncio
async def test_passthroughs_are_counted_by_reason_from_the_start() -> None:
    async with front(failing_with(BackendTimeout("late"))) as served:
        assert value(served, "passthroughs_total", reason="DEADLINE") == 0
        await served.stub.Rewrite(REQUEST)
        assert value(served, "passthroughs_total", reason="DEADLINE") == 1
        assert value(served, "passthroughs_total", reason="OVERLOADED") == 0


@pytest.mark.asyncio
async def test_calls_in_flight_are_counted_while_they_are() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served:
        calls = [asyncio.ensure_future(_awaited(served.stub.Rewrite(REQUEST))) for _ in range(3)]
        await backend.wait_until_asked(3)
        assert value(served, "calls_in_flight", method="Rewrite") == 3
        backend.open.set()
        await asyncio.gather(*calls)
        assert value(served, "calls_in_flight", method="Rewrite") == 0


async def _awaited(call: Any) -> Any:
    return await call


@pytest.mark.asyncio
async def test_a_caller_who_leaves_is_counted_and_leaves_nothing_in_flight() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served:
        call = served.stub.Rewrite(REQUEST)
        await backend.wait_until_asked(1)
        call.cancel()
        await backend.cancelled.wait()
        while value(served, "calls_in_flight", method="Rewrite"):
            await asyncio.sleep(0)
        assert value(served, "calls_total", method="Rewrite", code="CANCELLED") == 1


@pytest.mark.asyncio
async def test_the_queue_and_the_batches_of_several_batchers_add_up() -> None:
    metrics = Metrics()
    gate = asyncio.Event()
    running = asyncio.Semaphore(0)

    async def run(items: Any) -> Any:
        running.release()
        await gate.wait()
        return items

    batchers = [
        Batcher(run, lambda item: 0, max_batch_size=4, max_queue_size=3, observer=BatchMetrics(metrics, 4))
        for _ in range(2)
    ]
    tasks = [asyncio.ensure_future(batcher.submit(1, 30)) for batcher in batchers]
    for _ in batchers:
        await running.acquire()
    tasks += [asyncio.ensure_future(batchers[0].submit(item, 30)) for item in (2, 3, 4)]
    tasks.append(asyncio.ensure_future(batchers[1].submit(5, 30)))
    await asyncio.sleep(0)
    assert value(metrics, "queue_depth") == 4
    with pytest.raises(QueueFull):
        await batchers[0].submit(6, 30)
    tasks.pop().cancel()
    await asyncio.sleep(0)
    assert value(metrics, "queue_depth") == 3
    gate.set()
    await asyncio.gather(*tasks)
    assert value(metrics, "queue_depth") == 0
    # Two of one item and one of three.
    assert value(metrics, "batch_fill_ratio_count") == 3
    assert value(metrics, "batch_fill_ratio_sum") == pytest.approx(0.25 + 0.25 + 0.75)


@pytest.mark.asyncio
async def test_a_model_in_process_tells_its_queue_its_batches_and_the_parts_of_a_turn(tmp_path: Path) -> None:
    server = create(ServerSettings(model_dir=write_model(tmp_path), port=0))
    target = f"127.0.0.1:{await server.start()}"
    metrics = server.observability.metrics
    await server.warm_up()
    assert value(metrics, "stage_duration_seconds_count", stage="model") is None
    async with AsyncRewriter(target, timeout_seconds=10) as rewriter:
        await asyncio.gather(*(rewriter.rewrite(HISTORY, UTTERANCE) for _ in range(5)))
    await server.stop()
    for stage in ("tokenise", "queue", "model", "turn"):
        assert value(metrics, "stage_duration_seconds_count", stage=stage) == 5
    whole, model = (value(metrics, "stage_duration_seconds_sum", stage=stage) for stage in ("turn", "model"))
    assert whole is not None and model is not None and 0 < model < whole


@pytest.mark.asyncio
async def test_no_label_comes_from_a_request() -> None:
    async with front(FakeBackend()) as served:

        def label_values() -> set[str]:
            families = served.server.observability.metrics.registry.collect()
            samples = (sample for family in families for sample in family.samples)
            return {value for sample in samples for name, value in sample.labels.items() if name != "le"}

        await served.stub.Rewrite(REQUEST)
        before = label_values()
        odd = pb.RewriteRequest(history=["odd"], utterance="odd", request_id="odd", conversation_id="odd")
        await served.stub.Rewrite(odd, metadata=(("odd", "odd"), ("user-agent", "odd"), ("authorization", "odd")))
        for method in ("/odd", "/odd/odd", f"/{SERVICE}/odd"):
            with pytest.raises(grpc.aio.AioRpcError):
                await served.channel.unary_unary(method)(b"odd")
        assert label_values() == before


def test_metrics_are_answered_over_http_and_not_longer_than_the_server_lives() -> None:
    metrics = Metrics()
    with exposed(metrics.registry, MetricsSettings(port=0)) as address:
        assert address is not None and address.startswith("http://127.0.0.1:")
        families = {family.name for family in text_string_to_metric_families(scrape(address))}
        with pytest.raises(OSError, match=r"metrics\.port: expected a free port, found 127\.0\.0\.1:"):
            taken = int(address.rpartition(":")[2].partition("/")[0])
            with exposed(metrics.registry, MetricsSettings(port=taken)):
                pass
    assert {"rewriter_calls", "rewriter_queue_depth", "process_resident_memory_bytes"} <= families
    with pytest.raises(OSError):
        scrape(address)


def test_metrics_can_be_off() -> None:
    with exposed(Metrics().registry, MetricsSettings(enabled=False)) as address:
        assert address is None


def test_a_gauge_that_nobody_sets_is_not_there() -> None:
    metrics = Metrics()
    assert value(metrics, "certificate_end") is None
    for moment in (1, 2):
        metrics.set_later("certificate_end", "When the certificate ends.", moment)
    assert value(metrics, "certificate_end") == 2


def test_the_page_for_operators_explains_every_metric() -> None:
    page = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    metrics = Metrics()
    ResilienceMetrics(metrics.registry, ("here",))
    families = [family.name for family in metrics.registry.collect() if family.name.startswith("rewriter_")]
    assert len(families) > 20
    assert [name for name in families if f"`{name}" not in page] == []


def test_the_breakers_of_a_worker_that_is_gone_do_not_count(tmp_path: Path) -> None:
    program = (
        "import os; from prometheus_client import CollectorRegistry; from serving.resilience.breaker import State; "
        "from serving.resilience_metrics import ResilienceMetrics; "
        "ResilienceMetrics(CollectorRegistry(), ('there',)).breaker_became('there', State.OPEN); print(os.getpid())"
    )
    environment = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    metrics = WorkerMetrics(tmp_path)
    metrics.started(int(found.stdout))
    assert metrics.registry.get_sample_value("rewriter_breaker_state", {"address": "there"}) == 1
    metrics.ended(int(found.stdout))
    assert metrics.registry.get_sample_value("rewriter_breaker_state", {"address": "there"}) is None
