"""Whether a served version has the signatures that we ask."""

from collections.abc import Iterable, Mapping

from rewriter.features import ARRAY_NAMES
from serving.backend import BackendUnavailable
from serving.pb import tf_serving_pb2 as pb
from serving.signatures import OUTPUTS

_OUTPUT_TYPES = {
    "positions": pb.DT_INT32,
    "log_prob": pb.DT_FLOAT,
    "score": pb.DT_FLOAT,
    "finished": pb.DT_BOOL,
    "fingerprint": pb.DT_INT64,
}


class Misfit(BackendUnavailable):
    """The served version is not one that we can ask, however long we wait."""


def check_signatures(
    signatures: Mapping[str, pb.SignatureDef], names: Iterable[tuple[str, str]], characters_per_token: int
) -> None:
    """``names``: pairs of a signature and the name it is served under. Raises Misfit naming both sides."""
    for signature, name in names:
        if name not in signatures:
            ours = sorted(each for each in signatures if not each.startswith("__"))
            raise Misfit(f"expected a signature {name!r}, found {ours}")
        _check_inputs(name, signatures[name].inputs, characters_per_token)
        _check_outputs(name, signatures[name].outputs, OUTPUTS[signature])


def _check_inputs(name: str, inputs: Mapping[str, pb.TensorInfo], characters_per_token: int) -> None:
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(ARRAY_NAMES, (-1, -1))
    shapes |= {"character_ids": (-1, -1, characters_per_token)}
    expected = {array: _described(pb.DT_INT32, shape) for array, shape in shapes.items()}
    found = {array: _described(info.dtype, _shape(info)) for array, info in inputs.items()}
    # A model may also read any number of characters.
    any_number = expected | {"character_ids": _described(pb.DT_INT32, (-1, -1, -1))}
    if found not in (expected, any_number):
        raise Misfit(f"expected {name!r} to read {_listed(expected)}, found {_listed(found)}")


def _check_outputs(name: str, outputs: Mapping[str, pb.TensorInfo], needed: Iterable[str]) -> None:
    expected = {output: _type_name(_OUTPUT_TYPES[output]) for output in needed}
    found = {output: _type_name(info.dtype) for output, info in outputs.items()}
    if not expected.items() <= found.items():
        raise Misfit(f"expected {name!r} to answer {_listed(expected)}, found {_listed(found)}")


def _shape(info: pb.TensorInfo) -> tuple[int, ...]:
    return tuple(dim.size for dim in info.tensor_shape.dim)


def _described(data_type: int, shape: tuple[int, ...]) -> str:
    return f"{_type_name(data_type)} {shape}"


def _type_name(data_type: int) -> str:
    return pb.DataType.Name(data_type) if data_type in pb.DataType.values() else f"data type {data_type}"


def _listed(tensors: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {described}" for name, described in sorted(tensors.items())) or "nothing"
