import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from saved_models import write_model

from serving.generate import REPOSITORY
from serving.pb import rewriter_pb2 as pb

BENCHMARKS = REPOSITORY / "benchmarks"
INFO = pb.GetModelInfoResponse(
    model=pb.Model(name="fake", version="7"),
    max_history_turns=200,
    max_turn_characters=2000,
    max_utterance_characters=500,
    max_alternatives=8,
    max_batch_items=64,
    max_message_bytes=256 * 1024,
)
REQUEST = pb.RewriteRequest(history=["兰州下雪了"], utterance="冷不冷", request_id="r-1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("hostile_calls")


@pytest.fixture
def judge(calls: Any) -> Any:
    return importlib.import_module("hostile_judge")


def response() -> pb.RewriteResponse:
    return pb.RewriteResponse(
        text="兰州冷不冷",
        outcome=pb.OUTCOME_REWRITTEN,
        confidence=0.5,
        spans=[
            pb.Span(start=0, end=2, origin=pb.ORIGIN_HISTORY, turn=0, source_start=0, source_end=2),
            pb.Span(start=2, end=5, origin=pb.ORIGIN_UTTERANCE, turn=1, source_start=0, source_end=3),
        ],
        model=INFO.model,
        request_id="r-1",
    )


def rewrite(calls: Any, request: pb.RewriteRequest) -> Any:
    return calls.Call("test", "Rewrite", (request.SerializeToString(),))


def test_the_service_survives_hostile_calls(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "hostile.py"), str(write_model(tmp_path)), "--calls", "400"]
    done = subprocess.run([*command, "--seed", "7"], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert (summary["calls"], summary["faults"]) == (400, 0)
    assert {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"} <= set(summary["statuses"])
    assert summary["kinds"]["good"] == {"OK": 133}


def test_the_same_seed_makes_the_same_calls_and_every_kind_comes_up(calls: Any) -> None:
    first, again, other = (list(calls.hostile_calls(300, seed, INFO)) for seed in (1, 1, 2))
    assert first == again != other
    assert len({call.kind for call in first}) > 40
    assert sum(call.kind == "good" for call in first) == 100


def test_a_right_answer_has_no_faults(calls: Any, judge: Any) -> None:
    reply = judge.Reply(grpc.StatusCode.OK, "", None, (response().SerializeToString(),))
    assert judge.faults(rewrite(calls, REQUEST), reply, INFO) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda it: setattr(it, "text", ""),
        lambda it: setattr(it, "text", "兰州很冷不冷"),
        lambda it: setattr(it, "outcome", pb.OUTCOME_UNCHANGED),
        lambda it: setattr(it, "outcome", pb.OUTCOME_PASSTHROUGH),
        lambda it: setattr(it, "passthrough_reason", pb.PASSTHROUGH_REASON_MODEL_UNAVAILABLE),
        lambda it: setattr(it, "request_id", "r-2"),
        lambda it: setattr(it, "confidence", 1.5),
        lambda it: setattr(it.model, "version", "8"),
        lambda it: setattr(it.spans[0], "end", 3),
        lambda it: setattr(it.spans[0], "source_start", 1),
        lambda it: setattr(it.spans[0], "turn", 2),
        lambda it: setattr(it.spans[1], "origin", pb.ORIGIN_HISTORY),
        lambda it: setattr(it.spans[1], "end", 50),
        lambda it: it.spans.pop(),
        lambda it: it.alternatives.add(text="冷不冷"),
    ],
)
def test_a_response_that_breaks_the_contract_is_a_fault(
    calls: Any, judge: Any, spoil: Callable[[pb.RewriteResponse], Any]
) -> None:
    spoilt = response()
    spoil(spoilt)
    reply = judge.Reply(grpc.StatusCode.OK, "", None, (spoilt.SerializeToString(),))
    assert judge.faults(rewrite(calls, REQUEST), reply, INFO)


def refusal(judge: Any, message: str, *, field: str = "utterance", code: int = code_pb2.INVALID_ARGUMENT) -> Any:
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
    status = status_pb2.Status(code=code, message=message)
    status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    [name] = [each for each in grpc.StatusCode if each.value[0] == code]
    return judge.Reply(name, message, status, ())


def test_an_error_has_to_name_field_limit_and_size_and_to_quote_nobody(calls: Any, judge: Any) -> None:
    long = rewrite(calls, pb.RewriteRequest(utterance="冷" * 501))
    right = "utterance: expected at most 500 characters, found 501"
    assert judge.faults(long, refusal(judge, right), INFO) == []
    for wrong in ("utterance: too long", right.replace("501", "5"), right.replace("utterance", "history")):
        assert judge.faults(long, refusal(judge, wrong), INFO)
    assert judge.faults(long, refusal(judge, f"{right}: {'冷' * 9}"), INFO)
    assert judge.faults(long, refusal(judge, right, field="history"), INFO)
    assert judge.faults(long, judge.Reply(grpc.StatusCode.INVALID_ARGUMENT, right, None, ()), INFO)
    assert judge.faults(long, refusal(judge, right, code=code_pb2.INTERNAL), INFO)


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE])
def test_an_error_of_the_servers_own_is_always_a_fault(calls: Any, judge: Any, code: grpc.StatusCode) -> None:
    for call in calls.hostile_calls(150, 3, INFO):
        assert judge.faults(call, judge.Reply(code, "internal error", None, ()), INFO), call.kind


def test_a_caller_who_waits_gets_an_answer_and_one_who_leaves_need_not(calls: Any, judge: Any) -> None:
    reply = judge.Reply(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", None, ())
    waiting = rewrite(calls, REQUEST)
    leaving = calls.Call("test", "Rewrite", waiting.messages, timeout_seconds=0.001)
    assert judge.faults(waiting, reply, INFO)
    assert judge.faults(leaving, reply, INFO) == []


def test_a_stream_must_answer_each_request_once_and_by_its_name(calls: Any, judge: Any) -> None:
    call = calls.Call("test", "StreamRewrite", (pb.StreamRewriteRequest(request=REQUEST).SerializeToString(),))
    right = pb.StreamRewriteResponse(request_id="r-1", response=response()).SerializeToString()
    other = pb.StreamRewriteResponse(request_id="r-2", response=response()).SerializeToString()
    for answers, fine in (((right,), True), ((), False), ((right, right), False), ((other,), False)):
        reply = judge.Reply(grpc.StatusCode.OK, "", None, answers)
        assert (judge.faults(call, reply, INFO) == []) is fine
