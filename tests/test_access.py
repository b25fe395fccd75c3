"""Tokens, the files they come from, and rate limits; over gRPC where the caller would notice."""

import asyncio
import hashlib
import logging
import subprocess
import sys
import time
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from front import FakeBackend, Front, front
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from rewriter.conversation import Conversation
from serving.answer import Answer
from serving.client import AsyncRewriter
from serving.pb import rewriter_pb2 as pb
from serving.rate_limits import MAX_CALLERS, Limit, RateLimits
from serving.tokens import Tokens, read_tokens
from serving.watching import Watched

HISTORY = ["西安今天的天气怎么样"]
UTTERANCE = "明天有雨吗"
REWRITE = "西安明天有雨吗"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def tokens_file(folder: Path, text: str = "") -> Path:
    path = folder / "tokens.toml"
    path.write_text(text or f'[chatbot]\nsha256 = "{digest("secret")}"\n', encoding="utf-8")
    return path


def counted(served: Front, name: str, **labels: str) -> float | None:
    return served.server.observability.metrics.registry.get_sample_value(f"rewriter_{name}", labels)


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value


@pytest.mark.asyncio
async def test_a_caller_with_a_token_is_known_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with (
        front(FakeBackend(), auth={"tokens_file": tokens_file(tmp_path)}) as served,
        AsyncRewriter(served.target, token="secret", timeout_seconds=10) as rewriter,
    ):
        assert (await rewriter.rewrite(HISTORY, UTTERANCE)).text == REWRITE
        [item] = await rewriter.rewrite_batch([Conversation(tuple(HISTORY), UTTERANCE)])
        assert isinstance(item, Answer)
        assert (await rewriter.model_info()).name == "fake"
    lines = [vars(each)["facts"] for each in caplog.records if each.name == "serving.requests"]
    assert {line["caller"] for line in lines} == {"chatbot"}
    assert "secret" not in caplog.text + repr(lines)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "header",
    [None, "", "secret", "Bearer", "Bearer wrong", "Bearer secret2", "Basic secret", f"Bearer {digest('secret')}"],
)
async def test_every_other_caller_learns_nothing_and_reaches_nothing(tmp_path: Path, header: str | None) -> None:
    backend = FakeBackend()
    metadata = () if header is None else (("authorization", header),)
    async with front(backend, auth={"tokens_file": tokens_file(tmp_path)}) as served:
        request = pb.RewriteRequest(history=HISTORY, utterance=UTTERANCE)
        stream = served.stub.StreamRewrite(metadata=metadata)
        found = [
            await refusal(served.stub.Rewrite(request, metadata=metadata)),
            # Even what could not be parsed: the token comes first.
            await refusal(
                served.channel.unary_unary("/rewriter.v1.RewriterService/Rewrite")(b"\xff", metadata=metadata)
            ),
            await refusal(served.stub.GetModelInfo(pb.GetModelInfoRequest(), metadata=metadata)),
            await refusal(stream.read()),
        ]
        assert counted(served, "calls_total", method="Rewrite", code="UNAUTHENTICATED") == 2
    assert {(error.code(), error.details()) for error in found} == {
        (grpc.StatusCode.UNAUTHENTICATED, "expected a valid token")
    }
    assert backend.asked == []


@pytest.mark.asyncio
async def test_health_needs_no_token_and_reflection_does(tmp_path: Path) -> None:
    async with front(FakeBackend(), auth={"tokens_file": tokens_file(tmp_path)}) as served:
        check = health_pb2_grpc.HealthStub(served.channel).Check(health_pb2.HealthCheckRequest())
        assert (await check).status == health_pb2.HealthCheckResponse.NOT_SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo()
        await reflection.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        assert (await refusal(reflection.read())).code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.asyncio
async def test_reflection_can_be_switched_off() -> None:
    async with front(FakeBackend(), reflection=False) as served:
        reflection = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo()
        assert (await refusal(reflection.read())).code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.asyncio
