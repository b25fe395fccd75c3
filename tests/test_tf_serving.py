"""The parts of the TF Serving backend that need no server; ``conformance`` has the rest."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from front import MANIFEST, FakeBackend, features, rewriting
from saved_models import FEATURES, VOCABULARY, write_model
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_pb2, predict_pb2

from rewriter.conversation import Conversation
from rewriter.features import Features
from rewriter.length_signatures import add_length_signatures
from serving.answer import Model
from serving.artefact import Manifest
from serving.backend import (
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    BackendUnreachable,
    BrokenAnswer,
    ModelChanged,
    ServedModel,
)
from serving.client import AsyncRewriter
from serving.config import ServerSettings
from serving.pb import tf_serving_pb2 as pb
from serving.rewriting import REASONS, Rewriting
from serving.server import FrontServer
from serving.signatures import BEAM, GREEDY
from serving.tf_serving.buckets import Buckets, batching_parameters, pad_rows
from serving.tf_serving.catalogue import Catalogue
from serving.tf_serving.endpoint import Endpoint
from serving.tf_serving.fitting import Misfit, check_signatures
from serving.tf_serving.routes import is_on_trial
from serving.tf_serving.settings import TFServingSettings
from serving.tf_serving.statuses import VersionGone, to_backend_error
from serving.tf_serving.tensors import to_array, to_message
from serving.tf_serving.watching import Watcher

UTTERANCE = "明天有雨吗"
BUCKETS = Buckets((48, 80), (1, 2, 8))
STOCK = {
    "TensorProto": tensor_pb2.TensorProto,
    "TensorShapeProto": tensor_shape_pb2.TensorShapeProto,
    "TensorInfo": meta_graph_pb2.TensorInfo,
    "SignatureDef": meta_graph_pb2.SignatureDef,
    "SignatureDefMap": get_model_metadata_pb2.SignatureDefMap,
    "ModelSpec": model_pb2.ModelSpec,
    "PredictRequest": predict_pb2.PredictRequest,
    "PredictResponse": predict_pb2.PredictResponse,
    "GetModelMetadataRequest": get_model_metadata_pb2.GetModelMetadataRequest,
    "GetModelMetadataResponse": get_model_metadata_pb2.GetModelMetadataResponse,
    "GetModelStatusRequest": get_model_status_pb2.GetModelStatusRequest,
    "ModelVersionStatus": get_model_status_pb2.ModelVersionStatus,
    "GetModelStatusResponse": get_model_status_pb2.GetModelStatusResponse,
}


def fields(descriptor: Any) -> dict[str, tuple[Any, ...]]:
    """Everything about the fields that the wire depends on."""
    found = {}
    for each in descriptor.fields:
        entries = fields(each.message_type) if each.message_type and each.message_type.GetOptions().map_entry else {}
        kind = each.message_type and not entries and each.message_type.name
        found[each.name] = (each.number, each.type, each.is_repeated, kind, tuple(sorted(entries.items())))
    return found


@pytest.mark.parametrize("name", [*pb.DESCRIPTOR.message_types_by_name])
def test_our_messages_are_tf_servings_on_the_wire(name: str) -> None:
    ours, theirs = fields(pb.DESCRIPTOR.message_types_by_name[name]), fields(STOCK[name].DESCRIPTOR)
    assert ours.items() <= theirs.items()
    nested = pb.DESCRIPTOR.message_types_by_name[name].nested_types_by_name
    for inner in (inner for inner in nested if not nested[inner].GetOptions().map_entry):
        assert fields(nested[inner]).items() <= fields(STOCK[name].DESCRIPTOR.nested_types_by_name[inner]).items()


def test_our_enums_have_tf_servings_numbers() -> None:
    assert set(pb.DataType.items()) <= set(types_pb2.DataType.items())
    states = get_model_status_pb2.ModelVersionStatus.State.items()
    assert set(pb.ModelVersionStatus.State.items()) == set(states)


def test_the_front_loads_no_tensorflow() -> None:
    modules = "serving.tf_serving.backend, serving.server"
    code = f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "serving" in found
    assert not set(found) & {"tensorflow", "tensorflow_serving", "keras"}


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_arrays_survive_the_way_there_and_back(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = to_array(to_message(array))
    assert (found.dtype, found.shape) == (array.dtype, shape)
    np.testing.assert_array_equal(found, array)


def tensor(data_type: int, *shape: int, **values: Any) -> pb.TensorProto:
    dims = [pb.TensorShapeProto.Dim(size=size) for size in shape]
    return pb.TensorProto(dtype=data_type, tensor_shape=pb.TensorShapeProto(dim=dims), **values)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (tensor(pb.DT_FLOAT, 2, float_val=[0.5, 1.5]), [0.5, 1.5]),
        (tensor(pb.DT_INT32, 2, 2, int_val=[1, 2, 3, 4]), [[1, 2], [3, 4]]),
        (tensor(pb.DT_INT64, 1, int64_val=[2**62]), [2**62]),
        (tensor(pb.DT_BOOL, 2, bool_val=[True, False]), [True, False]),
        (tensor(pb.DT_INT32, 4, int_val=[1, 2]), [1, 2, 2, 2]),
    ],
)
def test_values_are_read_from_the_field_of_their_type(message: pb.TensorProto, expected: list[Any]) -> None:
    assert to_array(message).tolist() == expected


@pytest.mark.parametrize(
    "message",
    [
        tensor(pb.DT_INVALID, 1),
        tensor(23, 1, int_val=[1]),
        tensor(pb.DT_INT32, 2, int_val=[1, 2, 3]),
        tensor(pb.DT_INT32, 2),
        tensor(pb.DT_INT32, -1, int_val=[1]),
        tensor(pb.DT_INT32, 2**40, 2**40, int_val=[1]),
        tensor(pb.DT_INT32, 1, tensor_content=b"\x01\x00\x00"),
        tensor(pb.DT_INT32, 2, tensor_content=b"\x01\x00\x00\x00" * 3),
    ],
)
def test_a_tensor_that_cannot_be_is_a_broken_answer(message: pb.TensorProto) -> None:
    with pytest.raises(BrokenAnswer, match=r"expected .*, found"):
        to_array(message)


def test_sizes_are_rounded_up_to_buckets_and_no_further() -> None:
    assert [BUCKETS.length_for(n) for n in (1, 48, 49, 80)] == [48, 48, 80, 80]
    assert [BUCKETS.batch_size_for(n) for n in (1, 2, 3, 8)] == [1, 2, 8, 8]
    for call in (BUCKETS.length_for, BUCKETS.batch_size_for):
        with pytest.raises(BrokenAnswer, match="expected at most .*, found 81"):
            call(81)


def test_rows_are_padded_with_the_last_one() -> None:
    arrays = {"a": np.array([[1, 2], [3, 4]]), "b": np.ones((2, 2, 2))}
    padded = pad_rows(arrays, 4)
    assert padded["a"].tolist() == [[1, 2], [3, 4], [3, 4], [3, 4]]
    assert padded["b"].shape == (4, 2, 2)


def test_the_servers_batching_file_has_the_fronts_batch_sizes() -> None:
    lines = batching_parameters(BUCKETS).splitlines()
    assert lines[0] == "max_batch_size { value: 8 }"
    assert [line for line in lines if "allowed" in line] == [f"allowed_batch_sizes: {size}" for size in (1, 2, 8)]
    assert lines[-1] == "pad_variable_length_inputs: false"


def test_the_command_prints_the_batching_file_of_the_newest_version(tmp_path: Path) -> None:
    write_model(tmp_path)
    command = [sys.executable, "-m", "serving.tf_serving", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == batching_parameters(Catalogue(tmp_path).newest().buckets)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length_buckets": ()}, r"expected length_buckets up to 272, found \[\]"),
        ({"length_buckets": (48, 271)}, r"expected length_buckets up to 272, found \[48, 271\]"),
        ({"batch_sizes": ()}, r"expected batch_sizes of 1 or more, found \[\]"),
    ],
)
def test_buckets_that_do_not_hold_every_source_are_refused(changes: dict[str, Any], message: str) -> None:
    manifest = Manifest.model_validate(
        MANIFEST.model_dump() | {"length_buckets": (48, 272), "batch_sizes": (1,)} | changes
    )
    with pytest.raises(ValueError, match=message):
        Buckets.of(manifest, Features(FEATURES, VOCABULARY))


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path, version=3).joinpath("3").rename(tmp_path / "4")
    with pytest.raises(ValueError, match="4: expected the manifest of version 4, found 3"):
        Catalogue(tmp_path).load(4)


def test_the_newest_version_that_can_be_read_counts_or_the_newest_says_why_not(tmp_path: Path) -> None:
    for number in (2, 9, 10):
        write_model(tmp_path, version=number)
    for number in (9, 10):
        features_file = tmp_path / str(number) / "assets.extra/rewriter/features.json"
        features_file.write_text(json.dumps({"granularity": f"newer than this front, {number}"}), encoding="utf-8")
    assert Catalogue(tmp_path).newest().number == 2
    tmp_path.joinpath("2").rename(tmp_path / "kept")
    with pytest.raises(ValueError, match="10/assets.extra/rewriter/features.json: granularity: "):
        Catalogue(tmp_path).newest()


@pytest.mark.parametrize("name", ["model.json", "features.json"])
def test_a_version_that_is_cut_short_names_the_file(tmp_path: Path, name: str) -> None:
    write_model(tmp_path, version=2)
    path = tmp_path / "2/assets.extra/rewriter" / name
    path.write_text(path.read_text(encoding="utf-8")[:-5], encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{path}: .*JSON"):
        Catalogue(tmp_path).load(2)


@pytest.mark.parametrize("name", ["model.json", "features.json"])
def test_a_version_that_this_user_may_not_read_counts_as_one_that_cannot_be_used(tmp_path: Path, name: str) -> None:
    for number in (1, 2):
        write_model(tmp_path, version=number)
    # A folder cannot be read as a file; not even by root, whom modes do not stop.
    unreadable = tmp_path / "2/assets.extra/rewriter" / name
    unreadable.unlink()
    unreadable.mkdir()
    with pytest.raises(ValueError, match=rf"2: expected assets that can be read, found .*{name}"):
        Catalogue(tmp_path).load(2)
    assert Catalogue(tmp_path).newest().number == 1


class BrokenEndpoint(Endpoint):
    async def available_versions(self, timeout_seconds: float) -> set[int]:
        raise RuntimeError(UTTERANCE)


@pytest.mark.asyncio
async def test_a_fault_of_ours_does_not_end_the_watch_and_is_logged_once_without_its_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = BrokenEndpoint("localhost:0", TFServingSettings())
    watcher = Watcher(endpoint, Catalogue(tmp_path), [], TFServingSettings())
    watcher.start()
    for _ in range(2):
        await watcher.look()
    await watcher.stop()
    await endpoint.close()
    [line] = caplog.records
    assert (line.levelname, line.message) == ("ERROR", "localhost:0: unexpected RuntimeError")
    assert "in available_versions" in vars(line)["facts"]["stack"]
    assert UTTERANCE not in f"{caplog.text} {vars(line)}"


def test_a_conversation_is_on_trial_or_not_for_good() -> None:
    """Golden: another process, or a later release, must choose alike."""
    chosen = [number for number in range(40) if is_on_trial(f"conversation {number}", 20)]
    assert chosen == [1, 6, 9, 14, 36]


def test_more_percent_only_add_conversations_and_none_and_all_mean_it() -> None:
    names = [f"conversation {number}" for number in range(2000)]
    shares = [{name for name in names if is_on_trial(name, percent)} for percent in (0, 0.5, 10, 50, 100)]
    assert all(fewer < more for fewer, more in zip(shares, shares[1:], strict=False))
    assert (len(shares[0]), len(shares[-1])) == (0, 2000)
    assert 150 < len(shares[2]) < 250
    assert not is_on_trial("", 100)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"version": 2, "version_label": "stable"}, "expected a version or a label"),
        ({"canary_percent": 5}, "expected a canary_label"),
        ({"canary_percent": 5, "canary_label": "canary"}, "found the newest version"),
        ({"canary_percent": 101}, "less than or equal to 100"),
        ({"addresses": ()}, "at least 1"),
        ({"port": 8500}, "Extra inputs"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TFServingSettings(**wrong)


def rpc_error(code: grpc.StatusCode, details: str = "") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", BackendUnreachable),
        ("UNAVAILABLE", "The batch scheduling queue to which this task was submitted is full", BackendOverloaded),
        ("RESOURCE_EXHAUSTED", "Run() timeout exceeded while waiting in batching queue", BackendOverloaded),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (5 vs. 4)", BrokenAnswer),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", BackendTimeout),
        ("NOT_FOUND", "Servable not found for request: Specific(rewriter, 2)", VersionGone),
        ("INVALID_ARGUMENT", "Unrecognized servable version label: canary", VersionGone),
        ("INVALID_ARGUMENT", "indices[0,1] = 明天 is not in [0, 100)", BackendUnavailable),
        ("FAILED_PRECONDITION", 'Serving signature key "beam" not found.', BackendUnavailable),
        ("CANCELLED", "CANCELLED", BackendUnavailable),
        ("INTERNAL", "明天", BackendUnavailable),
    ],
)
def test_every_status_is_an_error_of_ours_that_repeats_nothing(
    code: str, details: str, kind: type[BackendError]
) -> None:
    error = to_backend_error(rpc_error(grpc.StatusCode[code], details))
    assert type(error) is kind
    assert "明天" not in str(error)


def test_every_status_there_is_has_an_error() -> None:
    for code in set(grpc.StatusCode) - {grpc.StatusCode.OK}:
        assert isinstance(to_backend_error(rpc_error(code)), tuple(REASONS))


def signature(*, characters: int = 6, **changed: int) -> pb.SignatureDef:
    def info(data_type: int, *shape: int) -> pb.TensorInfo:
        return pb.TensorInfo(dtype=data_type, tensor_shape=tensor(data_type, *shape).tensor_shape)

    inputs = {name: info(pb.DT_INT32, -1, -1) for name in ("word_ids", "turn_ids", "copy_ids")}
    inputs["character_ids"] = info(pb.DT_INT32, -1, -1, characters)
    types = {"positions": pb.DT_INT32, "log_prob": pb.DT_FLOAT, "finished": pb.DT_BOOL, "fingerprint": pb.DT_INT64}
    outputs = {name: info(kind, -1) for name, kind in (types | changed).items() if kind}
    return pb.SignatureDef(inputs=inputs, outputs=outputs)


@pytest.mark.parametrize("characters", [6, -1])
def test_a_signature_may_answer_more_than_is_needed(characters: int) -> None:
    check_signatures({GREEDY: signature(characters=characters, history_gate=pb.DT_FLOAT)}, [(GREEDY, GREEDY)], 6)


@pytest.mark.parametrize(
    ("signatures", "message"),
    [
        ({BEAM: signature(), "__init": signature()}, r"expected a signature 'serving_default', found \['beam'\]"),
        (
            {GREEDY: signature(characters=4)},
            r"to read character_ids DT_INT32 \(-1, -1, 6\), .*found character_ids DT_INT32 \(-1, -1, 4\)",
        ),
        (
            {GREEDY: signature(positions=pb.DT_INT64)},
            "to answer .*positions DT_INT32, found .*positions DT_INT64",
        ),
        ({GREEDY: signature(finished=0)}, "to answer fingerprint DT_INT64, finished DT_BOOL.*, found fingerprint"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused_naming_both(
    signatures: dict[str, pb.SignatureDef], message: str
) -> None:
    with pytest.raises(Misfit, match=message):
        check_signatures(signatures, [(GREEDY, GREEDY)], 6)


def test_only_a_signature_that_is_there_gets_one_per_length(tmp_path: Path) -> None:
    write_model(tmp_path)
    with pytest.raises(ValueError, match=r"expected a signature 'sampled', found .*'beam'"):
        add_length_signatures(tmp_path / "1", ["sampled"], [48])


@pytest.mark.asyncio
async def test_the_id_of_a_conversation_arrives_where_its_model_is_chosen() -> None:
    backend, chosen = FakeBackend(), []
    conversations = [Conversation(("西安",), "明天呢", conversation_id=name) for name in ("c-2", "")]

    async def spoken() -> AsyncIterator[Conversation]:
        for conversation in conversations:
            yield conversation

    def choose(conversation_id: str) -> ServedModel:
        chosen.append(conversation_id)
        return ServedModel(features(), Model("chosen", "1", ""), backend.predict)

    use_case = Rewriting(choose, default_deadline_seconds=9, deadline_margin_seconds=0)
    server = FrontServer(ServerSettings(model_dir=Path("unused"), port=0), backend, use_case)
    async with AsyncRewriter(f"127.0.0.1:{await server.start()}", timeout_seconds=9) as rewriter:
        chosen.clear()
        answer = await rewriter.rewrite(["西安今天的天气怎么样"], "明天有雨吗", conversation_id="c-1")
        await rewriter.rewrite_batch(conversations)
        assert len([result async for result in rewriter.rewrite_stream(spoken())]) == len(conversations)
    await server.stop()
    assert (chosen, answer.model.name) == (["c-1", "c-2", "", "c-2", ""], "chosen")


@pytest.mark.asyncio
@pytest.mark.parametrize(("changes", "outcome"), [(3, "REWRITTEN"), (99, "PASSTHROUGH")])
async def test_a_model_that_changes_is_asked_again_but_not_for_ever(changes: int, outcome: str) -> None:
    left = iter([ModelChanged("changed")] * changes)

    def answer(source: Any) -> Any:
        error = next(left, None)
        if error is not None:
            raise error
        return FakeBackend().answer(source)

    service = rewriting(FakeBackend(answer))
    found = await service.rewrite_or_pass_through(Conversation(("西安今天的天气怎么样",), "明天有雨吗"))
    assert found.outcome.name == outcome
