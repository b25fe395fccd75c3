"""Where tests order faults: one call, ``/stand_in.Control/Order``, JSON both ways, on a port of its own.

{"fault": "stall", "count": 3, "seconds": 0.5}  the next three requests suffer; all without a count; see ``faults``
{"clear": true}                                  no more faults; those that stall go on
{"stalled": true}                                how many stall now
{"requests": true}                               what was asked since the last time
{"poll": true}                                   look for versions now
{"label": "canary", "version": 2}                move a label, by the same way as HandleReloadConfigRequest
{"down": true}, {"up": true}                     hang up and refuse connections; listen again, on the same port
{"kill": true}                                   end the process at once
"""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from tensorflow_serving.config import model_server_config_pb2

from .errors import StatusError
from .faults import Fault, Faults
from .services import Services
from .versions import Versions


class Control:
    """``listen`` starts a server on the port of the service, and returns it."""

    def __init__(
        self, services: Services, versions: Versions, faults: Faults, listen: Callable[[], grpc.Server]
    ) -> None:
        self._services = services
        self._versions = versions
        self._faults = faults
        self._listen = listen
        self._server: grpc.Server | None = listen()

    def start(self, port: int) -> int:
        self._control_server = grpc.server(ThreadPoolExecutor(max_workers=4))
        handler = grpc.unary_unary_rpc_method_handler(self._order)
        self._control_server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("stand_in.Control", {"Order": handler}),)
        )
        bound: int = self._control_server.add_insecure_port(f"127.0.0.1:{port}")
        self._control_server.start()
        return bound

    def stop(self) -> None:
        self._versions.stop()
        self._faults.clear()
        self._down()
        self._control_server.stop(0).wait()

    def _order(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return json.dumps(self._obey(json.loads(data))).encode()
        except StatusError as error:
            return context.abort(error.code, error.message)
        except (ValueError, TypeError) as error:
            return context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _obey(self, order: dict[str, Any]) -> Any:
        match order:
            case {"fault": kind, **rest}:
                self._faults.order(Fault(kind, **rest))
            case {"clear": True}:
                self._faults.clear()
            case {"stalled": True}:
                return self._faults.stalled
            case {"requests": True}:
                seen, self._services.requests[:] = list(self._services.requests), []
                return seen
            case {"poll": True}:
                self._versions.poll()
            case {"label": label, "version": version}:
                self._label(label, version)
            case {"down": True}:
                self._down()
            case {"up": True}:
                self._server = self._server or self._listen()
            case {"kill": True}:
                os._exit(9)
            case _:
                raise ValueError(f"expected an order of those above, found {sorted(order)}")
        return None

    def _down(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def _label(self, label: str, version: int) -> None:
        config = model_server_config_pb2.ModelServerConfig()
        for each in self._versions.configured():
            config.model_config_list.config.add().CopyFrom(each)
            config.model_config_list.config[-1].version_labels[label] = version
        self._versions.reload(config)
