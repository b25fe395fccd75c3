"""NumPy arrays to TensorFlow's messages and back, without TensorFlow."""

import math
from collections.abc import Mapping

import numpy as np

from serving.backend import BrokenAnswer
from serving.pb import tf_serving_pb2 as pb

_KINDS: dict[pb.DataType, tuple[np.dtype, str]] = {
    pb.DT_FLOAT: (np.dtype(np.float32), "float_val"),
    pb.DT_INT32: (np.dtype(np.int32), "int_val"),
    pb.DT_INT64: (np.dtype(np.int64), "int64_val"),
    pb.DT_BOOL: (np.dtype(np.bool_), "bool_val"),
}
# More than any answer holds: what a garbled shape must not make us allocate.
_MAX_VALUES = 2**24
_DATA_TYPES = {kind: data_type for data_type, (kind, _) in _KINDS.items()}


def to_message(array: np.ndarray) -> pb.TensorProto:
    """Raises KeyError for a dtype that no signature of ours has."""
    return pb.TensorProto(
        dtype=_DATA_TYPES[array.dtype],
        tensor_shape=pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in array.shape]),
        tensor_content=array.tobytes(),
    )


def to_array(message: pb.TensorProto) -> np.ndarray:
    """Raises BrokenAnswer if the values are not as many as the shape says, or of a kind that no signature has."""
    if message.dtype not in _KINDS:
        raise BrokenAnswer(f"expected a tensor of float32, int32, int64 or bool, found the data type {message.dtype}")
    kind, field = _KINDS[message.dtype]
    shape = tuple(dim.size for dim in message.tensor_shape.dim)
    if min(shape, default=0) < 0 or (count := math.prod(shape)) > _MAX_VALUES:
        raise BrokenAnswer(f"expected a shape of at most {_MAX_VALUES} values, found {shape}")
    values = _values(message, kind, field)
    if len(values) > count or (count and not len(values)):
        raise BrokenAnswer(f"expected {count} values for the shape {shape}, found {len(values)}")
    if len(values) < count:
        # Missing values are the last one repeated.
        values = np.concatenate([values, np.repeat(values[-1:], count - len(values))])
    return values.reshape(shape)


def to_arrays(messages: Mapping[str, pb.TensorProto]) -> dict[str, np.ndarray]:
    return {name: to_array(message) for name, message in messages.items()}


def _values(message: pb.TensorProto, kind: np.dtype, field: str) -> np.ndarray:
    if not message.tensor_content:
        return np.array(getattr(message, field), kind)
    if len(message.tensor_content) % kind.itemsize:
        raise BrokenAnswer(f"expected whole values of {kind}, found {len(message.tensor_content)} bytes")
    return np.frombuffer(message.tensor_content, kind)
