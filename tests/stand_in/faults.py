"""What can be made to go wrong with the next requests."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from .errors import StatusError, unavailable

FULL_QUEUE = "The batch scheduling queue to which this task was submitted is full; currently 10 batches enqueued"


@dataclass
class Fault:
    """``count`` requests suffer from it; -1: all, until it is cleared."""

    kind: str
    count: int = -1
    seconds: float = 0.0


class Faults:
    """At most one at a time. ``before`` a request, ``after`` it was answered."""

    def __init__(self) -> None:
        self._fault: Fault | None = None
        self._changed = threading.Condition()
        self.stalled = 0  # requests that stall now

    def order(self, fault: Fault) -> None:
        """Raises ValueError for a kind that there is none of."""
        known = {"stall", "slow", *_ERRORS, *_SPOIL}
        if fault.kind not in known:
            raise ValueError(f"expected a fault of {sorted(known)}, found {fault.kind!r}")
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._fault = None
            self._changed.notify_all()

    def before(self, context: grpc.ServicerContext, request: Any) -> Fault | None:
        """Returns the fault that the answer is to suffer from; raises StatusError for those that leave none."""
        with self._changed:
            fault = self._fault
            if fault is None or fault.count == 0:
                return None
            fault.count -= fault.count > 0
            if fault.kind == "stall":
                # Until it is cleared, or nobody waits any more.
                self.stalled += 1
                while self._fault is fault and context.is_active():
                    self._changed.wait(0.05)
                self.stalled -= 1
            elif fault.kind == "slow":
                self._changed.wait_for(lambda: self._fault is not fault, fault.seconds)
        if fault.kind in _ERRORS:
            raise _ERRORS[fault.kind](request)
        return fault

    def after(self, fault: Fault | None, response: Any) -> Any:
        """Returns what is sent: a PredictResponse, or bytes."""
        return _SPOIL[fault.kind](response) if fault is not None and fault.kind in _SPOIL else response


def _quoting(request: Any) -> StatusError:
    """As some operations do: with the values that they were fed."""
    fed = request.inputs["word_ids"].tensor_content.hex()
    return StatusError(grpc.StatusCode.INTERNAL, f"indices[0,0] = {fed} is not in [0, 100)")


_ERRORS: dict[str, Callable[[Any], StatusError]] = {
    "unavailable": lambda request: unavailable("stand-in: out of order"),
    "queue_full": lambda request: unavailable(FULL_QUEUE),
    "quoting_error": _quoting,
}


def _wrong_shape(response: Any) -> Any:
    shape = response.outputs["log_prob"].tensor_shape
    shape.dim.add(size=1)
    return response


def _nan(response: Any) -> Any:
    values = response.outputs["log_prob"].float_val
    values[:] = [float("nan")] * len(values)
    return response


def _wrong_fingerprint(response: Any) -> Any:
    values = response.outputs["fingerprint"].int64_val
    values[:] = [value - 1 for value in values]
    return response


def _wrong_version(response: Any) -> Any:
    response.model_spec.version.value += 1000
    return response


def _missing_output(response: Any) -> Any:
    del response.outputs["positions"]
    return response


_SPOIL: dict[str, Callable[[Any], Any]] = {
    "wrong_shape": _wrong_shape,
    "nan": _nan,
    "wrong_fingerprint": _wrong_fingerprint,
    "wrong_version": _wrong_version,
    "missing_output": _missing_output,
    "garbage": lambda response: b"\xff\xff\xff\xff not a message",
}
