import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from front import FakeBackend, Front, failing_with, features, first_word_and_utterance, front, rewriting
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from saved_models import FINGERPRINT, write_model

from rewriter.conversation import Conversation
from rewriter.features import Source, collate
from serving.backend import (
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    BackendUnreachable,
    BrokenAnswer,
    Prediction,
    UnfinishedAnswer,
)
from serving.backends import guarded_model
from serving.client import AsyncRewriter
from serving.config import ServerSettings
from serving.embedded import EmbeddedBackend
from serving.health import AlwaysUsable
from serving.metrics import Metrics
from serving.pb import rewriter_pb2 as pb
from serving.server import SERVICE, FrontServer, ModelStuck, _serve_until, create
from serving.signatures import GREEDY

pytestmark = pytest.mark.asyncio

HISTORY = ["西安今天的天气怎么样"]
UTTERANCE = "明天有雨吗"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def request(**fields: Any) -> pb.RewriteRequest:
    return pb.RewriteRequest(**{"history": HISTORY, "utterance": UTTERANCE, **fields})


async def error_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    assert not any(text in repr(raised.value) for text in (*HISTORY, UTTERANCE))
    return raised.value


def detail(error: grpc.aio.AioRpcError, kind: type[Any]) -> Any:
    """Returns the one detail of this kind that travels with the status."""
    status = rpc_status.from_call(error)
    message = kind()
    [packed] = [any_ for any_ in status.details if any_.Is(kind.DESCRIPTOR)]
    packed.Unpack(message)
    return message


async def health_of(served: Front, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(served.channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=service))).status)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models"))


async def test_a_turn_is_rewritten_with_spans_and_model() -> None:
    async with front(FakeBackend()) as served:
        response = await served.stub.Rewrite(request(request_id="r-1"))
    assert (response.text, response.outcome, response.request_id) == ("西安明天有雨吗", pb.OUTCOME_REWRITTEN, "r-1")
    first = response.spans[0]
    assert (first.start, first.end, first.origin, first.turn) == (0, 2, pb.ORIGIN_HISTORY, 0)
    assert (response.model.name, response.model.version) == ("fake", "7")
    assert not response.alternatives


async def test_a_conversation_without_history_comes_back_to_the_letter() -> None:
    async with front(FakeBackend()) as served:
        response = await served.stub.Rewrite(request(history=[], utterance=" 明天\x00有雨\u200b吗 𠮷\n"))
    assert (response.text, response.outcome) == (" 明天\x00有雨\u200b吗 𠮷\n", pb.OUTCOME_UNCHANGED)


