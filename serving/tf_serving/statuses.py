"""What TF Serving's errors mean to us, in a table written by hand.

Its messages are matched and never repeated: an operation that fails may quote the values it was fed.
"""

import grpc

from serving.backend import (
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    BackendUnreachable,
    BrokenAnswer,
)

_Code = grpc.StatusCode


class VersionGone(BackendUnavailable):
    """The version or label that was asked for is not served, or no longer."""


# The first that fits: status, words in the message, what it is to us, what we say.
_TABLE: tuple[tuple[grpc.StatusCode, str, type[BackendError], str], ...] = (
    (_Code.NOT_FOUND, "", VersionGone, "TF Serving does not serve the version that was asked for"),
    (
        _Code.INVALID_ARGUMENT,
        "Unrecognized servable version label",
        VersionGone,
        "TF Serving does not know the version label",
    ),
    (_Code.UNAVAILABLE, "batch scheduling queue", BackendOverloaded, "TF Serving's batch queue is full"),
    (
        _Code.RESOURCE_EXHAUSTED,
        "while waiting in batching queue",
        BackendOverloaded,
        "the turn waited too long in TF Serving's batch queue",
    ),
    (_Code.RESOURCE_EXHAUSTED, "larger than max", BrokenAnswer, "expected a smaller answer (max_message_bytes)"),
    (
        _Code.FAILED_PRECONDITION,
        "padding is turned off",
        BackendUnavailable,
        "expected TF Serving to batch sources of one length, found several in one batch: serve without "
        "--enable_batching, or a model with signatures per length",
    ),
    (_Code.DEADLINE_EXCEEDED, "", BackendTimeout, "TF Serving did not answer in time"),
    (_Code.UNAVAILABLE, "", BackendUnreachable, "TF Serving cannot be reached"),
    (_Code.CANCELLED, "", BackendUnavailable, "TF Serving ended the call"),
    (_Code.RESOURCE_EXHAUSTED, "", BackendOverloaded, "TF Serving is out of resources"),
)


def to_backend_error(error: grpc.aio.AioRpcError) -> BackendError:
    """Returns an error that holds nothing of the request."""
    code, message = error.code(), error.details() or ""
    for table_code, words, kind, said in _TABLE:
        if code is table_code and words in message:
            return kind(said)
    return BackendUnavailable(f"TF Serving refused the call: {code.name}")