async def test_tokens_change_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tokens_file(tmp_path)
    now = [1000.0]
    monkeypatch.setattr("serving.watching.time.monotonic", lambda: now[0])
    async with front(FakeBackend(), auth={"tokens_file": path}) as served:

        async def works(token: str) -> bool:
            now[0] += 10
            async with AsyncRewriter(served.target, token=token) as rewriter:
                return await rewriter.rewrite_or_original(HISTORY, UTTERANCE) == REWRITE

        assert await works("secret")
        # While a token is replaced, both are good.
        tokens_file(tmp_path, f'[chatbot]\nsha256 = ["{digest("secret")}", "{digest("new")}"]\n')
        assert await works("secret") and await works("new")
        tokens_file(tmp_path, f'[chatbot]\nsha256 = "{digest("new")}"\n')
        assert not await works("secret") and await works("new")
        tokens_file(tmp_path, "[chatbot]\n")
        assert await works("new")
        path.unlink()
        assert await works("new")
        assert counted(served, "reload_failures_total", file="tokens") == 2


def streamed(request_id: str) -> pb.StreamRewriteRequest:
    request = pb.RewriteRequest(history=HISTORY, utterance=UTTERANCE, request_id=request_id)
    return pb.StreamRewriteRequest(request=request)


@pytest.mark.asyncio
async def test_an_open_stream_ends_with_its_token_and_what_was_asked_before_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, clock, backend = asyncio.Event(), Clock(), FakeBackend()

    def read_and_tell(path: Path) -> Tokens:
        read.set()
        return read_tokens(path)

    monkeypatch.setattr("serving.access.read_tokens", read_and_tell)
    monkeypatch.setattr("serving.watching.time", SimpleNamespace(monotonic=clock))
    backend.open.clear()
    async with front(backend, auth={"tokens_file": tokens_file(tmp_path)}) as served:
        stream = served.stub.StreamRewrite(metadata=(("authorization", "Bearer secret"),))
        await stream.write(streamed("before"))
        await backend.wait_until_asked(1)
        tokens_file(tmp_path, f'[other]\nsha256 = "{digest("other")}"\n')
        clock.now += 1
        read.clear()
        await stream.write(streamed("after"))
        await asyncio.wait_for(read.wait(), 10)
        for _ in range(10):  # whoever would break off the work on the first message has time to
            await asyncio.sleep(0)
        backend.open.set()
        response = await stream.read()
        error = await refusal(stream.read())
        assert counted(served, "calls_total", method="StreamRewrite", code="UNAUTHENTICATED") == 1
    assert (response.request_id, response.response.text) == ("before", REWRITE)
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAUTHENTICATED, "expected a valid token")
    assert len(backend.asked) == 1


