"""Gives an exported model signatures for sources of one length each, so that TF Serving batches them apart.

TF Serving has one queue for each set of input and output tensors, and fails a batch whose sources differ in length.
``serving_default_48`` runs the very graph of ``serving_default``; one of its outputs passes through a node of its own,
which is enough for a queue of its own. Nothing is traced anew.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Any output would do; this one every signature of ours has.
_OUTPUT = "fingerprint"


def length_signature(signature: str, length: int) -> str:
    """What the signature for sources of this length is called."""
    return f"{signature}_{length}"


def add_length_signatures(saved_model: Path, signatures: Iterable[str], lengths: Iterable[int]) -> None:
    """Rewrites ``saved_model.pb`` in place. Raises ValueError if it has no such signature."""
    from tensorflow.core.protobuf import saved_model_pb2

    path = saved_model / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (graph,) = proto.meta_graphs
    for signature in signatures:
        if signature not in graph.signature_def:
            raise ValueError(f"{path}: expected a signature {signature!r}, found {sorted(graph.signature_def)}")
        for length in lengths:
            _add(graph, signature, length_signature(signature, length))
    path.write_bytes(proto.SerializeToString())


def _add(graph: Any, signature: str, name: str) -> None:
    """``graph`` is a MetaGraphDef."""
    from tensorflow.core.framework import attr_value_pb2

    graph.signature_def[name].CopyFrom(graph.signature_def[signature])
    output = graph.signature_def[name].outputs[_OUTPUT]
    node = graph.graph_def.node.add(name=f"{name}_{_OUTPUT}", op="Identity", input=[output.name])
    node.attr["T"].CopyFrom(attr_value_pb2.AttrValue(type=output.dtype))
    output.name = f"{node.name}:0"
