"""The caller's side: ``Rewriter`` for ordinary code, ``AsyncRewriter`` for asyncio. Needs gRPC and nothing heavy.

    with Rewriter("localhost:8600") as rewriter:
        answer = rewriter.rewrite(["百年孤独你看过吗"], "它的作者是谁")
        print(answer.text)

Errors are grpc.RpcError, as with any gRPC client; ``rewrite_or_original`` has none. Trouble inside the server is no
error unless ``failure_as_error`` asks for it: the answer then is the original turn, with the reason. One client serves
many threads (or tasks) over one connection; make it once.

Batches and streams are of ``Conversation(history, utterance)``, with a ``conversation_id`` for what it does in
``rewrite``.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rewriter.conversation import Conversation
from serving.answer import Answer, Model
from serving.channel import CHANNEL_OPTIONS
from serving.conversion import to_answer, to_model, to_request
from serving.credentials import call_metadata
from serving.pb import rewriter_pb2 as pb
from serving.pb.rewriter_pb2_grpc import RewriterServiceStub

DEFAULT_TIMEOUT_SECONDS = 1.0
_HEALTH_REQUEST = health_pb2.HealthCheckRequest(service="rewriter.v1.RewriterService")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """Why one conversation of a batch or stream has no answer: what ``rewrite`` would have raised."""

    code: grpc.StatusCode
    message: str


class Rewriter:
    """A connection to the server at ``target`` ("host:port", or any gRPC name). Close it, or use ``with``.

    ``credentials`` make it TLS (``serving.credentials.channel_credentials``); a ``token`` says who calls, in the clear
    without them.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._metadata = call_metadata(token)
        self._channel = (
            grpc.secure_channel(target, credentials, CHANNEL_OPTIONS)
            if credentials
            else grpc.insecure_channel(target, CHANNEL_OPTIONS)
        )
        self._stub = RewriterServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def rewrite(
        self,
        history: Sequence[str],
        utterance: str,
        *,
        max_alternatives: int = 0,
        failure_as_error: bool = False,
        timeout_seconds: float | None = None,
        request_id: str = "",
        conversation_id: str = "",
    ) -> Answer:
        """Rewrites the utterance that follows the history (oldest turn first). Raises grpc.RpcError.

        ``conversation_id``, any name, keeps all turns of a conversation on one version while a new one is tried out.
        """
        request = to_request(
            Conversation(tuple(history), utterance, conversation_id),
            max_alternatives=max_alternatives,
            failure_as_error=failure_as_error,
            request_id=request_id,
        )
        return to_answer(
            self._stub.Rewrite(
                request, timeout=_or_usual(timeout_seconds, self._timeout_seconds), metadata=self._metadata
            )
        )

    def rewrite_or_original(self, history: Sequence[str], utterance: str, *, conversation_id: str = "") -> str:
        """The turn to use from here on. Never raises: without an answer in time, it is the utterance."""
        try:
            return self.rewrite(history, utterance, conversation_id=conversation_id).text
        except _NO_ANSWER as error:
            _log_no_answer(error)
            return utterance

    def rewrite_batch(
        self, conversations: Iterable[Conversation], *, timeout_seconds: float | None = None
    ) -> list[Answer | Failure]:
        """One call, one result per conversation, in their order. Raises grpc.RpcError if the call fails as a whole."""
        request = pb.BatchRewriteRequest(requests=map(to_request, conversations))
        response = self._stub.BatchRewrite(
            request, timeout=_or_usual(timeout_seconds, self._timeout_seconds), metadata=self._metadata
        )
        return list(map(_to_result, response.results))

    def rewrite_stream(
        self, conversations: Iterable[Conversation], *, timeout_seconds: float | None = None
    ) -> Generator[tuple[int, Answer | Failure], None, None]:
        """Yields (index of the conversation, result) as results come, in any order; for any number of conversations.

        Conversations are taken only as fast as the server works. ``timeout_seconds`` is for the whole stream; none by
        default. Raises grpc.RpcError; what ``conversations`` raise, it raises after the results of those before.
        """
        trouble: list[Exception] = []

        def requests() -> Iterator[pb.StreamRewriteRequest]:
            # gRPC would keep to itself what these raise.
            try:
                for index, conversation in enumerate(conversations):
                    yield _to_numbered(index, conversation)
            except Exception as error:
                trouble.append(error)

        call = self._stub.StreamRewrite(requests(), timeout=timeout_seconds, metadata=self._metadata)
        try:
            for response in call:
                yield int(response.request_id), _to_result(response)
        finally:
            call.cancel()
        if trouble:
            raise trouble[0]

    def model_info(self) -> Model:
        """Which model answers. Raises grpc.RpcError."""
        response = self._stub.GetModelInfo(
            pb.GetModelInfoRequest(), timeout=self._timeout_seconds, metadata=self._metadata
        )
        return to_model(response.model)

    def wait_until_healthy(self, timeout_seconds: float = 60.0) -> None:
        """Returns once the server answers with a warm model; raises TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            watch = self._health.Watch(_HEALTH_REQUEST, timeout=left, wait_for_ready=True)
            try:
                if any(update.status == health_pb2.HealthCheckResponse.SERVING for update in watch):
                    return
            except grpc.RpcError as error:
                _raise_unless_temporary(error)
            finally:
                watch.cancel()
        raise TimeoutError(_not_healthy(timeout_seconds))

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncRewriter:
    """The same for asyncio. Make it inside a running event loop; ``close`` it there, or use ``async with``."""

    def __init__(
        self,
        target: str,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._metadata = call_metadata(token)
        self._channel = (
            grpc.aio.secure_channel(target, credentials, CHANNEL_OPTIONS)
            if credentials
            else grpc.aio.insecure_channel(target, CHANNEL_OPTIONS)
        )
        self._stub = RewriterServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def rewrite(
        self,
        history: Sequence[str],
        utterance: str,
        *,
        max_alternatives: int = 0,
        failure_as_error: bool = False,
        timeout_seconds: float | None = None,
        request_id: str = "",
        conversation_id: str = "",
    ) -> Answer:
        """See Rewriter.rewrite."""
        request = to_request(
            Conversation(tuple(history), utterance, conversation_id),
            max_alternatives=max_alternatives,
            failure_as_error=failure_as_error,
            request_id=request_id,
        )
        return to_answer(
            await self._stub.Rewrite(
                request, timeout=_or_usual(timeout_seconds, self._timeout_seconds), metadata=self._metadata
            )
        )

    async def rewrite_or_original(self, history: Sequence[str], utterance: str, *, conversation_id: str = "") -> str:
        """See Rewriter.rewrite_or_original."""
        try:
            return (await self.rewrite(history, utterance, conversation_id=conversation_id)).text
        except asyncio.CancelledError as error:
            # Of the call, whose channel was closed; of our task, it is the caller's wish.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            _log_no_answer(error)
            return utterance
        except _NO_ANSWER as error:
            _log_no_answer(error)
            return utterance

    async def rewrite_batch(
        self, conversations: Iterable[Conversation], *, timeout_seconds: float | None = None
    ) -> list[Answer | Failure]:
        """See Rewriter.rewrite_batch."""
        request = pb.BatchRewriteRequest(requests=map(to_request, conversations))
        response = await self._stub.BatchRewrite(
            request, timeout=_or_usual(timeout_seconds, self._timeout_seconds), metadata=self._metadata
        )
        return list(map(_to_result, response.results))

    async def rewrite_stream(
        self, conversations: AsyncIterable[Conversation], *, timeout_seconds: float | None = None
    ) -> AsyncGenerator[tuple[int, Answer | Failure], None]:
        """See Rewriter.rewrite_stream."""
        trouble: list[Exception] = []

        async def requests() -> AsyncIterator[pb.StreamRewriteRequest]:
            index = 0
            try:
                async for conversation in conversations:
                    yield _to_numbered(index, conversation)
                    index += 1
            except Exception as error:
                trouble.append(error)

        call = self._stub.StreamRewrite(requests(), timeout=timeout_seconds, metadata=self._metadata)
        try:
            async for response in call:
                yield int(response.request_id), _to_result(response)
        finally:
            call.cancel()
        if trouble:
            raise trouble[0]

    async def model_info(self) -> Model:
        """See Rewriter.model_info."""
        response = await self._stub.GetModelInfo(
            pb.GetModelInfoRequest(), timeout=self._timeout_seconds, metadata=self._metadata
        )
        return to_model(response.model)

    async def wait_until_healthy(self, timeout_seconds: float = 60.0) -> None:
        """See Rewriter.wait_until_healthy."""
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            watch = self._health.Watch(_HEALTH_REQUEST, timeout=left, wait_for_ready=True)
            try:
                async for update in watch:
                    if update.status == health_pb2.HealthCheckResponse.SERVING:
                        return
            except grpc.RpcError as error:
                _raise_unless_temporary(error)
            finally:
                watch.cancel()
        raise TimeoutError(_not_healthy(timeout_seconds))

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _or_usual(timeout_seconds: float | None, usual: float) -> float:
    """None asks for the usual time, 0 for none at all."""
    return usual if timeout_seconds is None else timeout_seconds


# ValueError: text that UTF-8 cannot spell, a closed channel, an answer of a server much newer than this client.
# BaseError: a closed channel of asyncio.
_NO_ANSWER = (grpc.RpcError, grpc.aio.BaseError, ValueError, LookupError)


def _log_no_answer(error: BaseException) -> None:
    reason = error.code().name if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else type(error).__name__
    _LOGGER.warning("no rewrite, going on with the original turn: %s", reason)


def _to_numbered(index: int, conversation: Conversation) -> pb.StreamRewriteRequest:
    return pb.StreamRewriteRequest(request=to_request(conversation, request_id=str(index)))


def _to_result(message: pb.BatchRewriteResult | pb.StreamRewriteResponse) -> Answer | Failure:
    if message.WhichOneof("result") == "error":
        return Failure(_STATUS_CODES[message.error.code], message.error.message)
    return to_answer(message.response)


_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _raise_unless_temporary(error: grpc.RpcError) -> None:
    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        raise error


def _not_healthy(timeout_seconds: float) -> str:
    return f"expected a healthy server within {timeout_seconds} seconds, found none"