async def test_control_characters_in_every_turn_do_no_harm() -> None:
    hostile = "".join(map(chr, range(1, 32))) + "\u202e\ufeff\U0010ffff"
    async with front(FakeBackend()) as served:
        response = await served.stub.Rewrite(request(history=["西安", hostile], utterance="明天" + hostile + "有雨吗"))
    assert response.outcome == pb.OUTCOME_REWRITTEN
    assert response.text.startswith("西安明天")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"utterance": ""}, "utterance"),
        ({"utterance": UTTERANCE * 101}, "utterance"),
        ({"history": HISTORY * 201}, "history"),
        ({"history": [HISTORY[0] * 201]}, "history[0]"),
        ({"max_alternatives": -1}, "max_alternatives"),
        ({"failure_mode": 77}, "failure_mode"),
    ],
)
async def test_bad_input_is_an_invalid_argument_that_names_the_field(fields: dict[str, Any], field: str) -> None:
    async with front(FakeBackend()) as served:
        error = await error_of(served.stub.Rewrite(request(**fields)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith(f"{field}: expected")
    assert [v.field for v in detail(error, error_details_pb2.BadRequest).field_violations] == [field]


async def test_thousands_of_oversized_turns_are_one_short_status() -> None:
    async with front(FakeBackend(), max_turn_characters=1) as served:
        error = await error_of(served.stub.Rewrite(request(history=["长长"] * 20_000)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(error.details()) < 1000


@pytest.mark.parametrize("wire", [b"\x12\x02\xff\xfe", b"\xff\xff\xff", b"\x12\x7fshort"])
async def test_bytes_that_are_no_message_are_an_invalid_argument(wire: bytes) -> None:
    async with front(FakeBackend()) as served:
        error = await error_of(served.channel.unary_unary(f"/{SERVICE}/Rewrite")(wire))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "expected a valid message with text in UTF-8, found other bytes"


async def test_a_message_beyond_the_size_limit_is_refused() -> None:
    async with front(FakeBackend(), max_message_bytes=2048) as served:
        error = await error_of(served.stub.Rewrite(request(history=["长" * 1000])))
        enormous = await error_of(served.stub.Rewrite(request(history=["长" * 2000])))
        labels = {"method": "Rewrite", "code": "RESOURCE_EXHAUSTED"}
        registry = served.server.observability.metrics.registry
        assert registry.get_sample_value("rewriter_calls_total", labels) == 2
    assert error.code() is enormous.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details().startswith("expected a message of at most 2048 bytes, found 30")


TROUBLE = [
    (BackendUnavailable, grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE"),
    (BackendTimeout, grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE"),
    (BackendOverloaded, grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"),
    (BrokenAnswer, grpc.StatusCode.INTERNAL, "BROKEN_ANSWER"),
    (UnfinishedAnswer, grpc.StatusCode.INTERNAL, "UNFINISHED"),
]


@pytest.mark.parametrize(("error", "code", "reason"), TROUBLE)
async def test_trouble_of_ours_is_the_original_turn_or_the_error_that_was_asked_for(
    error: type[Exception], code: grpc.StatusCode, reason: str
) -> None:
    async with front(failing_with(error("trouble"))) as served:
        response = await served.stub.Rewrite(request())
        raised = await error_of(served.stub.Rewrite(request(failure_mode=pb.FAILURE_MODE_ERROR)))
    assert (response.text, response.outcome) == (UTTERANCE, pb.OUTCOME_PASSTHROUGH)
    assert pb.PassthroughReason.Name(response.passthrough_reason) == f"PASSTHROUGH_REASON_{reason}"
    assert (raised.code(), raised.details()) == (code, "trouble")
    info = detail(raised, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == (reason, "rewriter.v1")


@pytest.mark.parametrize("error", [BackendUnavailable, BackendOverloaded])
async def test_errors_worth_a_retry_say_when(error: type[Exception]) -> None:
    async with front(failing_with(error("trouble"))) as served:
        raised = await error_of(served.stub.Rewrite(request(failure_mode=pb.FAILURE_MODE_ERROR)))
    assert detail(raised, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() > 0


async def test_an_utterance_of_too_many_words_as_an_error_names_the_field() -> None:
    utterance = "明天有雨吗" * 30
    async with front(FakeBackend()) as served:
        raised = await error_of(served.stub.Rewrite(request(utterance=utterance, failure_mode=pb.FAILURE_MODE_ERROR)))
    assert raised.code() is grpc.StatusCode.INVALID_ARGUMENT
    tokens = len(features().tokenizer.tokenize(utterance))
    assert raised.details() == f"utterance: expected an utterance of at most 40 tokens, found {tokens}"
    assert detail(raised, error_details_pb2.BadRequest).field_violations[0].field == "utterance"


async def test_an_unexpected_exception_says_nothing_to_anyone(caplog: pytest.LogCaptureFixture) -> None:
    async with front(failing_with(RuntimeError(f"failed on {UTTERANCE}"))) as served:
        response = await served.stub.Rewrite(request())
        error = await error_of(served.stub.Rewrite(request(failure_mode=pb.FAILURE_MODE_ERROR)))
    assert (response.text, response.outcome) == (UTTERANCE, pb.OUTCOME_PASSTHROUGH)
    assert response.passthrough_reason == pb.PASSTHROUGH_REASON_MODEL_UNAVAILABLE
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")
    assert caplog.text.count("unexpected RuntimeError") == 2
    assert UTTERANCE not in caplog.text


async def test_the_backend_gets_less_time_than_the_client() -> None:
    backend = FakeBackend()
    async with front(backend, default_deadline_seconds=30, deadline_margin_seconds=1) as served:
        await served.stub.Rewrite(request(), timeout=10)
    assert 5 < backend.timeouts[0] < 9.5


async def test_a_slow_model_is_a_passthrough_before_the_deadline_of_the_client() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend, deadline_margin_seconds=0.3) as served:
        response = await served.stub.Rewrite(request(), timeout=0.5)
    assert response.passthrough_reason == pb.PASSTHROUGH_REASON_DEADLINE


async def test_a_call_without_a_deadline_gets_one() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend, default_deadline_seconds=0.1) as served:
        response = await served.stub.Rewrite(request())
    assert response.passthrough_reason == pb.PASSTHROUGH_REASON_DEADLINE


async def test_a_caller_who_gives_up_frees_the_model() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served:
        call = served.stub.Rewrite(request())
        await backend.wait_until_asked(1)
        call.cancel()
        await backend.cancelled.wait()


async def test_a_batch_keeps_its_order_and_a_bad_item_harms_no_other() -> None:
    def answer(source: Source) -> Prediction:
        if source.conversation.utterance == "出错":
            raise RuntimeError("出错")
        return first_word_and_utterance(source)

    items = [
        request(request_id="good"),
        request(utterance="", request_id="empty"),
        request(utterance="出错", request_id="bug", failure_mode=pb.FAILURE_MODE_ERROR),
        request(utterance="后天呢", request_id="also good"),
        request(utterance="出错", request_id="passed through"),
    ]
    async with front(FakeBackend(answer)) as served:
        results = (await served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=items))).results
    assert [result.WhichOneof("result") for result in results] == ["response", "error", "error", "response", "response"]
    assert (results[0].response.text, results[3].response.text) == ("西安明天有雨吗", "西安后天呢")
    assert (results[1].error.code, results[1].error.message) == (3, "utterance: expected a turn, found nothing")
    assert (results[2].error.code, results[2].error.message) == (13, "internal error")
    assert results[2].error.request_id == "bug"
    assert (results[4].response.text, results[4].response.outcome) == ("出错", pb.OUTCOME_PASSTHROUGH)


async def test_others_are_heard_while_a_batch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, heard, rounds = features().encode, set(), 0

    async def listen() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    def noting(conversation: Conversation) -> Source:
        heard.add(rounds)
        return encode(conversation)

    monkeypatch.setattr(features(), "encode", noting)
    listening = asyncio.create_task(listen())
    async with front(FakeBackend()) as served:
        await served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[request()] * 8))
    listening.cancel()
    assert len(heard) == 8


async def test_a_caller_who_gives_up_a_batch_frees_the_model() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served:
        call = served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[request()] * 3))
        await backend.wait_until_asked(3)
        call.cancel()
        await backend.cancelled.wait()


async def test_a_batch_beyond_its_limit_is_an_invalid_argument() -> None:
    async with front(FakeBackend(), max_batch_items=2) as served:
        error = await error_of(served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[request()] * 3)))
        empty = await served.stub.BatchRewrite(pb.BatchRewriteRequest())
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "requests: expected at most 2 requests, found 3",
    )
    assert not empty.results


