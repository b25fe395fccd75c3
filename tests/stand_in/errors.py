"""A status as TensorFlow has it. gRPC uses the same numbers."""

import grpc

# TF Serving cuts messages off here (grpc_status_util.cc).
_MESSAGE_LIMIT = 1024
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class StatusError(Exception):
    """What a call fails with."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        cut = message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + "...TRUNCATED"
        super().__init__(cut)
        self.code = code
        self.message = cut


def invalid_argument(message: str) -> StatusError:
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> StatusError:
    return StatusError(grpc.StatusCode.FAILED_PRECONDITION, message)


def not_found(message: str) -> StatusError:
    return StatusError(grpc.StatusCode.NOT_FOUND, message)


def unavailable(message: str) -> StatusError:
    return StatusError(grpc.StatusCode.UNAVAILABLE, message)


def resource_exhausted(message: str) -> StatusError:
    return StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def by_number(code: int, message: str) -> StatusError:
    return StatusError(_CODES[code], message)
