"""``python -m tests.stand_in --model_base_path DIR``; see the package. Says where it listens on standard output."""

import logging
import signal
import sys
import threading
from pathlib import Path

import grpc
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from .batching import BatchingParameters
from .control import Control
from .faults import Faults
from .flags import Flags, parse
from .predicting import Predictor
from .services import Services, start_server
from .versions import Versions


def main(flags: Flags) -> None:
    versions = Versions(
        labels_may_wait=flags.allow_version_labels_for_unavailable_models, load_seconds=flags.stand_in_load_seconds
    )
    # TF Serving, too, listens only once everything is loaded.
    versions.reload(_config(flags))
    faults = Faults()
    services = Services(versions, Predictor(_batching(flags)), faults)
    port = flags.port

    def listen() -> grpc.Server:
        nonlocal port
        server, port = start_server(services, port, flags.grpc_max_threads, flags.grpc_channel_arguments)
        return server

    control = Control(services, versions, faults, listen)
    control_port = control.start(flags.stand_in_control_port)
    if flags.file_system_poll_wait_seconds > 0:
        threading.Thread(target=versions.poll_every, args=(flags.file_system_poll_wait_seconds,), daemon=True).start()
    print(f"stand-in listening on 127.0.0.1:{port} control 127.0.0.1:{control_port}", flush=True)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
    control.stop()


def _config(flags: Flags) -> ModelServerConfig:
    config = ModelServerConfig()
    if flags.model_config_file:
        text_format.Parse(Path(flags.model_config_file).read_text(encoding="utf-8"), config)
    else:
        config.model_config_list.config.add(
            name=flags.model_name, base_path=flags.model_base_path, model_platform="tensorflow"
        )
    return config


def _batching(flags: Flags) -> BatchingParameters | None:
    if not flags.enable_batching:
        return None
    file = flags.batching_parameters_file
    return BatchingParameters.read(Path(file)) if file else BatchingParameters()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    main(parse(sys.argv[1:]))
