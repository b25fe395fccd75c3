"""Around every call but health checks: who calls, bytes to a message, exceptions to statuses, the call's record."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from grpc_health.v1 import health
from grpc_status import rpc_status

from serving.access import Access, Caller
from serving.call import Call, Observability
from serving.draining import Drain, Draining, Stopping, receive
from serving.errors import MalformedRequest, MessageTooLarge, Unauthenticated, to_status
from serving.pb import rewriter_pb2 as pb

_HEALTH_METHODS = f"/{health.SERVICE_NAME}/"

Deserialize = Callable[[bytes], Any]


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Leaves health checks alone, which have to work for whoever watches the server.

    A call passes, in this order: its record begins, the caller is identified, the rate limit is checked, the message is
    received, its size is checked, it is parsed and paid for, the servicer answers. Each message of a stream has the
    caller identified and the limit checked anew.
    """

    def __init__(
        self,
        observability: Observability,
        access: Access,
        drain: Drain,
        *,
        max_message_bytes: int,
        max_turns: int,
        receive_seconds: float,
    ) -> None:
        """``max_turns`` is the most that one message can hold: what more there is, will be refused and is free."""
        self._observability = observability
        self._access = access
        self._drain = drain
        self._receive_seconds = receive_seconds
        self._max_message_bytes = max_message_bytes
        self._max_turns = max_turns
        self._guarded: dict[str, grpc.RpcMethodHandler] = {}  # by method, of those that are served

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        method = handler_call_details.method
        if method not in self._guarded:
            handler = await continuation(handler_call_details)
            if handler is None or method.startswith(_HEALTH_METHODS):
                return handler
            self._guarded[method] = self._guard(method, handler)
        return self._guarded[method]

    def _guard(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        name, deserialize = method.rpartition("/")[2], handler.request_deserializer
        # Without a deserializer gRPC hands over the bytes as they came.
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._guard_stream(name, handler.stream_stream, deserialize),
                response_serializer=handler.response_serializer,
            )
        # On the wire, a call with one message is a stream of one. As a stream it comes here before its message does,
        # for which gRPC itself would wait as long as the caller likes.
        return grpc.stream_unary_rpc_method_handler(
            self._guard_unary(name, handler.unary_unary, deserialize), response_serializer=handler.response_serializer
        )

    def _guard_unary(self, method: str, behaviour: Any, deserialize: Deserialize) -> Any:
        async def guarded(messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
            metadata = dict(context.invocation_metadata() or ())
            with Call(method, metadata, self._observability) as call:
                try:
                    caller = self._identify(call, metadata, context)
                    self._access.admit(caller)
                    data = await receive(messages, self._receive_seconds, self._drain)
                    call.received()
                    response = await behaviour(self._read(data, deserialize, call, caller), context)
                    call.answered(response)
                    call.facts.code = "OK"
                    return response
                except Exception as error:
                    await context.abort_with_status(_status_of(error, call))

        return guarded

    def _guard_stream(self, method: str, behaviour: Any, deserialize: Deserialize) -> Any:
        async def guarded(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            metadata = dict(context.invocation_metadata() or ())
            with Call(method, metadata, self._observability) as call:
                try:
                    self._access.admit(self._identify(call, metadata, context))
                    draining = Draining(requests, self._drain)
                    admit = partial(self._access.admit_when_due, metadata, context)
                    read = self._read_all(draining, deserialize, call, admit)
                    async for response in behaviour(read, context):
                        call.answered(response)
                        yield response
                    if draining.cut:
                        raise draining.cut
                    call.facts.code = "OK"
                except Exception as error:
                    await context.abort_with_status(_status_of(error, call))

        return guarded

    def _identify(self, call: Call, metadata: Mapping[str, Any], context: grpc.aio.ServicerContext) -> Caller:
        caller = self._access.identify(metadata, context)
        call.facts.caller = caller.name
        return caller

    async def _read_all(
        self, requests: Draining[bytes], deserialize: Deserialize, call: Call, admit: Callable[[], Awaitable[Caller]]
    ) -> AsyncIterator[Any]:
        async for data in requests:
            try:
                async with self._drain.cutting_short():
                    caller = await admit()
            except TimeoutError:
                requests.cut = Stopping()
                return
            except Unauthenticated as error:
                requests.cut = error  # raised once everything read before is answered
                return
            yield self._read(data, deserialize, call, caller)

    def _read(self, data: bytes, deserialize: Deserialize, call: Call, caller: Caller) -> Any:
        if len(data) > self._max_message_bytes:
            raise MessageTooLarge(self._max_message_bytes, len(data))
        try:
            message = deserialize(data)
        except DecodeError:
            raise MalformedRequest from None
        call.saw(message, len(data))
        turns = len(message.requests) if isinstance(message, pb.BatchRewriteRequest) else 1
        self._access.charge(caller, min(turns, self._max_turns))
        return message


def _status_of(error: Exception, call: Call) -> grpc.Status:
    status = to_status(error)
    call.facts.code = code_pb2.Code.Name(status.code)
    return rpc_status.to_status(status)
