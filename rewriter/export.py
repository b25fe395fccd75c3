"""Writes a TF Serving version directory and does not say done before a fresh process has reproduced the model.

DIR/<version>/saved_model.pb, variables/             signatures ``serving_default`` (greedy) and ``beam``, and both
                                                     again for each length bucket (``length_signatures``)
DIR/<version>/assets.extra/tf_serving_warmup_requests
DIR/<version>/assets.extra/rewriter/                 model.json, features.json, words.txt, characters.txt
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from rewriter.artefact import load_features, load_model, preprocessing_fingerprint
from rewriter.conversation import Conversation
from rewriter.features import ARRAY_NAMES, Features, collate
from rewriter.inference import rewrite_greedily, rewrite_with_beams
from rewriter.length_signatures import add_length_signatures, length_signature
from rewriter.model import RewriterModel
from rewriter.samples import conversations

GREEDY, BEAM = "serving_default", "beam"
BEAM_SIZE = 4
# What the front pads to and TF Serving batches to; a warm-up request for each pair.
LENGTH_BUCKETS = (48, 80, 144, 272)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
# Float32 sums in another order; a wrong weight or graph is off by orders of magnitude more.
_TOLERANCE = 1e-3


def export(directory: Path, output: Path, version: int | None = None, name: str = "rewriter") -> Path:
    """Exports the model folder ``directory`` as ``output``/<version> (by default the next free number).

    Raises ValueError if the version exists, RuntimeError if the exported model is not the live one. The version
    appears by one rename: a server that watches ``output`` never sees half of it.
    """
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(f"expected KERAS_BACKEND=tensorflow for export, found {keras.backend.backend()}")
    version = _next_version(output) if version is None else version
    target = output / str(version)
    if target.exists():
        raise ValueError(f"expected a free version, found {target}")
    model = load_model(directory)
    features_config, vocabulary = load_features(directory)
    features = Features(features_config, vocabulary)
    fingerprint = preprocessing_fingerprint(features_config, vocabulary)
    partial = output / f"partial-{version}"
    shutil.rmtree(partial, ignore_errors=True)
    _write_saved_model(model, partial, fingerprint, features_config.characters_per_token)
    assets = partial / "assets.extra" / "rewriter"
    assets.mkdir(parents=True)
    features_config.save(assets / "features.json")
    vocabulary.save(assets)
    manifest = {
        "name": name,
        "version": str(version),
        "fingerprint": str(fingerprint),
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "max_utterance_tokens": features_config.max_utterance_tokens,
        "length_buckets": LENGTH_BUCKETS,
        "batch_sizes": BATCH_SIZES,
    }
    (assets / "model.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    _write_warmup(partial / "assets.extra" / "tf_serving_warmup_requests", features, name)
    check(partial, model, features)
    partial.rename(target)
    return target


def check(saved_model: Path, model: RewriterModel, features: Features) -> None:
    """Raises RuntimeError unless the SavedModel, reloaded in a fresh process, answers as the live model does.

    It is asked at two batch sizes and lengths, neither of them a bucket's.
    """
    _refuse_xla(saved_model)
    samples = [c for c in conversations() if c.history]
    for chosen, length in ((samples[:3], 61), (samples, 97)):
        sources = collate([features.encode(conversation) for conversation in chosen], length)
        reloaded = run_in_fresh_process(saved_model, sources)
        _compare(rewrite_greedily(model, sources), reloaded[GREEDY])
        _compare(rewrite_with_beams(model, sources, BEAM_SIZE), reloaded[BEAM])


def run_in_fresh_process(saved_model: Path, sources: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Runs both signatures where nothing but TensorFlow has been imported; returns the outputs by signature."""
    with tempfile.TemporaryDirectory() as directory:
        inputs, outputs = Path(directory) / "inputs.npz", Path(directory) / "outputs.npz"
        np.savez(inputs, allow_pickle=False, **sources)
        command = [sys.executable, "-m", "rewriter.reload", str(saved_model), str(inputs), str(outputs)]
        finished = subprocess.run(command, capture_output=True, text=True)
        if finished.returncode:
            raise RuntimeError(f"the exported model does not run: {finished.stderr[-2000:]}")
        with np.load(outputs) as stored:
            found: dict[str, dict[str, np.ndarray]] = {GREEDY: {}, BEAM: {}}
            for key in stored.files:
                signature, output = key.split("/")
                found[signature][output] = stored[key]
            return found


def _write_saved_model(model: RewriterModel, path: Path, fingerprint: int, characters_per_token: int) -> None:
    specs = {
        name: tf.TensorSpec(
            (None, None, characters_per_token) if name == "character_ids" else (None, None), tf.int32, name
        )
        for name in ARRAY_NAMES
    }

    def endpoint(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def run(source: dict[str, Any]) -> dict[str, Any]:
            rows = ops.shape(source["word_ids"])[0]
            return {**function(model, source), "fingerprint": tf.fill([rows], tf.constant(fingerprint, tf.int64))}

        return run

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(GREEDY, endpoint(rewrite_greedily), input_signature=[specs])
    archive.add_endpoint(
        BEAM, endpoint(lambda m, source: rewrite_with_beams(m, source, BEAM_SIZE)), input_signature=[specs]
    )
    archive.write_out(str(path), verbose=False)
    add_length_signatures(path, (GREEDY, BEAM), LENGTH_BUCKETS)


def _write_warmup(path: Path, features: Features, name: str) -> None:
    """Recorded requests that TF Serving replays before it serves.

    Greedy for each length bucket and batch size; by beam search, which few ask for, one turn of each length; by each
    signature of a length, one turn.
    """
    from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

    source = features.encode(Conversation(("成都今天热不热", "有点热"), "后天呢"))
    shapes = [(GREEDY, batch_size, length) for length in LENGTH_BUCKETS for batch_size in BATCH_SIZES]
    shapes += [(BEAM, 1, length) for length in LENGTH_BUCKETS]
    # The graph is the same, but TensorFlow prepares it anew for each set of outputs.
    shapes += [(length_signature(s, length), 1, length) for s in (GREEDY, BEAM) for length in LENGTH_BUCKETS]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, batch_size, length in shapes:
            request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name=name, signature_name=signature))
            for key, array in collate([source] * batch_size, length).items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(array))
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())


def _refuse_xla(saved_model: Path) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString((saved_model / "saved_model.pb").read_bytes())
    for graph in proto.meta_graphs:
        functions = graph.graph_def.library.function
        nodes = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
        names = [node.op for node in nodes if node.op.startswith("Xla")]
        names += [item.signature.name for item in functions if item.attr["_XlaMustCompile"].b]
        names += [node.name for node in nodes if node.attr["_XlaMustCompile"].b]
        if names:
            raise RuntimeError(f"expected no XLA in the graph, found {names[0]}")


def _compare(live: dict[str, Any], reloaded: dict[str, np.ndarray]) -> None:
    for name, tensor in live.items():
        expected, found = ops.convert_to_numpy(tensor), reloaded[name]
        same_shape = expected.shape == found.shape
        if not same_shape or not np.allclose(expected, found, atol=_TOLERANCE, rtol=_TOLERANCE):
            raise RuntimeError(f"expected {name} of the exported model to be the live model's, found another")


def _next_version(output: Path) -> int:
    versions: Sequence[int] = [int(path.name) for path in output.glob("*") if path.name.isdecimal()]
    return max(versions, default=0) + 1
