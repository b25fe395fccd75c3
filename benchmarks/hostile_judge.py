"""What is wrong with the answer to a hostile call; knows the contract (``rewriter.proto``) and not the server."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hostile_calls import Call

from serving.pb import rewriter_pb2 as pb

REQUESTS: dict[str, type[Message]] = {
    "Rewrite": pb.RewriteRequest,
    "BatchRewrite": pb.BatchRewriteRequest,
    "StreamRewrite": pb.StreamRewriteRequest,
    "GetModelInfo": pb.GetModelInfoRequest,
}
_RESPONSES: dict[str, type[Message]] = {
    "Rewrite": pb.RewriteResponse,
    "BatchRewrite": pb.BatchRewriteResponse,
    "StreamRewrite": pb.StreamRewriteResponse,
    "GetModelInfo": pb.GetModelInfoResponse,
}
_LEFT = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
# Trouble that a hostile caller may bring upon himself; a model that is missing or broken he must not.
_TROUBLE = {
    "DEADLINE": code_pb2.DEADLINE_EXCEEDED,
    "OVERLOADED": code_pb2.RESOURCE_EXHAUSTED,
    "UNFINISHED": code_pb2.INTERNAL,
    "UTTERANCE_TOO_LONG": code_pb2.INVALID_ARGUMENT,
}
_TROUBLE_CODES = tuple(_TROUBLE.values())
_MAX_REQUEST_ID_CHARACTERS = 128
_MAX_NAMED = 8
_LONGEST_QUOTE = 6
_TEXT_TO_SEARCH = 10_000


@dataclass(frozen=True)
class Reply:
    """What the caller got; ``status`` came with the trailing metadata."""

    code: grpc.StatusCode
    message: str
    status: status_pb2.Status | None
    answers: tuple[bytes, ...]


@dataclass(frozen=True)
class Limit:
    """A field beyond its limit, as the error has to name it."""

    field: str
    limit: str
    found: str


def faults(call: Call, reply: Reply, info: pb.GetModelInfoResponse) -> list[str]:
    """Everything about the reply that the contract does not allow; says nothing of the texts themselves."""
    return [*_quotes(call, reply), *_faults(call, reply, info)]


def outcomes(call: Call, reply: Reply) -> Counter[str]:
    """What became of the turns of a call: names of outcomes, reasons and codes."""
    found: Counter[str] = Counter()
    for answer in reply.answers:
        message = _RESPONSES[call.method].FromString(answer)
        for each in getattr(message, "results", [message]):
            found[_outcome(each)] += 1
    return found


def _faults(call: Call, reply: Reply, info: pb.GetModelInfoResponse) -> Iterator[str]:
    if call.method not in REQUESTS:
        yield from _unless(reply, grpc.StatusCode.UNIMPLEMENTED)
        return
    requests = [_read(REQUESTS[call.method], message) for message in call.messages]
    if call.on_stream:
        yield from _stream_answers(requests, reply, info)
    if call.impatient and reply.code in _LEFT:
        return
    if any(len(message) > info.max_message_bytes for message in call.messages):
        # Refused while the rest of it is on its way: an old connection may end in between, and the answer with it.
        if not (reply.code == grpc.StatusCode.UNAVAILABLE and "max_age" in reply.message):
            yield from _unless(reply, grpc.StatusCode.RESOURCE_EXHAUSTED)
    elif any(request is None for request in requests):
        yield from _unless(reply, grpc.StatusCode.INVALID_ARGUMENT)
        if reply.message != "expected a valid message with text in UTF-8, found other bytes":
            yield "bytes that are no message are not called so"
    elif call.on_stream:
        yield from _unless(reply, grpc.StatusCode.OK)
        if len(reply.answers) != len(requests):
            yield f"expected {len(requests)} answers on the stream, found {len(reply.answers)}"
    else:
        yield from _unary(requests[0], reply, info)


def _unary(request: Any, reply: Reply, info: pb.GetModelInfoResponse) -> Iterator[str]:
    answers = [_response_to(request).FromString(answer) for answer in reply.answers]
    match request:
        case pb.BatchRewriteRequest() if len(request.requests) > info.max_batch_items:
            limit = Limit("requests", str(info.max_batch_items), str(len(request.requests)))
            yield from _unless(reply, grpc.StatusCode.INVALID_ARGUMENT)
            yield from _unnamed([limit], reply.message)
            yield from _undetailed([limit], reply.status)
        case pb.RewriteRequest() if reply.code is not grpc.StatusCode.OK:
            yield from _error(request, reply.code.value[0], reply.message, info)
            yield from _undetailed(beyond_limits(request, info), reply.status)
        case _ if reply.code is not grpc.StatusCode.OK:
            yield from _unless(reply, grpc.StatusCode.OK)
        case pb.RewriteRequest():
            yield from _response(request, answers[0], info)
        case pb.BatchRewriteRequest():
            results = answers[0].results
            if len(results) != len(request.requests):
                yield f"expected {len(request.requests)} results, found {len(results)}"
            for item, result in zip(request.requests, results, strict=False):
                yield from _result(item, result, info)
        case _:
            if answers[0] != info:
                yield "the model information has changed"


def _stream_answers(requests: Sequence[Any], reply: Reply, info: pb.GetModelInfoResponse) -> Iterator[str]:
    """Each answer must be right for one of the requests with its name, and no request may have two."""
    unanswered = [message.request for message in requests if message is not None]
    for answer in map(pb.StreamRewriteResponse.FromString, reply.answers):
        same_name = [request for request in unanswered if request.request_id == answer.request_id]
        wrong = [list(_result(request, answer, info)) for request in same_name]
        if not same_name:
            yield "a stream got an answer that nobody asked for"
        elif all(wrong):
            yield from wrong[0]
        else:
            unanswered.remove(same_name[wrong.index([])])


def _result(
    request: pb.RewriteRequest, result: pb.BatchRewriteResult | pb.StreamRewriteResponse, info: pb.GetModelInfoResponse
) -> Iterator[str]:
    match result.WhichOneof("result"):
        case "response":
            yield from _response(request, result.response, info)
        case "error":
            yield from _error(request, result.error.code, result.error.message, info)
            if result.error.request_id != request.request_id:
                yield "an error with the name of another request"
        case _:
            yield "a result that is neither a response nor an error"


def beyond_limits(request: pb.RewriteRequest, info: pb.GetModelInfoResponse) -> list[Limit]:
    looked_at = request.history[: info.max_history_turns]
    sizes = [
        ("utterance", info.max_utterance_characters, len(request.utterance)),
        ("history", info.max_history_turns, len(request.history)),
        *((f"history[{i}]", info.max_turn_characters, len(turn)) for i, turn in enumerate(looked_at)),
        ("request_id", _MAX_REQUEST_ID_CHARACTERS, len(request.request_id)),
    ]
    beyond = [Limit(field, str(limit), str(found)) for field, limit, found in sizes if found > limit]
    if not request.utterance:
        beyond.append(Limit("utterance", "a turn", "nothing"))
    if not 0 <= request.max_alternatives <= info.max_alternatives:
        beyond.append(Limit("max_alternatives", str(info.max_alternatives), str(request.max_alternatives)))
    if request.failure_mode not in pb.FailureMode.values():
        beyond.append(Limit("failure_mode", "FailureMode", str(request.failure_mode)))
    return beyond


def _error(request: pb.RewriteRequest, code: int, message: str, info: pb.GetModelInfoResponse) -> Iterator[str]:
    beyond = beyond_limits(request, info)
    allowed = (code_pb2.INVALID_ARGUMENT,) if beyond else _TROUBLE_CODES
    if not beyond and request.failure_mode != pb.FAILURE_MODE_ERROR:
        yield f"an error ({code_pb2.Code.Name(code)}) instead of a passthrough"
    if code not in allowed:
        yield f"{code_pb2.Code.Name(code)} where {'a field is wrong' if beyond else 'the request is right'}"
    yield from _unnamed(beyond, message)


def _unnamed(beyond: Sequence[Limit], message: str) -> Iterator[str]:
    named = [each for each in beyond if _names(message, each)]
    if len(named) < min(len(beyond), _MAX_NAMED):
        yield f"expected the message to name {', '.join(each.field for each in beyond[:_MAX_NAMED])}"


def _names(message: str, limit: Limit) -> bool:
    """True if one of the message's parts holds the field, the limit and what arrived."""
    return any(
        part.startswith(f"{limit.field}: ") and limit.limit in part and part.endswith((limit.found, f"{limit.found} "))
        for part in message.split("; ")
    )


