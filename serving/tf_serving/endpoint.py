"""One address of TF Serving and the three calls that we make there. What they raise is a BackendError."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import grpc
import numpy as np
from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import Int64Value

from serving.backend import BrokenAnswer
from serving.pb import tf_serving_pb2 as pb
from serving.tf_serving.settings import TFServingSettings
from serving.tf_serving.statuses import to_backend_error
from serving.tf_serving.tensors import to_message
from serving.tracing import trace_metadata

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_SIGNATURES = "tensorflow.serving.SignatureDefMap"

Response = TypeVar("Response", bound=Message)


class Endpoint:
    """A connection. Make it inside a running event loop."""

    def __init__(self, address: str, settings: TFServingSettings) -> None:
        self.address = address
        self._model_name = settings.model_name
        self._channel = grpc.aio.insecure_channel(address, _channel_options(settings))
        # As bytes: those that are no message gRPC would log, with a stack trace.
        self._methods: dict[str, Any] = {
            method: self._channel.unary_unary(method) for method in (_PREDICT, _METADATA, _STATUS)
        }

    async def predict(
        self, which: pb.ModelSpec, signature: str, arrays: Mapping[str, np.ndarray], timeout_seconds: float
    ) -> pb.PredictResponse:
        """``which`` says a version, a label, or nothing for the newest."""
        # All outputs are asked for: an output_filter would make TF Serving run the request outside of its batches.
        request = pb.PredictRequest(
            model_spec=self._spec(which, signature), inputs={name: to_message(array) for name, array in arrays.items()}
        )
        return await self._call(_PREDICT, request, pb.PredictResponse, timeout_seconds)

    async def signatures(
        self, which: pb.ModelSpec, timeout_seconds: float
    ) -> tuple[int, Mapping[str, pb.SignatureDef]]:
        """Returns the version that answers for ``which``, as a number, and its signatures by name."""
        request = pb.GetModelMetadataRequest(model_spec=self._spec(which), metadata_field=["signature_def"])
        response = await self._call(_METADATA, request, pb.GetModelMetadataResponse, timeout_seconds)
        packed = response.metadata["signature_def"]
        if packed.TypeName() != _SIGNATURES:
            raise BrokenAnswer(f"expected metadata of the type {_SIGNATURES}, found {packed.TypeName()!r}")
        return response.model_spec.version.value, _parse(pb.SignatureDefMap, packed.value).signature_def

    async def available_versions(self, timeout_seconds: float) -> set[int]:
        """The versions that answer; empty while the first one loads."""
        # GetModelStatus knows no labels: it would name all versions.
        request = pb.GetModelStatusRequest(model_spec=self._spec(pb.ModelSpec()))
        response = await self._call(_STATUS, request, pb.GetModelStatusResponse, timeout_seconds)
        return {each.version for each in response.model_version_status if each.state == pb.ModelVersionStatus.AVAILABLE}

    async def close(self) -> None:
        await self._channel.close()

    def _spec(self, which: pb.ModelSpec, signature: str = "") -> pb.ModelSpec:
        spec = pb.ModelSpec(name=self._model_name, signature_name=signature)
        spec.MergeFrom(which)
        return spec

    async def _call(self, method: str, request: Message, kind: type[Response], timeout_seconds: float) -> Response:
        try:
            call = self._methods[method]
            data: bytes = await call(request.SerializeToString(), timeout=timeout_seconds, metadata=trace_metadata())
        except grpc.aio.AioRpcError as error:
            raise to_backend_error(error) from None
        return _parse(kind, data)


def by_number(version: int) -> pb.ModelSpec:
    return pb.ModelSpec(version=Int64Value(value=version))


def by_label(label: str) -> pb.ModelSpec:
    return pb.ModelSpec(version_label=label)


def newest() -> pb.ModelSpec:
    return pb.ModelSpec()


def _parse(kind: type[Response], data: bytes) -> Response:
    message: Response = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise BrokenAnswer(f"expected a {kind.__name__}, found {len(data)} other bytes") from None
    return message


def _channel_options(settings: TFServingSettings) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        # Retries belong to whoever chooses among addresses; gRPC's own would come on top of them.
        ("grpc.enable_retries", 0),
        ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.use_local_subchannel_pool", 1),
        # By default gRPC waits up to two minutes before it tries a server again. Before it looks up a name again that
        # did not exist, it still does: there is no option for that.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    if settings.keepalive_seconds is not None:
        options += [
            ("grpc.keepalive_time_ms", int(settings.keepalive_seconds * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    return options
