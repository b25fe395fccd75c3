"""What Prometheus is told; docs/operations.md says what each metric means and when to look at it.

Label values come from fixed lists or from the operator's files, never from a request, so their number is bounded.
Gauges carry a ``multiprocess_mode``, so that several processes can share one exposition.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)

from serving.answer import Outcome, PassthroughReason
from serving.config import MetricsSettings

# A turn takes some 20 ms and at most 2 s (the default deadline); the first bucket is for making the arrays.
SECONDS_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0),
)
_Mode = Literal["livesum", "max"]
_FILL_BUCKETS = tuple(eighth / 8 for eighth in range(1, 9))


class Metrics:
    """One set of metrics in a registry of its own: two servers in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made_later: dict[str, Gauge] = {}
        self._known_models: set[tuple[str, str, str]] = set()
        self._make_call_metrics()
        self._make_model_metrics()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def _make_call_metrics(self) -> None:
        """What a call asks for by its labels is kept: Prometheus takes longer to find it than to count."""
        calls = self._counter("calls", "Calls that ended, by method and gRPC code.", "method", "code")
        self.calls = cache(calls.labels)
        call_seconds = self._histogram(
            "call_duration_seconds",
            "From the call's message to its answer; streams last as long as they last.",
            "method",
        )
        self.call_seconds = cache(call_seconds.labels)
        self.calls_in_flight = cache(self._gauge("calls_in_flight", "Calls being answered now.", "method").labels)
        turns = self._counter("turns", "Turns answered, by outcome and version of the model.", "outcome", "version")
        self.turns = cache(turns.labels)
        self.passthroughs = cache(self._counter("passthroughs", "Turns passed through, by reason.", "reason").labels)
        stage_seconds = self._histogram("stage_duration_seconds", "Parts of the work on one turn.", "stage")
        self.stage_seconds = cache(stage_seconds.labels)
        self.rate_limited = self._counter("rate_limited", "Times a caller's rate limit said no.", "caller")
        self.reload_failures = self._counter("reload_failures", "Changed files that could not be read.", "file")
        self.turns("ERROR", "")
        for reason in PassthroughReason.__members__:
            self.passthroughs(reason)

    def _make_model_metrics(self) -> None:
        self.queue_depth = self._gauge("queue_depth", "Turns waiting for the model, here or at TF Serving.")
        self.batch_fill = Histogram(
            "rewriter_batch_fill_ratio",
            "Turns of a batch by the most it may hold.",
            buckets=_FILL_BUCKETS,
            registry=self.registry,
        )
        self.batch_seconds = self._histogram("batch_duration_seconds", "The model's work on one batch.")
        self._models = self._gauge(
            "model_info",
            "Always 1; the labels name a model that answered since the start.",
            *("name", "version", "vocabulary"),
            mode="max",
        )

    def add_model(self, name: str, version: str, vocabulary: str) -> None:
        """With every outcome, so that the first of a kind is an increase that Prometheus can see."""
        if (name, version, vocabulary) in self._known_models:
            return
        self._known_models.add((name, version, vocabulary))
        for outcome in Outcome.__members__:
            self.turns(outcome, version)
        self._models.labels(name, version, vocabulary[:12]).set(1)

    def set_later(self, name: str, help_text: str, value: float) -> None:
        """Sets a gauge that does not exist before its first value: one that not every server has."""
        if name not in self._made_later:
            self._made_later[name] = self._gauge(name, help_text, mode="max")
        self._made_later[name].set(value)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"rewriter_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, *labels: str) -> Histogram:
        return Histogram(f"rewriter_{name}", help_text, labels, buckets=SECONDS_BUCKETS, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str, mode: _Mode = "livesum") -> Gauge:
        return Gauge(f"rewriter_{name}", help_text, labels, registry=self.registry, multiprocess_mode=mode)


@contextmanager
def exposed(registry: CollectorRegistry, settings: MetricsSettings) -> Iterator[str | None]:
    """Answers ``/metrics`` over HTTP, on a thread; gives its address, None if it is off. Raises OSError."""
    if not settings.enabled:
        yield None
        return
    try:
        server, thread = start_http_server(settings.port, settings.host, registry)
    except OSError as error:
        raise OSError(f"metrics.port: expected a free port, found {settings.host}:{settings.port}: {error}") from error
    try:
        yield f"http://{settings.host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
