"""Around every call of ours: bytes that are no message, exceptions to statuses, one line of log without any text."""

import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from grpc_status import rpc_status

from serving.errors import MalformedRequest, to_status
from serving.pb import rewriter_pb2 as pb

REQUEST_LOG = logging.getLogger("serving.requests")

_OUR_METHODS = f"/{pb.DESCRIPTOR.services_by_name['RewriterService'].full_name}/"


@dataclass
class CallRecord:
    """What the log says about one call, which carries one rewrite or many."""

    method: str
    code: str = "CANCELLED"  # unless the call comes to an end of its own
    request_id: str = ""
    rewrites: int = 0
    turns: int = 0
    characters: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.perf_counter)

    def saw(self, message: Any) -> None:
        for request in _requests_in(message):
            self.request_id = request.request_id
            self.rewrites += 1
            self.turns += len(request.history) + 1
            self.characters += len(request.utterance) + sum(map(len, request.history))

    def answered(self, message: Any) -> None:
        for response in _responses_in(message):
            if isinstance(response, pb.RewriteError):
                self.outcomes["ERROR"] += 1
                continue
            self.outcomes[pb.Outcome.Name(response.outcome).removeprefix("OUTCOME_")] += 1
            if response.passthrough_reason:
                reason = pb.PassthroughReason.Name(response.passthrough_reason)
                self.reasons[reason.removeprefix("PASSTHROUGH_REASON_")] += 1

    def write(self) -> None:
        facts = {key: value for key, value in vars(self).items() if key != "started"}
        facts["milliseconds"] = round((time.perf_counter() - self.started) * 1000, 2)
        REQUEST_LOG.info(json.dumps(facts, ensure_ascii=True))


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Leaves health checks and reflection alone."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(_OUR_METHODS):
            return handler
        streams = handler.stream_stream is not None
        make = grpc.stream_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        guard = _guard_stream if streams else _guard_unary
        return make(
            guard(method.removeprefix(_OUR_METHODS), handler.stream_stream if streams else handler.unary_unary),
            request_deserializer=_read_or_mark(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )


def _guard_unary(method: str, behaviour: Any) -> Any:
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> Any:
        record = CallRecord(method)
        try:
            response = await behaviour(_seen(request, record), context)
            record.answered(response)
            record.code = "OK"
            return response
        except Exception as error:
            await context.abort_with_status(_status_of(error, record))
        finally:
            record.write()

    return guarded


def _guard_stream(method: str, behaviour: Any) -> Any:
    async def guarded(requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        record = CallRecord(method)
        try:
            async for response in behaviour((_seen(request, record) async for request in requests), context):
                record.answered(response)
                yield response
            record.code = "OK"
        except Exception as error:
            await context.abort_with_status(_status_of(error, record))
        finally:
            record.write()

    return guarded


def _status_of(error: Exception, record: CallRecord) -> grpc.Status:
    status = to_status(error)
    record.code = code_pb2.Code.Name(status.code)
    return rpc_status.to_status(status)


def _read_or_mark(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """gRPC would answer UNKNOWN to an exception here, so bytes that are no message pass as None."""

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return None

    return read


def _seen(request: Any, record: CallRecord) -> Any:
    if request is None:
        raise MalformedRequest
    record.saw(request)
    return request


def _requests_in(message: Any) -> Sequence[pb.RewriteRequest]:
    match message:
        case pb.RewriteRequest():
            return [message]
        case pb.BatchRewriteRequest():
            return list(message.requests)
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
