"""The four calls: convert, call, convert. The exceptions they raise become statuses in ``interceptors``."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import grpc

from rewriter import __version__
from serving.answer import Answer
from serving.call import stage
from serving.config import ServerSettings
from serving.conversion import to_conversation, to_model_message, to_response
from serving.errors import to_status
from serving.pb import rewriter_pb2 as pb
from serving.pb.rewriter_pb2_grpc import RewriterServiceServicer
from serving.resilience.limits import patient
from serving.rewriting import Rewriting
from serving.streams import map_as_completed
from serving.validation import check_batch, check_request

_TEXT_LOG = logging.getLogger("serving.text")


class RewriterServicer(RewriterServiceServicer):
    def __init__(self, rewriting: Rewriting, settings: ServerSettings) -> None:
        self._rewriting = rewriting
        self._settings = settings

    async def Rewrite(self, request: pb.RewriteRequest, context: grpc.aio.ServicerContext) -> pb.RewriteResponse:
        return await self._rewrite(request, context.time_remaining())

    async def BatchRewrite(
        self, request: pb.BatchRewriteRequest, context: grpc.aio.ServicerContext
    ) -> pb.BatchRewriteResponse:
        check_batch(request, self._settings)
        tasks = []
        async with asyncio.TaskGroup() as group:
            for item in request.requests:
                tasks.append(group.create_task(self._result(item, context)))
                # Others are heard in between: making the arrays of a whole batch takes long.
                await asyncio.sleep(0)
        return pb.BatchRewriteResponse(
            results=[
                pb.BatchRewriteResult(error=result)
                if isinstance(result, pb.RewriteError)
                else pb.BatchRewriteResult(response=result)
                for result in (task.result() for task in tasks)
            ]
        )

    async def StreamRewrite(
        self, request_iterator: AsyncIterator[pb.StreamRewriteRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamRewriteResponse]:
        async def answer(item: pb.StreamRewriteRequest) -> pb.StreamRewriteResponse:
            result = await self._result(item.request, context)
            if isinstance(result, pb.RewriteError):
                return pb.StreamRewriteResponse(request_id=result.request_id, error=result)
            return pb.StreamRewriteResponse(request_id=result.request_id, response=result)

        async for response in map_as_completed(answer, request_iterator, self._settings.max_stream_requests):
            yield response

    async def GetModelInfo(
        self, request: pb.GetModelInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetModelInfoResponse:
        features, settings = self._rewriting.features.config, self._settings
        return pb.GetModelInfoResponse(
            model=to_model_message(self._rewriting.model),
            max_source_tokens=features.max_source_tokens,
            max_utterance_tokens=features.max_utterance_tokens,
            max_history_turns_read=features.max_history_turns,
            max_history_turns=settings.max_history_turns,
            max_turn_characters=settings.max_turn_characters,
            max_utterance_characters=settings.max_utterance_characters,
            max_alternatives=settings.max_alternatives,
            max_batch_items=settings.max_batch_items,
            max_message_bytes=settings.max_message_bytes,
            max_stream_requests=settings.max_stream_requests,
            max_answer_milliseconds=round(settings.default_deadline_seconds * 1000),
            server_version=__version__,
        )

    async def _rewrite(self, request: pb.RewriteRequest, time_left_seconds: float | None) -> pb.RewriteResponse:
        check_request(request, self._settings)
        wants_error = request.failure_mode == pb.FAILURE_MODE_ERROR
        rewrite = self._rewriting.rewrite if wants_error else self._rewriting.rewrite_or_pass_through
        with stage("turn"):
            answer = await rewrite(
                to_conversation(request),
                max_alternatives=request.max_alternatives,
                time_left_seconds=time_left_seconds,
            )
        if self._settings.log_text:
            _log_text(request, answer)
        return to_response(answer, request.request_id)

    async def _result(
        self, request: pb.RewriteRequest, context: grpc.aio.ServicerContext
    ) -> pb.RewriteResponse | pb.RewriteError:
        """One item of many: what a single Rewrite would have failed with becomes a value."""
        try:
            with patient():
                return await self._rewrite(request, context.time_remaining())
        except Exception as error:
            status = to_status(error)
            return pb.RewriteError(code=status.code, message=status.message, request_id=request.request_id)


def _log_text(request: pb.RewriteRequest, answer: Answer) -> None:
    line = {
        "request_id": request.request_id,
        "history": list(request.history),
        "utterance": request.utterance,
        "text": answer.text,
        "outcome": answer.outcome.name,
    }
    _TEXT_LOG.info(json.dumps(line, ensure_ascii=False))