async def test_a_stream_answers_as_it_can_and_lives_through_bad_items() -> None:
    first_may_go = asyncio.Event()

    class SlowFirst(FakeBackend):
        async def predict(self, sources: Any, *, beam: bool, timeout_seconds: float) -> list[Prediction]:
            if sources[0].conversation.utterance == "慢":
                await first_may_go.wait()
            return await super().predict(sources, beam=beam, timeout_seconds=timeout_seconds)

    async with front(SlowFirst()) as served:
        call = served.stub.StreamRewrite()
        for name, utterance in (("slow", "慢"), ("bad", ""), ("fast", "快")):
            await call.write(pb.StreamRewriteRequest(request=request(utterance=utterance, request_id=name)))
        early = [await call.read(), await call.read()]
        assert {response.request_id for response in early} == {"bad", "fast"}
        first_may_go.set()
        late = await call.read()
        assert (late.request_id, late.response.text) == ("slow", "西安慢")
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_bytes_that_are_no_message_end_a_stream() -> None:
    async def wire() -> AsyncIterator[bytes]:
        yield b"\xff\xff\xff"

    async with front(FakeBackend()) as served:
        call = served.channel.stream_stream(f"/{SERVICE}/StreamRewrite")(wire())
        error = await error_of(call.read())
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_model_and_every_limit_can_be_asked_for() -> None:
    async with front(FakeBackend(), max_batch_items=5) as served:
        info = await served.stub.GetModelInfo(pb.GetModelInfoRequest())
    assert (info.model.name, info.max_batch_items, info.max_utterance_tokens) == ("fake", 5, 40)
    limits = (info.max_turn_characters, info.max_utterance_characters, info.max_history_turns)
    assert (*limits, info.max_answer_milliseconds) == (2000, 500, 200, 10_000)
    assert all(value for _, value in info.ListFields())
    assert len(info.ListFields()) == len(info.DESCRIPTOR.fields)


