"""The server under test: the stand-in or, by the environment, any TF Serving that shares a folder with the tests."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from saved_models import write_model
from stand_in.copying import copy_version
from stand_in.process import StandIn, running_stand_in
from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from rewriter.length_signatures import add_length_signatures
from serving.tf_serving.buckets import SIGNATURES, batching_parameters
from serving.tf_serving.catalogue import Catalogue

PREFIX = "REWRITER_CONFORMANCE_"
WAIT_SECONDS = 60
AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE


@dataclass
class Target:
    """``model_dir`` is the folder of versions as the tests see it, ``base_path`` as the server does."""

    address: str
    model_name: str
    model_dir: Path
    base_path: str
    stand_in: StandIn | None = None
    _first: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(self.address, options)
        self.prediction = PredictionServiceStub(self.channel)
        self.models = ModelServiceStub(self.channel)
        self._first = self.on_disk()

    def on_disk(self) -> set[int]:
        return {int(path.name) for path in self.model_dir.iterdir() if path.name.isdecimal()}

    def available(self) -> set[int]:
        return {number for number, state in self.states().items() if state == AVAILABLE}

    def states(self) -> dict[int, int]:
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = self.model_name
        response = self.models.GetModelStatus(request, timeout=WAIT_SECONDS)
        return {each.version: each.state for each in response.model_version_status}

    def configure(self, **labels: int) -> None:
        """Serves every version in the folder, under these labels. Raises grpc.RpcError if the server refuses."""
        request = model_management_pb2.ReloadConfigRequest()
        model = request.config.model_config_list.config.add(
            name=self.model_name, base_path=self.base_path, model_platform="tensorflow"
        )
        model.model_version_policy.all.SetInParent()
        for label, version in labels.items():
            model.version_labels[label] = version
        self.models.HandleReloadConfigRequest(request, timeout=WAIT_SECONDS)

    def add_version(self, write: Callable[[Path, int], None] | None = None) -> int:
        """Adds the next version, by default a copy of the newest, and waits until it answers. Returns its number."""
        number = max(self.on_disk()) + 1
        partial = self.model_dir.parent / f"{self.model_dir.name}-partial"
        shutil.rmtree(partial, ignore_errors=True)
        (write or self._copy_newest)(partial, number)
        (partial / str(number)).rename(self.model_dir / str(number))
        self.wait_for(self.available() | {number})
        return number

    def remove_version(self, number: int) -> None:
        """Waits until it no longer answers."""
        shutil.rmtree(self.model_dir / str(number))
        self.wait_for(self.available() - {number})

    def wait_for(self, versions: set[int]) -> None:
        """Until exactly these answer: TF Serving looks once a second, the stand-in when told to."""
        if self.stand_in:
            self.stand_in.order(poll=True)
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := self.available()) != versions:
            assert time.monotonic() < deadline, f"expected the versions {versions}, found {found}"
            time.sleep(0.1)

    def reset(self) -> None:
        """As it was at first."""
        if self.stand_in:
            self.stand_in.order(clear=True)
            self.stand_in.order(up=True)
            self.stand_in.order(requests=True)
        for number in self.on_disk() - self._first:
            shutil.rmtree(self.model_dir / str(number))
        self.configure()
        self.wait_for(self._first)

    def _copy_newest(self, folder: Path, number: int) -> None:
        copy_version(self.model_dir / str(max(self.on_disk())), folder / str(number))


def write_tiny(folder: Path, number: int, *, length_signatures: bool = True, **changes: Any) -> None:
    """A tiny model with the signatures of an exported one, and those for each length."""
    write_model(folder, version=number, **changes)
    if length_signatures:
        lengths = Catalogue(folder).load(number).buckets.lengths
        add_length_signatures(folder / str(number), SIGNATURES, lengths)


def write_batching_parameters(model_dir: Path, path: Path) -> None:
    """With one thread and a long wait, what is sent together is batched together."""
    buckets = Catalogue(model_dir).newest().buckets
    text = batching_parameters(buckets, num_batch_threads=1, batch_timeout_micros=300_000)
    path.write_text(text, encoding="utf-8")


@contextmanager
def target_from_environment(folder: Path, *, batching: bool) -> Iterator[Target | None]:
    """None where the environment names a target, but none with batching."""
    address = os.environ.get(PREFIX + ("BATCHING_TARGET" if batching else "TARGET"))
    if address or os.environ.get(PREFIX + "TARGET"):
        yield _external(address) if address else None
        return
    model_dir = folder / "rewriter"
    write_tiny(model_dir, 1)
    flags = []
    if batching:
        write_batching_parameters(model_dir, folder / "batching.txt")
        flags = ["--enable_batching", f"--batching_parameters_file={folder / 'batching.txt'}"]
    with running_stand_in(model_dir, *flags) as stand_in:
        yield Target(stand_in.address, "rewriter", model_dir, str(model_dir), stand_in)


def _external(address: str) -> Target:
    name = os.environ.get(PREFIX + "MODEL_NAME", "rewriter")
    folder = os.environ.get(PREFIX + "MODEL_DIR")
    assert folder, f"expected {PREFIX}MODEL_DIR, the folder of versions that {address} serves, found nothing"
    return Target(address, name, Path(folder), os.environ.get(PREFIX + "BASE_PATH", f"/models/{name}"))
