import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from rewriter import export as exporting
from rewriter.artefact import load_model, preprocessing_fingerprint, save_artefact
from rewriter.config import Calibration
from rewriter.export import BATCH_SIZES, LENGTH_BUCKETS, check, export, run_in_fresh_process
from rewriter.features import ARRAY_NAMES
from rewriter.inference import rewrite_greedily, rewrite_with_beams
from serving.artefact import load_features as load_served_features
from serving.artefact import load_manifest

CALIBRATION = Calibration(slope=0.5, intercept=-0.25, min_confidence=0.125)
# Clients and servers are built on these: a change here is a change of the contract.
SIGNATURES = """\
beam
  in  character_ids int32 (-1, -1, 3)
  in  copy_ids int32 (-1, -1)
  in  turn_ids int32 (-1, -1)
  in  word_ids int32 (-1, -1)
  out fingerprint int64 (-1,)
  out finished bool (-1, 4)
  out log_prob float32 (-1, 4)
  out positions int32 (-1, 4, -1)
  out score float32 (-1, 4)
serving_default
  in  character_ids int32 (-1, -1, 3)
  in  copy_ids int32 (-1, -1)
  in  turn_ids int32 (-1, -1)
  in  word_ids int32 (-1, -1)
  out fingerprint int64 (-1,)
  out finished bool (-1,)
  out history_gate float32 (-1, -1)
  out log_prob float32 (-1,)
  out positions int32 (-1, -1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    model = tiny.model(seed=30, num_encoder_layers=1, num_decoder_layers=1)  # ends every rewrite early
    save_artefact(directory, model, tiny.FEATURES.model_copy(update={"calibration": CALIBRATION}), tiny.VOCABULARY)
    return directory


@pytest.fixture(scope="module")
def exported(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(folder, tmp_path_factory.mktemp("served"), name="tiny")


@pytest.fixture(scope="module")
def meta_graph(exported: Path) -> meta_graph_pb2.MetaGraphDef:
    return _meta_graph(exported)


def _meta_graph(exported: Path) -> meta_graph_pb2.MetaGraphDef:
    saved_model = saved_model_pb2.SavedModel.FromString((exported / "saved_model.pb").read_bytes())
    (graph,) = saved_model.meta_graphs
    return graph


def _describe(tensors: dict[str, meta_graph_pb2.TensorInfo], direction: str) -> list[str]:
    return [
        f"  {direction:3} {name} {tf.as_dtype(tensors[name].dtype).name} "
        f"{tuple(dimension.size for dimension in tensors[name].tensor_shape.dim)}"
        for name in sorted(tensors)
    ]


def test_the_first_export_is_version_one(exported: Path) -> None:
    assert exported.name == "1"
    assert [path.name for path in exported.parent.iterdir()] == ["1"]


def _signatures(meta_graph: meta_graph_pb2.MetaGraphDef) -> str:
    lines = []
    for name, signature in sorted(meta_graph.signature_def.items()):
        if name in ("serving_default", "beam"):
            lines += [name, *_describe(dict(signature.inputs), "in"), *_describe(dict(signature.outputs), "out")]
    return "\n".join(lines) + "\n"


def test_the_signatures_are_those_that_were_promised(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    assert _signatures(meta_graph) == SIGNATURES


def test_each_length_has_signatures_that_answer_as_those_for_all_lengths(
    exported: Path, meta_graph: meta_graph_pb2.MetaGraphDef
) -> None:
    names = {name for name in meta_graph.signature_def if not name.startswith("__")}
    by_length = {f"{name}_{length}" for name in ("serving_default", "beam") for length in LENGTH_BUCKETS}
    assert names == {"serving_default", "beam"} | by_length
    arrays = tiny.arrays(*tiny.sources(), length=48)
    # As TF Serving does: it reads the graph, where ``tf.saved_model.load`` reads the objects beside it.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], str(exported))

        def answer(name: str) -> dict[str, np.ndarray]:
            signature = meta_graph.signature_def[name]
            fed = {signature.inputs[key].name: array for key, array in arrays.items()}
            found: dict[str, np.ndarray] = session.run({k: v.name for k, v in signature.outputs.items()}, fed)
            return found

        expected, found = answer("serving_default"), answer("serving_default_48")
    assert expected.keys() == found.keys()
    for key in expected:
        np.testing.assert_array_equal(expected[key], found[key])


def test_the_graph_needs_no_xla_and_no_python(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    functions = meta_graph.graph_def.library.function
    nodes = [*meta_graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    assert len(nodes) > 1000
    assert not [node.op for node in nodes if "xla" in node.op.lower() or node.op in ("PyFunc", "EagerPyFunc")]
    assert not [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert not [node.name for node in nodes if "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b]


def test_a_fresh_process_rewrites_as_the_live_model_does(exported: Path, folder: Path) -> None:
    """Another batch size and length than export's own check, both signatures, through NumPy files."""
    model = load_model(folder)
    arrays = tiny.arrays(*tiny.sources(), tiny.source("今天 冷吗"), length=23)
    found = run_in_fresh_process(exported, arrays)
    for signature, live in (
        ("serving_default", rewrite_greedily(model, arrays)),
        ("beam", rewrite_with_beams(model, arrays, 4)),
    ):
        np.testing.assert_array_equal(found[signature]["positions"], np.array(live["positions"]))
        np.testing.assert_array_equal(found[signature]["finished"], np.array(live["finished"]))
        np.testing.assert_allclose(found[signature]["log_prob"], np.array(live["log_prob"]), rtol=1e-3)
        fingerprint = preprocessing_fingerprint(tiny.FEATURES, tiny.VOCABULARY)
        np.testing.assert_array_equal(found[signature]["fingerprint"], np.full(5, fingerprint))
    assert (found["serving_default"]["positions"] >= 0).any()


