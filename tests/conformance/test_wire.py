"""What TF Serving does on the wire, as far as our backend counts on it. With the stand-in, this tests the stand-in."""

import re
import shutil
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from stand_in.copying import copy_version
from target import AVAILABLE, Target
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from rewriter.conversation import Conversation
from rewriter.features import collate
from serving.signatures import BEAM, GREEDY, OUTPUTS
from serving.tf_serving.catalogue import Catalogue

CODE = grpc.StatusCode
SECONDS = 60
CONVERSATION = Conversation(("西安今天的天气怎么样",), "明天有雨吗")
END = get_model_status_pb2.ModelVersionStatus.END


def predict_request(target: Target, signature: str = "", length: int | None = None, rows: int = 1) -> PredictRequest:
    features = Catalogue(target.model_dir).newest().features
    request = PredictRequest()
    request.model_spec.name = target.model_name
    request.model_spec.signature_name = signature
    for name, array in collate([features.encode(CONVERSATION)] * rows, length).items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
    return request


def predict(target: Target, request: PredictRequest) -> PredictResponse:
    return target.prediction.Predict(request, timeout=SECONDS)


def refusal(call: Callable[..., Any], request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call(request, timeout=SECONDS)
    return raised.value.code(), raised.value.details()


def status_request(name: str) -> get_model_status_pb2.GetModelStatusRequest:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    return request


def metadata_request(target: Target, *fields: str) -> get_model_metadata_pb2.GetModelMetadataRequest:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = target.model_name
    return request


@pytest.mark.parametrize(("asked", "answered"), [("", GREEDY), (GREEDY, GREEDY), (BEAM, BEAM)])
def test_an_answer_names_model_version_and_signature(target: Target, asked: str, answered: str) -> None:
    spec = predict(target, predict_request(target, asked)).model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == (target.model_name, max(target.on_disk()), answered)


@pytest.mark.parametrize("signature", [GREEDY, BEAM])
def test_the_values_of_an_answer_are_in_the_fields_of_their_types(target: Target, signature: str) -> None:
    outputs = predict(target, predict_request(target, signature, rows=3)).outputs
    assert set(outputs) >= OUTPUTS[signature]
    fields = {"positions": "int_val", "log_prob": "float_val", "finished": "bool_val", "fingerprint": "int64_val"}
    for name, field in fields.items():
        shape = [dim.size for dim in outputs[name].tensor_shape.dim]
        assert shape[0] == 3
        assert len(getattr(outputs[name], field)) == np.prod(shape)
        assert not outputs[name].tensor_content


def _without_spec(request: PredictRequest) -> None:
    request.ClearField("model_spec")


def _of_another_dtype(request: PredictRequest) -> None:
    wide = tf.make_ndarray(request.inputs["word_ids"]).astype(np.int64)
    request.inputs["word_ids"].CopyFrom(tf.make_tensor_proto(wide))


def _with_too_few_bytes(request: PredictRequest) -> None:
    request.inputs["word_ids"].tensor_content = b"\x01\x00\x00"


def _with_an_extra_input(request: PredictRequest) -> None:
    request.inputs["extra"].CopyFrom(request.inputs["word_ids"])


INPUTS = "{character_ids,copy_ids,turn_ids,word_ids}"
REFUSED: list[tuple[Callable[[PredictRequest], Any], grpc.StatusCode, str]] = [
    (_without_spec, CODE.INVALID_ARGUMENT, "Missing ModelSpec"),
    (lambda it: setattr(it.model_spec, "name", ""), CODE.INVALID_ARGUMENT, "ModelSpec has no name specified."),
    (
        lambda it: setattr(it.model_spec, "name", "nobody"),
        CODE.NOT_FOUND,
        r"Servable not found for request: Latest\(nobody\)",
    ),
    (
        lambda it: setattr(it.model_spec.version, "value", 987),
        CODE.NOT_FOUND,
        r"Servable not found for request: Specific\(\w+, 987\)",
    ),
    (
        lambda it: setattr(it.model_spec, "version_label", "nobody"),
        CODE.INVALID_ARGUMENT,
        "Unrecognized servable version label: nobody",
    ),
    (
        lambda it: setattr(it.model_spec, "signature_name", "nothing"),
        CODE.FAILED_PRECONDITION,
        'Serving signature key "nothing" not found.',
    ),
    (
        lambda it: it.inputs.pop("copy_ids"),
        CODE.INVALID_ARGUMENT,
        r"input size does not match signature: 3!=4 len\({character_ids,turn_ids,word_ids}\) != "
        rf"len\({INPUTS}\)\. Sent extra: {{}}\. Missing but required: {{copy_ids}}\.",
    ),
    (
        _with_an_extra_input,
        CODE.INVALID_ARGUMENT,
        r"input size does not match signature: 5!=4 .* Sent extra: {extra}\. Missing but required: {}\.",
    ),
    (_of_another_dtype, CODE.INVALID_ARGUMENT, r"Expects arg\[\d+\] to be int32 but int64 is provided"),
    (_with_too_few_bytes, CODE.INVALID_ARGUMENT, "tensor parsing error: word_ids"),
    (
        lambda it: it.output_filter.append("nothing"),
        CODE.INVALID_ARGUMENT,
        "output tensor alias not found in signature: nothing Outputs expected to be in the set {.*positions.*}.",
    ),
]


@pytest.mark.parametrize(("spoil", "code", "message"), REFUSED)
def test_a_request_that_does_not_fit_is_refused_with_its_reason(
    target: Target, spoil: Callable[[PredictRequest], Any], code: grpc.StatusCode, message: str
) -> None:
    request = predict_request(target)
    spoil(request)
    found_code, found = refusal(target.prediction.Predict, request)
    assert found_code is code
    assert re.fullmatch(message, found), found


def test_an_input_under_another_name_is_refused(target: Target) -> None:
    request = predict_request(target)
    request.inputs["renamed"].CopyFrom(request.inputs["word_ids"])
    del request.inputs["word_ids"]
    assert refusal(target.prediction.Predict, request)[0] is CODE.INVALID_ARGUMENT


def test_any_batch_size_and_length_is_answered(target: Target) -> None:
    response = predict(target, predict_request(target, length=61, rows=5))
    assert response.outputs["log_prob"].tensor_shape.dim[0].size == 5


def test_a_request_beyond_grpcs_usual_limit_is_read(target: Target) -> None:
    request = predict_request(target, "nothing")
    request.inputs["extra"].CopyFrom(tf.make_tensor_proto(np.zeros(2_000_000, np.int32)))
    assert refusal(target.prediction.Predict, request)[0] is CODE.FAILED_PRECONDITION


def test_the_status_tells_which_versions_answer(target: Target) -> None:
    states = target.states()
    assert {number for number, state in states.items() if state == AVAILABLE} == target.on_disk()
    # It also remembers the versions that it has unloaded.
    assert set(states.values()) <= {AVAILABLE, END}


def test_the_status_ignores_labels(target: Target) -> None:
    request = status_request(target.model_name)
    request.model_spec.version_label = "nobody"
    response = target.models.GetModelStatus(request, timeout=SECONDS)
    assert {each.version for each in response.model_version_status} >= target.on_disk()


def test_the_status_of_nobody_is_an_error(target: Target) -> None:
    model = status_request("nobody")
    version = status_request(target.model_name)
    version.model_spec.version.value = 987
    nothing = get_model_status_pb2.GetModelStatusRequest()
    assert [refusal(target.models.GetModelStatus, request) for request in (model, version, nothing)] == [
        (CODE.NOT_FOUND, "Could not find any versions of model nobody"),
        (CODE.NOT_FOUND, f"Could not find version 987 of model {target.model_name}"),
        (CODE.INVALID_ARGUMENT, "Missing ModelSpec"),
    ]


def test_the_metadata_name_the_version_and_its_signatures(target: Target) -> None:
    response = target.prediction.GetModelMetadata(metadata_request(target, "signature_def"), timeout=SECONDS)
    assert response.model_spec.version.value == max(target.on_disk())
    packed = response.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert packed.Unpack(signatures)
    assert {GREEDY, BEAM} <= set(signatures.signature_def)


def test_metadata_of_other_kinds_are_refused(target: Target) -> None:
    for fields in ((), ("signature_def", "weights")):
        assert (
            refusal(target.prediction.GetModelMetadata, metadata_request(target, *fields))[0] is CODE.INVALID_ARGUMENT
        )


def test_metadata_can_be_asked_for_by_label(target: Target) -> None:
    number = max(target.on_disk())
    target.configure(stable=number)
    request = metadata_request(target, "signature_def")
    request.model_spec.version_label = "stable"
    assert target.prediction.GetModelMetadata(request, timeout=SECONDS).model_spec.version.value == number
    request.model_spec.version_label = "nobody"
    expected = (CODE.INVALID_ARGUMENT, "Unrecognized servable version label: nobody")
    assert refusal(target.prediction.GetModelMetadata, request) == expected


def test_a_new_version_answers_beside_the_old_one_until_that_is_removed(target: Target) -> None:
    old = max(target.on_disk())
    new = target.add_version()
    newest, older = predict_request(target), predict_request(target)
    older.model_spec.version.value = old
    assert [predict(target, it).model_spec.version.value for it in (newest, older)] == [new, old]
    target.remove_version(new)
    older.model_spec.version.value = new
    assert refusal(target.prediction.Predict, older)[0] is CODE.NOT_FOUND
    assert predict(target, newest).model_spec.version.value == old
    assert target.states()[new] >= AVAILABLE


def test_a_folder_that_is_no_number_is_no_version(target: Target) -> None:
    partial = target.model_dir / "partial-7"
    copy_version(target.model_dir / str(max(target.on_disk())), partial)
    try:
        target.add_version()  # so there was a look at the folder
        assert set(target.states()) >= target.on_disk()
        assert 7 not in target.states()
    finally:
        shutil.rmtree(partial)


def test_a_label_means_a_version_and_can_be_moved(target: Target) -> None:
    old = max(target.on_disk())
    new = target.add_version()
    request = predict_request(target)
    request.model_spec.version_label = "stable"
    for version in (old, new, old):
        target.configure(stable=version)
        assert predict(target, request).model_spec.version.value == version


def test_a_label_cannot_be_moved_to_a_version_that_does_not_answer(target: Target) -> None:
    number = max(target.on_disk())
    target.configure(stable=number)
    with pytest.raises(grpc.RpcError) as raised:
        target.configure(stable=987)
    assert raised.value.code() is CODE.FAILED_PRECONDITION
    assert raised.value.details() == (
        f"Request to assign label to version 987 of model {target.model_name}, "
        "which is not currently available for inference"
    )
    request = predict_request(target)
    request.model_spec.version_label = "stable"
    assert predict(target, request).model_spec.version.value == number


def test_a_label_whose_version_is_gone_is_not_found(target: Target) -> None:
    new = target.add_version()
    target.configure(canary=new)
    target.remove_version(new)
    request = predict_request(target)
    request.model_spec.version_label = "canary"
    expected = (CODE.NOT_FOUND, f"Servable not found for request: Specific({target.model_name}, {new})")
    assert refusal(target.prediction.Predict, request) == expected


def test_there_is_no_health_service(target: Target) -> None:
    health = health_pb2_grpc.HealthStub(target.channel)
    assert refusal(health.Check, health_pb2.HealthCheckRequest())[0] is CODE.UNIMPLEMENTED
