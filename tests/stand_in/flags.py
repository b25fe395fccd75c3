"""The flags. Their names and defaults are TF Serving's, except for those that start with ``stand_in``."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Flags:
    port: int
    model_name: str
    model_base_path: str
    model_config_file: str
    enable_batching: bool
    batching_parameters_file: str
    allow_version_labels_for_unavailable_models: bool
    file_system_poll_wait_seconds: float
    grpc_channel_arguments: str
    grpc_max_threads: int
    stand_in_control_port: int
    stand_in_load_seconds: float


def parse(arguments: Sequence[str]) -> Flags:
    parser = argparse.ArgumentParser("stand_in", description="Answers like tensorflow_model_server; see the package.")
    parser.add_argument("--port", type=int, default=8500, help="0 picks a free one")
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--model_base_path", "--model-dir", default="", help="holds numbered version folders")
    parser.add_argument("--model_config_file", default="", help="a ModelServerConfig as text, instead of the two above")
    parser.add_argument("--enable_batching", type=_boolean, nargs="?", const=True, default=False)
    parser.add_argument("--batching_parameters_file", default="")
    parser.add_argument(
        "--allow_version_labels_for_unavailable_models", type=_boolean, nargs="?", const=True, default=False
    )
    parser.add_argument("--file_system_poll_wait_seconds", type=float, default=1.0)
    parser.add_argument("--grpc_channel_arguments", default="", help="key=value,key=value")
    parser.add_argument("--grpc_max_threads", type=int, default=16)
    parser.add_argument("--stand_in_control_port", type=int, default=0, help="where faults are ordered; 0 picks one")
    parser.add_argument("--stand_in_load_seconds", type=float, default=0.0, help="added to every load")
    flags = Flags(**vars(parser.parse_args(arguments)))
    if not flags.model_base_path and not flags.model_config_file:
        parser.error("expected --model_base_path or --model_config_file, found neither")
    return flags


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"expected true or false, found {text!r}")
    return text.lower() == "true"