def test_the_check_fails_once_the_live_model_is_another(exported: Path, folder: Path) -> None:
    model = load_model(folder)
    model.pointer.gate.bias.assign_add([0.5])
    with pytest.raises(RuntimeError, match="of the exported model to be the live model's, found another"):
        check(exported, model, tiny.features())


def test_the_assets_tell_the_front_what_it_talks_to(exported: Path) -> None:
    assets = exported / "assets.extra" / "rewriter"
    assert sorted(path.name for path in assets.iterdir()) == [
        "characters.txt",
        "features.json",
        "model.json",
        "words.txt",
    ]
    manifest = json.loads((assets / "model.json").read_text(encoding="utf-8"))
    assert manifest["name"] == "tiny" and manifest["version"] == "1"
    assert manifest["fingerprint"] == str(preprocessing_fingerprint(tiny.FEATURES, tiny.VOCABULARY))
    assert manifest["vocabulary_fingerprint"] == tiny.VOCABULARY.fingerprint
    assert manifest["max_utterance_tokens"] == 12


def test_the_front_withholds_as_the_folder_says_and_the_fingerprint_does_not_depend_on_it(exported: Path) -> None:
    """So that a model can be calibrated, or its threshold moved, without exporting its graph anew."""
    config = load_served_features(exported).config
    assert config.calibration == CALIBRATION
    assert load_manifest(exported).fingerprint == preprocessing_fingerprint(tiny.FEATURES, tiny.VOCABULARY)


def test_there_is_a_warm_up_request_for_each_signature_length_and_batch_size(exported: Path) -> None:
    records = tf.data.TFRecordDataset(str(exported / "assets.extra" / "tf_serving_warmup_requests"))
    shapes = []
    for record in records.as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "tiny"
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        assert inputs.keys() == set(ARRAY_NAMES)
        assert {array.dtype for array in inputs.values()} == {np.dtype(np.int32)}
        assert inputs["character_ids"].shape == (*inputs["word_ids"].shape, 3)
        assert (inputs["turn_ids"] > 1).any(axis=1).all() and (inputs["turn_ids"] == 1).any(axis=1).all()
        shapes.append((request.model_spec.signature_name, *inputs["word_ids"].shape))
    expected = [("serving_default", size, length) for size in BATCH_SIZES for length in LENGTH_BUCKETS]
    expected += [("beam", 1, length) for length in LENGTH_BUCKETS]
    expected += [(f"{name}_{length}", 1, length) for name in ("serving_default", "beam") for length in LENGTH_BUCKETS]
    assert sorted(shapes) == sorted(expected)
    assert len(shapes) <= 1000  # TF Serving reads no more


