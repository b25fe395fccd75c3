"""PredictionService and ModelService on one port (server.cc)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_management_pb2, predict_pb2

from .errors import StatusError, invalid_argument
from .faults import Faults
from .predicting import Predictor
from .versions import Versions

_SIGNATURES = "signature_def"


class Services:
    """What the calls do. ``requests`` tells what was asked, for tests."""

    def __init__(self, versions: Versions, predictor: Predictor, faults: Faults) -> None:
        self._versions = versions
        self._predictor = predictor
        self._faults = faults
        self.requests: list[dict[str, Any]] = []

    def predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.requests.append(_described(request, context))
        fault = self._faults.before(context, request)
        _check_spec(request)
        with self._versions.servable(request.model_spec) as (number, servable):
            response = self._predictor.predict(number, servable, request, _time_left(context))
        return self._faults.after(fault, response)

    def metadata(self, request: Any, context: grpc.ServicerContext) -> Any:
        _check_spec(request)
        if not request.metadata_field:
            raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != _SIGNATURES:
                raise invalid_argument(f"Metadata field {field} is not supported")
        with self._versions.servable(request.model_spec) as (number, servable):
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name, signature in servable.signatures.items():
                signatures.signature_def[name].CopyFrom(signature)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = number
        response.metadata[_SIGNATURES].Pack(signatures)
        return response

    def status(self, request: Any, context: grpc.ServicerContext) -> Any:
        _check_spec(request)
        spec = request.model_spec
        # A label is ignored.
        version = spec.version.value if spec.HasField("version") else None
        response = get_model_status_pb2.GetModelStatusResponse()
        for number, loaded in self._versions.states(spec.name, version):
            each = response.model_version_status.add(version=number, state=loaded.state)
            each.status.error_code = 2 if loaded.error else 0
            each.status.error_message = loaded.error
        return response

    def reload(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid_argument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        self._versions.reload(request.config)
        return model_management_pb2.ReloadConfigResponse()


def start_server(services: Services, port: int, threads: int, channel_arguments: str) -> tuple[grpc.Server, int]:
    """Returns the server and its port."""
    # TF Serving takes messages of any size, unless --grpc_channel_arguments says otherwise.
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    for argument in filter(None, channel_arguments.split(",")):
        key, _, value = argument.partition("=")
        options.append((key, int(value)))
    server = grpc.server(ThreadPoolExecutor(max_workers=threads), options=options)
    server.add_generic_rpc_handlers(
        (
            _handlers(
                "PredictionService",
                Predict=(services.predict, predict_pb2.PredictRequest),
                GetModelMetadata=(services.metadata, get_model_metadata_pb2.GetModelMetadataRequest),
            ),
            _handlers(
                "ModelService",
                GetModelStatus=(services.status, get_model_status_pb2.GetModelStatusRequest),
                HandleReloadConfigRequest=(services.reload, model_management_pb2.ReloadConfigRequest),
            ),
        )
    )
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, bound


def _handlers(service: str, **methods: tuple[Callable[[Any, grpc.ServicerContext], Any], Any]) -> Any:
    return grpc.method_handlers_generic_handler(
        f"tensorflow.serving.{service}",
        {
            name: grpc.unary_unary_rpc_method_handler(
                _with_status(behaviour),
                request_deserializer=kind.FromString,
                response_serializer=lambda message: message if isinstance(message, bytes) else _bytes(message),
            )
            for name, (behaviour, kind) in methods.items()
        },
    )


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _with_status(behaviour: Callable[[Any, grpc.ServicerContext], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return behaviour(request, context)
        except StatusError as error:
            context.abort(error.code, error.message)

    return call


def _check_spec(request: Any) -> None:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")


def _time_left(context: grpc.ServicerContext) -> float | None:
    """None without a deadline, of which gRPC makes one in some centuries."""
    seconds = context.time_remaining()
    return None if seconds is None or seconds > 1e6 else float(seconds)


def _described(request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
    spec = request.model_spec
    return {
        "signature": spec.signature_name,
        "version": spec.version.value if spec.HasField("version") else None,
        "label": spec.version_label,
        "shapes": {name: [d.size for d in tensor.tensor_shape.dim] for name, tensor in request.inputs.items()},
        "seconds_left": _time_left(context),
    }
