"""OpenTelemetry traces: a span for a call, one for each part of its work, and the way on to the model.

Without a collector no span is made. A caller's ``traceparent`` is passed on all the same, so that the parts of a trace
to our left and right stay together, and its trace id is in the log. No span holds text or an exception's message.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serving.config import TracingSettings, read_headers

_PROPAGATOR = TraceContextTextMapPropagator()
# A server that stops waits so long for a collector that does not answer.
_EXPORT_SECONDS = 2.0
_HEADERS = ("traceparent", "tracestate")


class Tracing:
    """Makes spans with ``tracer``, none without one; ``shut_down`` sends what was not sent yet."""

    def __init__(self, tracer: Tracer | None = None, shut_down: Callable[[], None] = lambda: None) -> None:
        self._tracer = tracer
        self.shut_down = shut_down

    def begin_call(self, name: str, metadata: Mapping[str, Any]) -> Span | None:
        """Makes a span for the call, or else the caller's own, the current one of this task; it has to be ended.

        The task of a call ends with the call, so nothing is ever detached.
        """
        carrier = {key: metadata[key] for key in _HEADERS if isinstance(metadata.get(key), str)}
        if carrier:
            contexts.attach(_PROPAGATOR.extract(carrier, contexts.Context()))
        if self._tracer is None:
            return None
        span = self._tracer.start_span(name, kind=SpanKind.SERVER)
        contexts.attach(trace.set_span_in_context(span))
        return span

    def span(self, name: str) -> AbstractContextManager[None]:
        """A part of the current span. An exception is noted by its type."""
        return nullcontext() if self._tracer is None else _part(self._tracer.start_span(name))

    def add_span(self, name: str, started_ns: int, ended_ns: int) -> None:
        """A part of the current span that is over; times are of ``time.time_ns``."""
        if self._tracer is not None:
            self._tracer.start_span(name, start_time=started_ns).end(ended_ns)


@contextmanager
def _part(span: Span) -> Iterator[None]:
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    except BaseException as error:
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        raise
    finally:
        span.end()


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """gRPC metadata that makes a call of ours part of the current trace; empty where there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return tuple(carrier.items())


def trace_id() -> str:
    """The current trace's id as logs and collectors write it; empty where there is none."""
    found = trace.get_current_span().get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


def connect(settings: TracingSettings, version: str) -> Tracing:
    """Sends spans to the collector that the settings name. Raises ValueError if the extra ``tracing`` is missing."""
    if settings.endpoint is None:
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise ValueError(
            f"tracing.endpoint: expected the packages of `pip install '.[tracing]'`, found no {error.name}"
        ) from None
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        resource=Resource.create({SERVICE_NAME: settings.service_name, SERVICE_VERSION: version}),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(
        settings.endpoint,
        insecure=settings.endpoint.startswith("http://"),
        headers=read_headers(settings.headers) if settings.headers is not None else None,
        timeout=_EXPORT_SECONDS,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider.get_tracer("serving", version), provider.shutdown)