def test_another_member_of_the_family_is_exported_with_the_same_signatures(tmp_path: Path) -> None:
    """Export itself compares greedy and beams with the live model; here at a third shape."""
    model = tiny.model(seed=30, num_encoder_layers=1, num_decoder_layers=1, architecture="lstm", output="ptr_gen")
    save_artefact(tmp_path / "model", model, tiny.FEATURES, tiny.VOCABULARY)
    exported = export(tmp_path / "model", tmp_path / "served")
    arrays = tiny.arrays(*tiny.sources(), tiny.source("今天 冷吗"), length=23)
    found = run_in_fresh_process(exported, arrays)
    live = rewrite_greedily(load_model(tmp_path / "model"), arrays)
    np.testing.assert_array_equal(found["serving_default"]["positions"], np.array(live["positions"]))
    np.testing.assert_allclose(found["serving_default"]["log_prob"], np.array(live["log_prob"]), rtol=1e-3)
    assert _signatures(_meta_graph(exported)) == SIGNATURES


def _stand_in(monkeypatch: pytest.MonkeyPatch, check_error: Exception | None = None) -> None:
    """Writes an empty file for the graph: what happens around it is what is tested."""

    def write(model: object, path: Path, *rest: object) -> None:
        path.mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(b"")

    def checked(*_: object) -> None:
        if check_error:
            raise check_error

    monkeypatch.setattr(exporting, "_write_saved_model", write)
    monkeypatch.setattr(exporting, "check", checked)


def test_the_next_version_follows_the_highest(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch)
    for name in ("2", "10", "latest", "partial-12"):
        (tmp_path / name).mkdir()
    assert export(folder, tmp_path) == tmp_path / "11"
    assert export(folder, tmp_path, version=30) == tmp_path / "30"
    assert export(folder, tmp_path / "new" / "place") == tmp_path / "new" / "place" / "1"


def test_a_version_that_exists_is_left_as_it_is(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch)
    (tmp_path / "3").mkdir()
    with pytest.raises(ValueError, match=f"expected a free version, found {tmp_path}/3"):
        export(folder, tmp_path, version=3)
    assert list(tmp_path.rglob("*")) == [tmp_path / "3"]


def test_an_export_that_fails_its_check_is_not_seen_and_does_not_stand_in_the_way(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _stand_in(patch, RuntimeError("not the live model"))
        with pytest.raises(RuntimeError, match="not the live model"):
            export(folder, tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name.isdecimal()]
    _stand_in(monkeypatch)
    assert export(folder, tmp_path) == tmp_path / "1"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_graph_with_an_xla_op_is_refused(tmp_path: Path) -> None:
    """ops.slice_update, the obvious way to fill a cache, is one on TensorFlow."""
    module = tf.Module()
    module.run = tf.function(
        lambda x: keras.ops.slice_update(x, (0, 0), keras.ops.zeros((1, 1))),
        input_signature=[tf.TensorSpec((2, None), tf.float32)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.run})
    with pytest.raises(RuntimeError, match="expected no XLA in the graph, found XlaDynamicUpdateSlice"):
        check(tmp_path, tiny.model(), tiny.features())


def test_a_model_that_does_not_run_is_reported_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)the exported model does not run: .*SavedModel"):
        run_in_fresh_process(tmp_path, tiny.arrays())


def test_export_asks_for_the_backend_it_needs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="expected KERAS_BACKEND=tensorflow for export, found jax"):
        export(folder, tmp_path)
    assert list(tmp_path.iterdir()) == []
