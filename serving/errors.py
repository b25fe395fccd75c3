"""Exceptions to statuses, in a table written by hand. Anything that is not in it is INTERNAL and says nothing."""

from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from serving.answer import PassthroughReason
from serving.draining import NoMessage, NoWholeMessage, Stopping
from serving.logs import log_unexpected
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


class MalformedRequest(ValueError):
    """The bytes on the wire are not a message of the contract, or hold text that is not UTF-8."""


class MessageTooLarge(ValueError):
    """The message has more bytes than the server parses."""

    def __init__(self, limit: int, found: int) -> None:
        super().__init__(f"expected a message of at most {limit} bytes, found {found}")


class Unauthenticated(Exception):
    """There is no token with the call, or not one of ours; which of the two, the caller is not told."""


class RateLimited(Exception):
    """The caller has sent more turns than its limit allows."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__()
        self.retry_after_seconds = retry_after_seconds


def to_status(error: Exception) -> status_pb2.Status:
    """Returns what the caller may know of the error; logs where it came from if nobody expected it."""
    match error:
        case InvalidRequest():
            return _status(code_pb2.INVALID_ARGUMENT, str(error), _bad_request(*error.violations))
        case Stopping():
            return _status(code_pb2.UNAVAILABLE, "the server is stopping", _info("STOPPING"), _retry_info(0))
        case NoWholeMessage():
            return _status(code_pb2.RESOURCE_EXHAUSTED, str(error))
        case NoMessage():
            return _status(code_pb2.DEADLINE_EXCEEDED, str(error))
        case MalformedRequest():
            return _status(code_pb2.INVALID_ARGUMENT, "expected a valid message with text in UTF-8, found other bytes")
        case MessageTooLarge():
            return _status(code_pb2.RESOURCE_EXHAUSTED, str(error))
        case Unauthenticated():
            return _status(code_pb2.UNAUTHENTICATED, "expected a valid token")
        case RateLimited():
            details = (_info("RATE_LIMITED"), _retry_info(round(error.retry_after_seconds * 1000)))
            return _status(code_pb2.RESOURCE_EXHAUSTED, "expected fewer turns a second from this caller", *details)
        case CannotRewrite(reason=PassthroughReason.UTTERANCE_TOO_LONG):
            details = (_bad_request(Violation("utterance", str(error))), _info(error.reason.name))
            return _status(CODES[error.reason], f"utterance: {error}", *details)
        case CannotRewrite():
            return _status(CODES[error.reason], str(error), _info(error.reason.name), *_retry(error.reason))
        case _:
            log_unexpected(error)
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


def _info(reason: str) -> Message:
    return error_details_pb2.ErrorInfo(reason=reason, domain=ERROR_DOMAIN)


def _retry(reason: PassthroughReason) -> list[Message]:
    return [_retry_info(_RETRY_DELAY_MILLISECONDS[reason])] if reason in _RETRY_DELAY_MILLISECONDS else []


def _retry_info(milliseconds: int) -> Message:
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromMilliseconds(milliseconds)
    return info