async def test_the_log_has_one_line_of_facts_per_call_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with front(FakeBackend()) as served:
        await served.stub.Rewrite(request(request_id="r-1"))
        await error_of(served.stub.Rewrite(request(utterance="")))
        await served.stub.BatchRewrite(pb.BatchRewriteRequest(requests=[request(), request(utterance="")]))
        await health_of(served)
    lines: list[dict[str, Any]] = [vars(each)["facts"] for each in caplog.records if each.name == "serving.requests"]
    assert [(line["method"], line["code"]) for line in lines] == [
        ("Rewrite", "OK"),
        ("Rewrite", "INVALID_ARGUMENT"),
        ("BatchRewrite", "OK"),
    ]
    assert lines[0]["milliseconds"] > 0
    assert lines[0]["bytes"] == request(request_id="r-1").ByteSize()
    assert lines[0]["caller"].startswith("ipv4:127.0.0.1")
    assert 0 < lines[0]["stage_milliseconds"]["tokenise"] < lines[0]["stage_milliseconds"]["turn"]
    assert {key: lines[0][key] for key in ("request_id", "rewrites", "turns", "characters", "outcomes", "reasons")} == {
        "request_id": "r-1",
        "rewrites": 1,
        "turns": 2,
        "characters": 15,
        "outcomes": {"REWRITTEN": 1},
        "reasons": {},
    }
    assert lines[2]["outcomes"] == {"REWRITTEN": 1, "ERROR": 1}
    assert not any(text in f"{caplog.text} {lines}" for text in (*HISTORY, UTTERANCE))


async def test_text_is_logged_only_where_an_operator_asks_for_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with front(FakeBackend(), log_text=True) as served:
        await served.stub.Rewrite(request())
    [line] = [json.loads(record.message) for record in caplog.records if record.name == "serving.text"]
    assert (line["history"], line["utterance"], line["text"]) == (HISTORY, UTTERANCE, "西安明天有雨吗")


async def test_health_is_serving_only_between_the_warm_up_and_the_stop() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == NOT_SERVING
        warming_up = asyncio.ensure_future(served.server.warm_up())
        assert await health_of(served) == NOT_SERVING
        backend.open.set()
        await warming_up
        assert (await watch.read()).status == SERVING
        assert (await health_of(served), await health_of(served, SERVICE)) == (SERVING, SERVING)
        stopping = asyncio.ensure_future(served.server.stop())
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        await stopping
    assert backend.closed


async def test_health_stays_off_when_the_model_fails_its_warm_up() -> None:
    async with front(failing_with(BackendUnavailable("down"))) as served:
        with pytest.raises(BackendUnavailable):
            await served.server.warm_up()
        assert await health_of(served) == NOT_SERVING


