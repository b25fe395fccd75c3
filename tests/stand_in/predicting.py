"""A PredictRequest for a servable: what is checked, in which order (predict_util.cc), and how outputs are written."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from .batching import BatchingParameters, BatchQueue
from .errors import failed_precondition, invalid_argument
from .servable import Servable

_DEFAULT_SIGNATURE = "serving_default"
# Values are written to the field of their type, not as tensor_content.
_FIELDS = {
    np.dtype(np.float32): "float_val",
    np.dtype(np.int32): "int_val",
    np.dtype(np.int64): "int64_val",
    np.dtype(np.bool_): "bool_val",
}


class Predictor:
    """Runs requests, in batches if there are parameters for them."""

    def __init__(self, parameters: BatchingParameters | None) -> None:
        self._parameters = parameters
        self._queues: dict[tuple[Servable, frozenset[str], frozenset[str]], BatchQueue] = {}
        self._lock = threading.Lock()

    def predict(self, version: int, servable: Servable, request: Any, timeout_seconds: float | None) -> PredictResponse:
        """Raises StatusError."""
        name = request.model_spec.signature_name or _DEFAULT_SIGNATURE
        if name not in servable.signatures:
            raise failed_precondition(f'Serving signature key "{name}" not found.')
        signature = servable.signatures[name]
        inputs = _inputs(signature, request)
        aliases = _outputs(signature, request)
        tensors = [signature.outputs[alias].name for alias in aliases]
        found = self._run(servable, signature, inputs, tensors, timeout_seconds)
        response = PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version
        response.model_spec.signature_name = name
        for alias, array in zip(aliases, found, strict=True):
            response.outputs[alias].CopyFrom(to_message(array))
        return response

    def _run(
        self,
        servable: Servable,
        signature: Any,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str],
        timeout_seconds: float | None,
    ) -> list[np.ndarray]:
        declared = {info.name for info in signature.outputs.values()}
        if self._parameters is None or set(outputs) != declared:
            # A request for some of the outputs belongs to no queue: it is run by itself.
            return servable.run(inputs, outputs, timeout_seconds)
        key = (servable, frozenset(inputs), frozenset(outputs))
        with self._lock:
            if key not in self._queues:
                self._queues[key] = BatchQueue(servable.run, sorted(outputs), self._parameters)
        found = dict(zip(sorted(outputs), self._queues[key].submit(inputs, timeout_seconds), strict=True))
        return [found[name] for name in outputs]


def to_message(array: np.ndarray) -> Any:
    """As Tensor::AsProtoField writes it; raises KeyError for a dtype that no signature of ours has."""
    message = TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    message.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    getattr(message, _FIELDS[array.dtype]).extend(array.reshape(-1).tolist())
    return message


def _inputs(signature: Any, request: Any) -> dict[str, np.ndarray]:
    sent, known = set(request.inputs), set(signature.inputs)
    if len(sent) != len(known):
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(known)} "
            f"len({_listed(sent)}) != len({_listed(known)}). "
            f"Sent extra: {_listed(sent - known)}. Missing but required: {_listed(known - sent)}."
        )
    for alias in sorted(sent - known):
        raise invalid_argument(
            f"input tensor alias not found in signature: {alias}. Inputs expected to be in the set {_listed(known)}."
        )
    arrays = {}
    for alias in sorted(sent):
        try:
            arrays[signature.inputs[alias].name] = tf.make_ndarray(request.inputs[alias])
        except (ValueError, TypeError):
            raise invalid_argument(f"tensor parsing error: {alias}") from None
    return arrays


def _outputs(signature: Any, request: Any) -> list[str]:
    for alias in request.output_filter:
        if alias not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {alias} "
                f"Outputs expected to be in the set {_listed(signature.outputs)}."
            )
    if len(set(request.output_filter)) != len(request.output_filter):
        raise invalid_argument("duplicate output tensor alias")
    return list(request.output_filter) or sorted(signature.outputs)


def _listed(names: Any) -> str:
    return "{" + ",".join(sorted(names)) + "}"