def _undetailed(beyond: Sequence[Limit], status: status_pb2.Status | None) -> Iterator[str]:
    details = {} if status is None else {any_.TypeName(): any_ for any_ in status.details}
    kind: type[Message] = error_details_pb2.BadRequest if beyond else error_details_pb2.ErrorInfo
    if kind.DESCRIPTOR.full_name not in details:
        yield f"an error without {kind.DESCRIPTOR.full_name}"
        return
    detail: Any = kind()
    details[kind.DESCRIPTOR.full_name].Unpack(detail)
    if not beyond and detail.reason not in _TROUBLE:
        yield f"an error for the reason {detail.reason}"
    if beyond and not {each.field for each in detail.field_violations} <= {each.field for each in beyond}:
        yield "an error that blames a field without fault"


def _response(request: pb.RewriteRequest, response: pb.RewriteResponse, info: pb.GetModelInfoResponse) -> Iterator[str]:
    if beyond := beyond_limits(request, info):
        yield f"a response although {beyond[0].field} is wrong"
    if response.request_id != request.request_id:
        yield "a response with the name of another request"
    if response.outcome not in pb.Outcome.values()[1:]:
        yield "a response without an outcome"
    if (response.text == request.utterance) == (response.outcome == pb.OUTCOME_REWRITTEN):
        yield f"a text that is not what {pb.Outcome.Name(response.outcome)} says"
    if (response.outcome == pb.OUTCOME_PASSTHROUGH) != bool(response.passthrough_reason):
        yield "a reason without a passthrough, or the reverse"
    if response.passthrough_reason and _reason(response) not in _TROUBLE:
        yield f"a passthrough for the reason {_reason(response)}"
    if response.model != info.model:
        yield "another model"
    texts = [response.text, *(alternative.text for alternative in response.alternatives)]
    if len(set(texts)) < len(texts) or len(texts) > 1 + request.max_alternatives:
        yield "alternatives that are equal or too many"
    for written in (response, *response.alternatives):
        yield from _written(request, written)