@pytest.mark.parametrize(
    "trouble", [BackendOverloaded("full"), BackendTimeout("late"), BackendUnreachable("left alone")]
)
async def test_trouble_that_passes_holds_up_the_warm_up_and_does_not_end_it(
    trouble: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("serving.server._WARM_UP_PAUSE_SECONDS", 0.001)
    backend = failing_with(trouble)
    async with front(backend) as served:
        warming_up = asyncio.create_task(served.server.warm_up())
        await backend.wait_until_asked(3)
        assert await health_of(served) == NOT_SERVING
        backend.answer = first_word_and_utterance
        await warming_up
        assert await health_of(served) == SERVING
    assert f"the model is not warm yet: {trouble}" in caplog.text


async def test_a_model_that_cannot_be_used_ends_the_server_in_words() -> None:
    async with front(failing_with(BackendUnavailable("of another vocabulary"))) as served:
        with pytest.raises(RuntimeError, match="the model cannot be used: of another vocabulary"):
            await _serve_until(asyncio.Event(), served.server, end_when_stuck=False)


async def test_a_model_that_hangs_at_its_first_answer_ends_the_process_of_a_worker() -> None:
    class Hanging(AlwaysUsable):
        def seconds_stuck(self) -> float:
            return 1000.0

    backend = failing_with(BackendTimeout("late"))
    settings = ServerSettings(model_dir=Path("unused"), port=0)
    server = FrontServer(settings, backend, rewriting(backend), model_state=Hanging())
    await server.start()
    with pytest.raises(ModelStuck):
        await _serve_until(asyncio.Event(), server, end_when_stuck=True)


async def test_stopping_under_load_loses_no_call_and_accepts_no_new_one() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served:
        calls = [asyncio.ensure_future(_awaited(served.stub.Rewrite(request()))) for _ in range(20)]
        await backend.wait_until_asked(20)
        stopping = asyncio.ensure_future(served.server.stop())
        refused = await error_of(_until_refused(served))
        # gRPC cancels what reached the machine but not yet the server when it was told to stop.
        assert refused.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert not backend.closed
        backend.open.set()
        responses = await asyncio.gather(*calls)
        await stopping
    assert [response.text for response in responses] == ["西安明天有雨吗"] * 20


async def _awaited(call: Any) -> Any:
    return await call


async def _until_refused(served: Front) -> None:
    """New calls until one fails: the client learns of the stop a moment after the server."""
    while True:
        await served.stub.GetModelInfo(pb.GetModelInfoRequest())


async def test_reflection_lists_the_services() -> None:
    async with front(FakeBackend()) as served:
        stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        services = (await call.read()).list_services_response.service
        await call.done_writing()
    assert {service.name for service in services} == {
        "rewriter.v1.RewriterService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_a_saved_model_is_served_from_its_newest_version(model_dir: Path) -> None:
    (model_dir / "latest").mkdir(exist_ok=True)
    server = create(ServerSettings(model_dir=model_dir, port=0, default_deadline_seconds=30))
    target = f"127.0.0.1:{await server.start()}"
    async with AsyncRewriter(target, timeout_seconds=10) as rewriter:
        before = await rewriter.rewrite(HISTORY, UTTERANCE)
        await server.warm_up()
        answer = await rewriter.rewrite(HISTORY, UTTERANCE, max_alternatives=3)
        many = await asyncio.gather(*(rewriter.rewrite(HISTORY * n, UTTERANCE) for n in range(1, 40, 2)))
    await server.stop()
    assert (before.text, before.reason.name if before.reason else None) == (UTTERANCE, "MODEL_UNAVAILABLE")
    assert (answer.text, answer.model.name) == ("西安明天有雨吗", "first-word")
    assert [alternative.text for alternative in answer.alternatives] == [UTTERANCE]
    assert {rewritten.text for rewritten in many} == {"西安明天有雨吗"}


async def test_the_sources_of_one_batch_are_of_similar_length(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[int]] = []

    def noting(sources: Sequence[Source]) -> Any:
        batches.append([len(source) for source in sources])
        return collate(sources)

    monkeypatch.setattr("serving.embedded.collate", noting)
    backend = EmbeddedBackend(model_dir / "1", FINGERPRINT, max_batch_size=8, max_queue_size=100)
    await backend.start()
    sources = [features().encode(Conversation(("西安今天" * times,), UTTERANCE)) for times in (1, 40, 2, 41, 3, 42)]
    await backend.predict(sources, beam=False, timeout_seconds=30)
    await backend.close()
    assert max(map(len, batches)) > 1
    assert all(max(lengths) < 2 * min(lengths) for lengths in batches)


async def test_the_log_does_not_repeat_what_a_model_failed_with(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**arrays: object) -> None:
        raise ArithmeticError("indices[0,0] = 4711")

    backend = EmbeddedBackend(model_dir / "1", FINGERPRINT, max_batch_size=8, max_queue_size=100)
    await backend.start()
    monkeypatch.setitem(backend._signatures, GREEDY, fail)
    with pytest.raises(BackendUnavailable, match="the model failed: ArithmeticError"):
        source = features().encode(Conversation(tuple(HISTORY), UTTERANCE))
        await backend.predict([source], beam=False, timeout_seconds=30)
    await backend.close()
    assert "the model failed on a batch of 1: ArithmeticError" in caplog.text
    assert "4711" not in caplog.text


async def test_a_version_that_arrives_during_the_start_is_not_mixed_with_the_one_before(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter([model_dir / "1", model_dir / "2"])
    monkeypatch.setattr("serving.backends.newest_version", lambda folder: next(versions))
    guarded = guarded_model(ServerSettings(model_dir=model_dir), Metrics())
    assert guarded.choose("").model.version == "1"
    assert next(versions) == model_dir / "2"


@pytest.mark.parametrize(
    ("changes", "reason"), [({"fingerprint": 5}, "BROKEN_ANSWER"), ({"finished": False}, "UNFINISHED")]
)
async def test_a_saved_model_whose_answers_cannot_be_trusted_is_passed_by(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    server = create(ServerSettings(model_dir=write_model(tmp_path, **changes), port=0))
    target = f"127.0.0.1:{await server.start()}"
    try:
        await server.warm_up()
    except BrokenAnswer as error:
        assert reason == "BROKEN_ANSWER" and "found [5]" in str(error)
    async with AsyncRewriter(target, timeout_seconds=10) as rewriter:
        answer = await rewriter.rewrite(HISTORY, UTTERANCE)
    await server.stop()
    assert answer.text == UTTERANCE
    assert answer.reason is not None and answer.reason.name == reason


def _without_versions(folder: Path) -> None:
    folder.joinpath("latest").mkdir()


def _with_another_vocabulary(folder: Path) -> None:
    words = write_model(folder) / "1/assets.extra/rewriter/words.txt"
    words.write_text(words.read_text(encoding="utf-8") + "雪\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (_without_versions, "expected a numbered version folder, found none"),
        (_with_another_vocabulary, "expected the vocabulary .*, found"),
    ],
)
async def test_a_model_that_does_not_fit_together_is_not_served(
    tmp_path: Path, prepare: Callable[[Path], None], message: str
) -> None:
    prepare(tmp_path)
    with pytest.raises(ValueError, match=message):
        create(ServerSettings(model_dir=tmp_path))


async def test_a_server_process_serves_until_it_is_told_to_stop(model_dir: Path) -> None:
    program = (
        "from pathlib import Path; from serving.config import ServerSettings; from serving.server import run; "
        f"run(ServerSettings(model_dir=Path({str(model_dir)!r}), port=0, metrics=dict(port=0)))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    lines: list[str] = []
    while "listening on" not in (lines[-1] if lines else ""):
        lines.append((await process.stderr.readline()).decode())
        assert lines[-1], "".join(lines)
    async with AsyncRewriter(lines[-1].split()[-1], timeout_seconds=10) as rewriter:
        await rewriter.wait_until_healthy()
        assert (await rewriter.rewrite(HISTORY, UTTERANCE)).text == "西安明天有雨吗"
    process.terminate()
    _, rest = await process.communicate()
    assert process.returncode == 0
    assert "stopping" in rest.decode()
    assert UTTERANCE not in "".join(lines) + rest.decode()


async def test_a_server_process_whose_model_cannot_be_used_ends_with_one_line_and_status_2(tmp_path: Path) -> None:
    command = ["-m", "rewriter", "serve", "--model-dir", str(write_model(tmp_path, fingerprint=5)), "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--set", "metrics.port=0", stderr=asyncio.subprocess.PIPE
    )
    _, log = await process.communicate()
    assert process.returncode == 2
    assert "rewriter: the model cannot be used: expected" in log.decode()
    assert "Traceback" not in log.decode()


@pytest.mark.parametrize(
    "program",
    [
        "from rewriter.cli import main; "
        "sys.argv[1:] = ['serve', '--model-dir', {folder}, '--port', '0', '--set', 'metrics.port=0']; main()",
        "import json; from serving.processes.worker import main; "
        "sys.exit(main(json.dumps({{'config': None, 'flags': {{'model_dir': {folder}, 'port': 0}}}})))",
    ],
    ids=["alone", "as a worker"],
)
async def test_a_server_process_without_tensorflow_ends_with_one_line_and_status_2(
    model_dir: Path, program: str
) -> None:
    # None makes an import fail.
    code = "import sys; sys.modules['tensorflow'] = None; " + program.format(folder=repr(str(model_dir)))
    pipe = asyncio.subprocess.PIPE  # a worker ends with its standard input
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stderr=pipe)
    assert process.stderr is not None
    log = (await process.stderr.read()).decode()
    assert await process.wait() == 2
    assert "rewriter: the model cannot be used: " in log and "tensorflow" in log
    assert "Traceback" not in log
