"""Exceptions to statuses, in a table written by hand. Anything that is not in it is INTERNAL and says nothing."""

import logging
import traceback

from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from serving.answer import PassthroughReason
from serving.rewriting import CannotRewrite
from serving.validation import InvalidRequest, Violation

ERROR_DOMAIN = "rewriter.v1"

CODES: dict[PassthroughReason, int] = {
    PassthroughReason.MODEL_UNAVAILABLE: code_pb2.UNAVAILABLE,
    PassthroughReason.DEADLINE: code_pb2.DEADLINE_EXCEEDED,
    PassthroughReason.OVERLOADED: code_pb2.RESOURCE_EXHAUSTED,
    PassthroughReason.BROKEN_ANSWER: code_pb2.INTERNAL,
    PassthroughReason.UNFINISHED: code_pb2.INTERNAL,
    PassthroughReason.UTTERANCE_TOO_LONG: code_pb2.INVALID_ARGUMENT,
}

_RETRY_DELAY_MILLISECONDS: dict[PassthroughReason, int] = {
    PassthroughReason.MODEL_UNAVAILABLE: 1000,
    PassthroughReason.OVERLOADED: 100,
}

_LOGGER = logging.getLogger(__name__)


class MalformedRequest(ValueError):
    """The bytes on the wire are not a message of the contract, or hold text that is not UTF-8."""


def to_status(error: Exception) -> status_pb2.Status:
    """Returns what the caller may know of the error; logs where it came from if nobody expected it."""
    match error:
        case InvalidRequest():
            return _status(code_pb2.INVALID_ARGUMENT, str(error), _bad_request(*error.violations))
        case MalformedRequest():
            return _status(code_pb2.INVALID_ARGUMENT, "expected a valid message with text in UTF-8, found other bytes")
        case CannotRewrite(reason=PassthroughReason.UTTERANCE_TOO_LONG):
            details = (_bad_request(Violation("utterance", str(error))), _info(error.reason))
            return _status(CODES[error.reason], f"utterance: {error}", *details)
        case CannotRewrite():
            return _status(CODES[error.reason], str(error), _info(error.reason), *_retry(error.reason))
        case _:
            # Stack without values: messages of foreign exceptions may quote the conversation.
            stack = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
            _LOGGER.error("unexpected %s\n%s", type(error).__name__, stack)
            return _status(code_pb2.INTERNAL, "internal error")


def _status(code: int, message: str, *details: Message) -> status_pb2.Status:
    status = status_pb2.Status(code=code, message=message)
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _bad_request(*violations: Violation) -> Message:
    return error_details_pb2.BadRequest(
        field_violations=[
            error_details_pb2.BadRequest.FieldViolation(field=violation.field, description=violation.description)
            for violation in violations
        ]
    )


def _info(reason: PassthroughReason) -> Message:
    return error_details_pb2.ErrorInfo(reason=reason.name, domain=ERROR_DOMAIN)


def _retry(reason: PassthroughReason) -> list[Message]:
    if reason not in _RETRY_DELAY_MILLISECONDS:
        return []
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromMilliseconds(_RETRY_DELAY_MILLISECONDS[reason])
    return [info]
