"""Marked text goes through every path there is; then everything that was emitted is searched for the mark.

Answers hold the text, of course; nothing else may: no log line of any format, no metric, no span, no error.
"""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from front import FakeBackend, Front, failing_with, front, hypothesis
from prometheus_client import generate_latest
from test_access import digest, tokens_file
from test_tracing import Recorder

from serving.backend import BackendTimeout, BackendUnavailable, Prediction
from serving.logs import JsonFormatter, TextFormatter
from serving.pb import rewriter_pb2 as pb
from serving.server import SERVICE

pytestmark = pytest.mark.asyncio

# In two scripts: the second would be escaped on some of its ways.
MARK, CHINESE_MARK = "xyzzy", "魑魅"
TEXT = f"{MARK}{CHINESE_MARK}"
SPELLINGS = [MARK, MARK.upper(), CHINESE_MARK]
SPELLINGS += [str(CHINESE_MARK.encode())[2:-1], CHINESE_MARK.encode("unicode_escape").decode()]
HISTORY = [f"西安{TEXT}今天", TEXT]
GOOD = pb.RewriteRequest(history=HISTORY, utterance=f"明天{TEXT}", request_id="r-1")


class Emitted:
    """Everything that leaves the server other than answers."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.errors: list[str] = []
        self.logs = io.StringIO()

    def everything(self) -> str:
        spans = "".join(span.to_json() for span in self.recorder.spans)
        metrics = generate_latest(self.recorder.observability.metrics.registry).decode()
        return "\n".join([self.logs.getvalue(), spans, metrics, *self.errors])

    async def note(self, call: Any) -> None:
        """Waits for the call's end, and keeps what it failed with, metadata included."""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            metadata = [*(error.trailing_metadata() or ()), *(error.initial_metadata() or ())]
            # Binary metadata may hold UTF-8 as it is.
            values = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for _, value in metadata]
            self.errors.append(f"{error!r} {error.details()} {values}")
        except asyncio.CancelledError:
            self.errors.append("CANCELLED")


@contextmanager
def emitted() -> Iterator[Emitted]:
    """With both formats of the log, down to the last detail."""
    found, logger = Emitted(), logging.getLogger()
    handlers = [logging.StreamHandler(found.logs) for _ in range(2)]
    for handler, formatter in zip(handlers, (TextFormatter(), JsonFormatter()), strict=True):
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        logger.setLevel(level)
        for handler in handlers:
            logger.removeHandler(handler)


def with_error(request: pb.RewriteRequest) -> pb.RewriteRequest:
    changed = pb.RewriteRequest()
    changed.CopyFrom(request)
    changed.failure_mode = pb.FAILURE_MODE_ERROR
    return changed


async def send_everything(served: Front, found: Emitted) -> None:
    """Good and bad, in every kind of call."""
    long = pb.RewriteRequest(history=[TEXT * 400] * 3, utterance=TEXT * 200, max_alternatives=99)
    wordy = pb.RewriteRequest(history=HISTORY, utterance="，".join([TEXT] * 60))
    large = pb.RewriteRequest(history=[TEXT * 1000] * 30, utterance=TEXT)
    huge = pb.RewriteRequest(history=[TEXT * 1000] * 60, utterance=TEXT)
    for request in (
        GOOD,
        with_error(GOOD),
        long,
        wordy,
        with_error(wordy),
        large,
        huge,
        pb.RewriteRequest(history=HISTORY),
    ):
        await found.note(served.stub.Rewrite(request))
    await found.note(served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[GOOD, long, with_error(GOOD)])))
    await found.note(served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[GOOD] * 65)))
    for wire in (TEXT.encode(), b"\x12\x08" + TEXT.encode() + b"\xff", b"\x0a\xff" + GOOD.SerializeToString()):
        await found.note(served.channel.unary_unary(f"/{SERVICE}/Rewrite")(wire))
        await found.note(_all_of(served.channel.stream_stream(f"/{SERVICE}/StreamRewrite")(_wires(wire))))
    await found.note(_all_of(served.stub.StreamRewrite(_stream(GOOD, long, with_error(GOOD)))))