@pytest.mark.asyncio
async def test_a_changed_limit_holds_for_open_streams_and_for_who_waits_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited_to(turns_per_second: float) -> Path:
        text = f'[chatbot]\nsha256 = "{digest("secret")}"\nturns_per_second = {turns_per_second}\nburst_turns = 1\n'
        return tokens_file(tmp_path, text)

    clock = Clock()
    monkeypatch.setattr("serving.watching.time", SimpleNamespace(monotonic=clock))
    async with front(FakeBackend(), auth={"tokens_file": limited_to(0.001)}) as served:
        stream = served.stub.StreamRewrite(metadata=(("authorization", "Bearer secret"),))
        await stream.write(streamed("at once"))
        assert (await stream.read()).request_id == "at once"
        await stream.write(streamed("waits"))
        while not counted(served, "rate_limited_total", caller="chatbot"):
            await asyncio.sleep(0)
        limited_to(1000.0)
        clock.now += 1
        assert (await asyncio.wait_for(stream.read(), 10)).request_id == "waits"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected at least one caller, found none"),
        ("hush", "expected TOML, found something else"),
        ("[chatbot]\n", "chatbot.sha256: Field required"),
        ('[chatbot]\nsha256 = "hush"\n', "chatbot.sha256: expected 64 hexadecimal digits, found 4 other characters"),
        (f'["a b"]\nsha256 = "{digest("x")}"\n', "'a b': expected a name of letters"),
        (f'[chatbot]\nsha256 = "{digest("x")}"\ntoken = "hush"\n', "chatbot.token: Extra inputs"),
        (f'[chatbot]\nsha256 = "{digest("")}"\n', "expected the SHA-256 of a token, found that of nothing"),
    ],
)
def test_a_file_of_tokens_that_is_wrong_is_refused_without_quoting_it(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as raised:
        read_tokens(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)
    assert "hush" not in str(raised.value)


def make_token(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "serving.tokens", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)


@pytest.mark.parametrize("name", ["chatbot", "chat.bot-2"])
def test_a_token_made_by_the_command_opens_the_door(tmp_path: Path, name: str) -> None:
    done = make_token(name)
    assert done.returncode == 0, done.stderr
    token = done.stderr.split()[-1]
    assert len(token) > 40 and token not in done.stdout
    assert list(tomllib.loads(done.stdout)) == [name]
    holder = read_tokens(tokens_file(tmp_path, done.stdout)).holder_of(token)
    assert holder is not None and holder.name == name


@pytest.mark.parametrize("arguments", [(), ("my bot",), ('"',), ("two", "names"), ("x" * 65,)])
def test_a_name_that_the_server_would_refuse_gets_no_token(arguments: tuple[str, ...]) -> None:
    done = make_token(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("expected one name of letters, digits") and done.stderr.count("\n") == 1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_lets_a_burst_in_and_then_the_rate() -> None:
    clock = Clock()
    limits, limit = RateLimits(clock), Limit(turns_per_second=2, burst_turns=3)
    admitted = []
    for tenth in range(50):
        clock.now = tenth / 10
        if not limits.seconds_to_wait("a", limit):
            limits.charge("a", limit, 1)
            admitted.append(tenth)
    assert admitted[:4] == [0, 1, 2, 5]
    assert len(admitted) == 3 + 2 * 5 - 1
    assert limits.seconds_to_wait("b", limit) == 0


def test_a_batch_larger_than_the_burst_gets_in_and_is_paid_for_afterwards() -> None:
    clock = Clock()
    limits, limit = RateLimits(clock), Limit(turns_per_second=2, burst_turns=3)
    assert limits.seconds_to_wait("a", limit) == 0
    limits.charge("a", limit, 13)
    assert limits.seconds_to_wait("a", limit) == pytest.approx(11 / 2)
    clock.now = 5.5
    assert limits.seconds_to_wait("a", limit) == 0


def test_a_caller_who_waits_saves_no_more_than_the_burst() -> None:
    clock = Clock()
    limits, limit = RateLimits(clock), Limit(turns_per_second=2, burst_turns=3)
    limits.charge("a", limit, 1)
    clock.now = 1000
    limits.charge("a", limit, 3)
    assert limits.seconds_to_wait("a", limit) == pytest.approx(0.5)


def test_a_hundred_thousand_callers_do_not_fill_the_memory() -> None:
    limits, limit = RateLimits(Clock()), Limit(turns_per_second=1, burst_turns=1)
    limits.charge("patient", limit, 5)
    for number in range(MAX_CALLERS - 1):
        limits.charge(number, limit, 1)
    assert limits.seconds_to_wait("patient", limit) == 5
    for number in range(MAX_CALLERS):
        limits.charge(-number, limit, 1)
    assert len(limits._buckets) == MAX_CALLERS


@pytest.mark.asyncio
@pytest.mark.parametrize("failure_mode", [pb.FAILURE_MODE_PASSTHROUGH, pb.FAILURE_MODE_ERROR])
async def test_a_caller_beyond_its_limit_is_told_when_to_come_back(failure_mode: int) -> None:
    backend = FakeBackend()
    request = pb.RewriteRequest(history=HISTORY, utterance=UTTERANCE, failure_mode=failure_mode)  # type: ignore[arg-type]
    async with front(backend, rate_limit={"turns_per_second": 0.01, "burst_turns": 2}) as served:
        await served.stub.Rewrite(request)
        await served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[request] * 4))
        error = await refusal(served.stub.Rewrite(request))
        wait = error_details_pb2.RetryInfo()
        info = error_details_pb2.ErrorInfo()
        for packed in rpc_status.from_call(error).details:
            packed.Unpack(wait if packed.Is(wait.DESCRIPTOR) else info)
        assert counted(served, "rate_limited_total", caller="address") == 1
    assert (error.code(), info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED")
    # Five turns of a burst of two: three owed, and one to have.
    assert 390 < wait.retry_delay.ToSeconds() <= 400
    assert len(backend.asked) == 5


@pytest.mark.asyncio
async def test_a_batch_that_is_refused_for_its_size_costs_no_more_than_the_largest_there_may_be() -> None:
    request = pb.RewriteRequest(history=HISTORY, utterance=UTTERANCE)
    async with front(
        FakeBackend(), max_batch_items=2, rate_limit={"turns_per_second": 0.01, "burst_turns": 3}
    ) as served:
        error = await refusal(served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[request] * 10)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        await served.stub.Rewrite(request)
        error = await refusal(served.stub.Rewrite(request))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.asyncio
async def test_a_chatbot_beyond_its_limit_gets_the_original_turn() -> None:
    async with (
        front(FakeBackend(), rate_limit={"turns_per_second": 0.01, "burst_turns": 1}) as served,
        AsyncRewriter(served.target, timeout_seconds=10) as rewriter,
    ):
        assert await rewriter.rewrite_or_original(HISTORY, UTTERANCE) == REWRITE
        assert await rewriter.rewrite_or_original(HISTORY, UTTERANCE) == UTTERANCE


@pytest.mark.asyncio
async def test_callers_have_limits_of_their_own(tmp_path: Path) -> None:
    text = (
        f'[bulk]\nsha256 = "{digest("bulk")}"\nturns_per_second = 0.01\nburst_turns = 1\n'
        f'[chatbot]\nsha256 = "{digest("chat")}"\n'
    )
    changes: dict[str, Any] = {"auth": {"tokens_file": tokens_file(tmp_path, text)}}
    changes["rate_limit"] = {"turns_per_second": 0.01, "burst_turns": 3}
    async with front(FakeBackend(), **changes) as served:

        async def rewritten(token: str) -> int:
            async with AsyncRewriter(served.target, token=token, timeout_seconds=10) as rewriter:
                turns = [await rewriter.rewrite_or_original(HISTORY, UTTERANCE) for _ in range(5)]
            return turns.count(REWRITE)

        assert (await rewritten("bulk"), await rewritten("chat")) == (1, 3)
        assert counted(served, "rate_limited_total", caller="bulk") == 4


@pytest.mark.asyncio
async def test_a_stream_beyond_its_limit_is_slowed_down_and_not_broken_off() -> None:
    async def conversations() -> AsyncIterator[Conversation]:
        for _ in range(3):
            yield Conversation(tuple(HISTORY), UTTERANCE)

    async with front(FakeBackend(), rate_limit={"turns_per_second": 5, "burst_turns": 1}) as served:
        async with AsyncRewriter(served.target, timeout_seconds=10) as rewriter:
            started = time.monotonic()
            answers = [answer async for _, answer in rewriter.rewrite_stream(conversations())]
            seconds = time.monotonic() - started
        assert counted(served, "rate_limited_total", caller="address")
    assert [answer.text for answer in answers if isinstance(answer, Answer)] == [REWRITE] * 3
    assert seconds >= 1 / 5


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("nonsense")])
def test_a_watched_value_is_read_again_only_when_a_file_changes(tmp_path: Path, error: Exception) -> None:
    path = tmp_path / "value"
    path.write_text("1", encoding="utf-8")
    reads: list[str] = []
    failures: list[None] = []

    def read() -> str:
        reads.append(path.read_text(encoding="utf-8"))
        if reads[-1] == "bad":
            raise error
        return reads[-1]

    watched = Watched("value", [path], read, on_failure=lambda: failures.append(None), check_seconds=0.0)
    values = []
    for text in ("1", "22", "bad", "333"):
        path.write_text(text, encoding="utf-8")
        values += [watched.get(), watched.get()]
    assert values == ["1", "1", "22", "22", "22", "22", "333", "333"]
    assert len(failures) == 1
    assert reads.count("bad") == reads.count("22") == 1


def test_files_are_looked_at_now_and_then_and_not_for_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "value"
    path.write_text("1", encoding="utf-8")
    clock = Clock()
    monkeypatch.setattr("serving.watching.time.monotonic", clock)
    watched = Watched("value", [path], lambda: path.read_text(encoding="utf-8"))
    path.write_text("22", encoding="utf-8")
    clock.now = 0.9
    assert watched.get() == "1"
    clock.now = 1.0
    assert watched.get() == "22"
