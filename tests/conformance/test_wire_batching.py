"""What TF Serving's batches do to requests that are sent together."""

from collections.abc import Sequence

import grpc
import pytest
import tensorflow as tf
from target import Target
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
from test_wire import CODE, SECONDS, predict_request, refusal

from rewriter.length_signatures import length_signature
from serving.signatures import GREEDY
from serving.tf_serving.catalogue import Catalogue


def together(target: Target, requests: Sequence[PredictRequest]) -> list[PredictResponse | grpc.RpcError]:
    calls = [target.prediction.Predict.future(request, timeout=SECONDS) for request in requests]
    return [call.exception() or call.result() for call in calls]


def lengths(target: Target) -> tuple[int, ...]:
    return Catalogue(target.model_dir).newest().buckets.lengths


def test_requests_of_one_length_are_answered_each_with_its_own_rows(batching_target: Target) -> None:
    requests = [predict_request(batching_target, length=48, rows=rows) for rows in (1, 2, 3)]
    answers = together(batching_target, requests)
    assert [tf.make_ndarray(answer.outputs["log_prob"]).shape for answer in answers] == [(1,), (2,), (3,)]


def test_requests_of_several_lengths_fail_together(batching_target: Target) -> None:
    answers = together(batching_target, [predict_request(batching_target, length=length) for length in (48, 80)])
    assert [answer.code() for answer in answers] == [CODE.FAILED_PRECONDITION] * 2
    assert all("have different shapes and padding is turned off" in answer.details() for answer in answers)


def test_signatures_for_each_length_keep_them_apart(batching_target: Target) -> None:
    requests = [
        predict_request(batching_target, length_signature(GREEDY, length), length)
        for length in lengths(batching_target)
    ]
    answers = together(batching_target, requests)
    assert [answer.model_spec.signature_name for answer in answers] == [
        request.model_spec.signature_name for request in requests
    ]


def test_a_request_for_some_of_the_outputs_is_not_batched(batching_target: Target) -> None:
    requests = [predict_request(batching_target, length=length) for length in (48, 80)]
    for request in requests:
        request.output_filter.append("positions")
    assert [set(answer.outputs) for answer in together(batching_target, requests)] == [{"positions"}] * 2


def test_a_request_beyond_the_largest_batch_is_refused(batching_target: Target) -> None:
    most = Catalogue(batching_target.model_dir).newest().buckets.batch_sizes[-1]
    expected = (CODE.INVALID_ARGUMENT, f"Task size {most + 1} is larger than maximum input batch size {most}")
    assert refusal(batching_target.prediction.Predict, predict_request(batching_target, rows=most + 1)) == expected


@pytest.mark.parametrize("name", ["word_ids", "turn_ids"])
def test_inputs_of_different_batch_sizes_are_refused(batching_target: Target, name: str) -> None:
    request = predict_request(batching_target, rows=2)
    request.inputs[name].CopyFrom(predict_request(batching_target, rows=3).inputs[name])
    code, message = refusal(batching_target.prediction.Predict, request)
    assert (code, "must have equal 0th-dimension size" in message) == (CODE.INVALID_ARGUMENT, True)