def _written(request: pb.RewriteRequest, written: pb.RewriteResponse | pb.Alternative) -> Iterator[str]:
    """A text has to consist of its spans and joining spaces, and each span of what it names."""
    if not written.text or not 0 <= written.confidence <= 1:
        yield "an empty text or a confidence that is no probability"
    turns = [*request.history, request.utterance]
    end = 0
    for span in written.spans:
        if not (end <= span.start < span.end <= len(written.text)) or written.text[end : span.start].strip(" "):
            yield "spans that overlap, leave something out or reach beyond the text"
        end = span.end
        if span.origin == pb.ORIGIN_FUNCTION_WORD:
            if (span.turn, span.source_start, span.source_end) != (-1, 0, 0):
                yield "a function word that comes from a turn"
            continue
        if not 0 <= span.turn < len(turns) or (span.turn == len(turns) - 1) != (span.origin == pb.ORIGIN_UTTERANCE):
            yield "a span of a turn that is not there, or of another origin"
        elif turns[span.turn][span.source_start : span.source_end] != written.text[span.start : span.end]:
            yield "a span that is not what stands in its turn"
    if written.text[end:]:
        yield "a text that goes on beyond its spans"


def _quotes(call: Call, reply: Reply) -> Iterator[str]:
    """Whether errors repeat what the caller said."""
    said = "\n".join(message.decode("utf-8", "replace") for message in call.messages)[:_TEXT_TO_SEARCH]
    errors = [reply.message]
    if reply.status is not None:
        errors.append(reply.status.SerializeToString().decode("utf-8", "replace"))
    if call.method in REQUESTS:
        for answer in map(_RESPONSES[call.method].FromString, reply.answers):
            results = getattr(answer, "results", [answer])
            errors += [result.error.message for result in results if hasattr(result, "error")]
    for error in errors:
        pieces = {error[i : i + _LONGEST_QUOTE] for i in range(len(error) - _LONGEST_QUOTE + 1)}
        if any(piece in said for piece in pieces):
            yield "an error that quotes the caller"


def _unless(reply: Reply, code: grpc.StatusCode) -> Iterator[str]:
    if reply.code is not code:
        yield f"expected {code.name}, found {reply.code.name}: {reply.message[:200]!r}"


def _read(kind: type[Message], message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError:
        return None


def _response_to(request: Message) -> type[Message]:
    [method] = [method for method, kind in REQUESTS.items() if isinstance(request, kind)]
    return _RESPONSES[method]


def _outcome(message: Any) -> str:
    if isinstance(message, pb.GetModelInfoResponse):
        return "INFORMATION"
    if not isinstance(message, pb.RewriteResponse):
        if message.WhichOneof("result") == "error":
            return f"ERROR {code_pb2.Code.Name(message.error.code)}"
        message = message.response
    outcome = pb.Outcome.Name(message.outcome).removeprefix("OUTCOME_")
    return f"{outcome} {_reason(message)}" if message.passthrough_reason else outcome


def _reason(response: pb.RewriteResponse) -> str:
    return str(pb.PassthroughReason.Name(response.passthrough_reason)).removeprefix("PASSTHROUGH_REASON_")
