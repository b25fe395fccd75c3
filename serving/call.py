"""One call as it goes: what its log line, its span and the metrics say about it.

``with stage("name"):`` around a part of the work on a turn gives it a span, a histogram and a figure in the log line;
outside of a call (in a warm-up, in a test of one module) it does nothing.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

from opentelemetry.trace import Status, StatusCode

from serving.metrics import Metrics
from serving.pb import rewriter_pb2 as pb
from serving.tracing import Tracing, trace_id

REQUEST_LOG = logging.getLogger("serving.requests")

# Counting is for the log, and must not cost more than refusing what is far too much.
_MAX_COUNTED = 256
_OUTCOMES = {number: name.removeprefix("OUTCOME_") for name, number in pb.Outcome.items()}
_REASONS = {number: name.removeprefix("PASSTHROUGH_REASON_") for name, number in pb.PassthroughReason.items()}
_OUR_FAULT = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


@dataclass(frozen=True)
class Observability:
    """Where the facts of a server's calls go."""

    metrics: Metrics = field(default_factory=Metrics)
    tracing: Tracing = field(default_factory=Tracing)


@dataclass
class Facts:
    """What the log says about one call, which carries one turn to rewrite or many; never text."""

    method: str
    code: str = "CANCELLED"  # unless the call comes to an end of its own
    caller: str = ""
    request_id: str = ""
    trace_id: str = ""
    rewrites: int = 0
    turns: int = 0
    characters: int = 0
    bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    milliseconds: float = 0.0
    stage_milliseconds: dict[str, float] = field(default_factory=dict)  # summed over the turns of the call

    def as_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "outcomes": dict(self.outcomes),
            "reasons": dict(self.reasons),
            "milliseconds": round(self.milliseconds, 2),
            "stage_milliseconds": {name: round(value, 2) for name, value in self.stage_milliseconds.items()},
        }


class Call:
    """Begins where it is made, which has to be in the task of the call; ``with`` it, or ``end`` it once."""

    def __init__(self, method: str, metadata: Mapping[str, Any], observability: Observability) -> None:
        self._metrics = observability.metrics
        self.tracing = observability.tracing
        self._started = time.perf_counter()
        self._span = self.tracing.begin_call(f"rewriter.v1.RewriterService/{method}", metadata)
        self.facts = Facts(method, trace_id=trace_id())
        self._metrics.calls_in_flight(method).inc()
        _CURRENT.set(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def received(self) -> None:
        """Its message is here; how long the caller took to send it is not our time."""
        self._started = time.perf_counter()

    def saw(self, message: Any, size_bytes: int) -> None:
        facts = self.facts
        facts.bytes += size_bytes
        requests = _requests_in(message)
        facts.rewrites += len(requests)
        for request in islice(requests, _MAX_COUNTED):
            facts.request_id = request.request_id
            facts.turns += len(request.history) + 1
            facts.characters += len(request.utterance) + sum(map(len, islice(request.history, _MAX_COUNTED)))

    def answered(self, message: Any) -> None:
        for response in _responses_in(message):
            if isinstance(response, pb.RewriteError):
                self._count("ERROR", "", "")
                continue
            model = response.model
            self._metrics.add_model(model.name, model.version, model.vocabulary_fingerprint)
            reason = _REASONS[response.passthrough_reason] if response.passthrough_reason else ""
            self._count(_OUTCOMES[response.outcome], reason, model.version)

    def _count(self, outcome: str, reason: str, version: str) -> None:
        self.facts.outcomes[outcome] += 1
        self._metrics.turns(outcome, version).inc()
        if reason:
            self.facts.reasons[reason] += 1
            self._metrics.passthroughs(reason).inc()

    def add_stage(self, name: str, seconds: float) -> None:
        stages = self.facts.stage_milliseconds
        stages[name] = stages.get(name, 0.0) + seconds * 1000
        self._metrics.stage_seconds(name).observe(seconds)

    def end(self) -> None:
        seconds = time.perf_counter() - self._started
        facts = self.facts
        self._metrics.calls_in_flight(facts.method).dec()
        self._metrics.calls(facts.method, facts.code).inc()
        self._metrics.call_seconds(facts.method).observe(seconds)
        facts.milliseconds = seconds * 1000
        self._end_span()
        REQUEST_LOG.info("%s %s", facts.method, facts.code, extra={"facts": facts.as_json()})

    def _end_span(self) -> None:
        if self._span is None:
            return
        facts = self.facts
        self._span.set_attributes(
            {
                "rpc.system": "grpc",
                "rpc.method": facts.method,
                "rpc.response.status_code": facts.code,
                "rewriter.caller": facts.caller,
                "rewriter.rewrites": facts.rewrites,
                "rewriter.turns": facts.turns,
                "rewriter.characters": facts.characters,
                "rewriter.outcomes": sorted(facts.outcomes),
                "rewriter.passthrough_reasons": sorted(facts.reasons),
            }
        )
        if facts.code in _OUR_FAULT:
            self._span.set_status(Status(StatusCode.ERROR, facts.code))
        self._span.end()


_CURRENT: ContextVar[Call | None] = ContextVar("call", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Times a part of the current call's work; ``trace_metadata`` within it names its span."""
    call = _CURRENT.get()
    if call is None:
        yield
        return
    started = time.perf_counter()
    try:
        with call.tracing.span(name):
            yield
    finally:
        call.add_stage(name, time.perf_counter() - started)


def add_stages(**seconds: float) -> None:
    """Adds stages that followed one another and of which the last has just ended, as ``stage`` would have."""
    call = _CURRENT.get()
    if call is None:
        return
    ended_ns = time.time_ns()
    for name, duration in reversed(seconds.items()):
        started_ns = ended_ns - int(duration * 1e9)
        call.tracing.add_span(name, started_ns, ended_ns)
        call.add_stage(name, duration)
        ended_ns = started_ns


def _requests_in(message: Any) -> Sequence[pb.RewriteRequest]:
    match message:
        case pb.RewriteRequest():
            return [message]
        case pb.BatchRewriteRequest():
            requests: Sequence[pb.RewriteRequest] = message.requests
            return requests
        case pb.StreamRewriteRequest():
            return [message.request]
        case _:
            return []


def _responses_in(message: Any) -> Sequence[pb.RewriteResponse | pb.RewriteError]:
    match message:
        case pb.RewriteResponse():
            return [message]
        case pb.BatchRewriteResponse():
            return [getattr(result, result.WhichOneof("result")) for result in message.results]
        case pb.StreamRewriteResponse():
            return [getattr(message, message.WhichOneof("result"))]
        case _:
            return []