async def send_what_is_hostile(served: Front, found: Emitted) -> None:
    """Text where none belongs."""
    await found.note(served.channel.unary_unary(f"/{SERVICE}/{MARK}")(b""))
    await found.note(served.channel.unary_unary(f"/{MARK}/Rewrite")(b""))
    names = ("authorization", "traceparent", "user-agent", MARK, f"{MARK}-bin", "grpc-previous-rpc-attempts")
    for name in names:
        value: Any = TEXT.encode() if name.endswith("-bin") else f"Bearer {MARK}"
        await found.note(served.stub.Rewrite(GOOD, metadata=((name, value),)))


async def _all_of(call: Any) -> None:
    async for _ in call:
        pass


async def _wires(*messages: bytes) -> AsyncIterator[bytes]:
    for message in messages:
        yield message


async def _stream(*requests: pb.RewriteRequest) -> AsyncIterator[pb.StreamRewriteRequest]:
    for request in requests:
        yield pb.StreamRewriteRequest(request=request)


def assert_unmarked(everything: str) -> None:
    for spelling in SPELLINGS:
        place = everything.find(spelling)
        assert place < 0, f"{spelling} in {everything[max(0, place - 300) : place + 100]}"


BACKENDS = {
    "good": FakeBackend,
    "unavailable": lambda: failing_with(BackendUnavailable("the model is not loaded yet")),
    "late": lambda: failing_with(BackendTimeout("the model did not answer in time")),
    "with a fault": lambda: failing_with(RuntimeError(TEXT)),
    "with a fault of many arguments": lambda: failing_with(KeyError(TEXT, {TEXT: HISTORY})),
    "with a chain of faults": lambda: failing_with(_chained()),
    "talking nonsense": lambda: FakeBackend(lambda source: Prediction((hypothesis([10_000]),))),
    "without an end": lambda: FakeBackend(lambda source: Prediction((hypothesis([1], finished=False),))),
}


def _chained() -> Exception:
    try:
        try:
            raise ValueError(TEXT)
        except ValueError as cause:
            raise RuntimeError(TEXT) from cause
    except RuntimeError as error:
        return error


@pytest.mark.parametrize("backend", BACKENDS)
async def test_nothing_but_answers_holds_text(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    with emitted() as found:
        async with front(BACKENDS[backend](), observability=found.recorder.observability) as served:  # type: ignore[no-untyped-call]
            await send_everything(served, found)
            await send_what_is_hostile(served, found)
        everything = found.everything() + "".join(capfd.readouterr())
    # All of it has come to an end, and left its traces.
    assert "INVALID_ARGUMENT" in everything and "RESOURCE_EXHAUSTED" in everything and "r-1" in everything
    assert_unmarked(everything)


async def test_refusals_hold_no_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    changes: dict[str, Any] = {"rate_limit": {"turns_per_second": 0.001, "burst_turns": 1}}
    with emitted() as found:
        async with front(FakeBackend(), observability=found.recorder.observability, **changes) as served:
            for _ in range(3):
                await found.note(served.stub.Rewrite(GOOD))
        changes = {"auth": {"tokens_file": tokens_file(tmp_path, f'[bot]\nsha256 = "{digest(MARK)}"\n')}}
        async with front(FakeBackend(), observability=Recorder().observability, **changes) as served:
            await found.note(served.stub.Rewrite(GOOD))
            for token in (MARK, f"{MARK}2"):
                await found.note(served.stub.Rewrite(GOOD, metadata=(("authorization", f"Bearer {token}"),)))
        everything = found.everything() + "".join(capfd.readouterr())
    assert "UNAUTHENTICATED" in everything and "RATE_LIMITED" in everything
    assert_unmarked(everything)


async def test_callers_who_leave_leave_no_text(capfd: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend()
    backend.open.clear()
    with emitted() as found:
        async with front(backend, observability=found.recorder.observability) as served:
            call = served.stub.Rewrite(GOOD)
            await backend.wait_until_asked(1)
            call.cancel()
            await found.note(call)
            await found.note(served.stub.Rewrite(GOOD, timeout=0.1))
            await found.note(_all_of(served.stub.StreamRewrite(_stream(GOOD, GOOD), timeout=0.1)))
        everything = found.everything() + "".join(capfd.readouterr())
    assert "CANCELLED" in everything
    assert_unmarked(everything)


async def test_the_search_finds_what_an_operator_switched_on() -> None:
    with emitted() as found:
        async with front(FakeBackend(), observability=found.recorder.observability, log_text=True) as served:
            await found.note(served.stub.Rewrite(GOOD))
        with pytest.raises(AssertionError, match=MARK):
            assert_unmarked(found.everything())
