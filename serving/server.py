"""Start and stop in the order an operator expects: listening, model warm, SERVING; NOT_SERVING, drained, closed."""

import asyncio
import logging
import os
import signal
import sys

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from serving.artefact import Manifest, load_features, load_manifest, newest_version
from serving.backend import Backend
from serving.config import ServerSettings
from serving.embedded import EmbeddedBackend
from serving.interceptors import CallInterceptor
from serving.pb import rewriter_pb2 as pb
from serving.pb.rewriter_pb2_grpc import add_RewriterServiceServicer_to_server
from serving.rewriting import Rewriting
from serving.servicer import RewriterServicer

_LOGGER = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["RewriterService"].full_name
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class FrontServer:
    """The rewriter, health and reflection on one port. ``start``, ``warm_up``, ``stop``, once each."""

    def __init__(self, settings: ServerSettings, backend: Backend, rewriting: Rewriting, manifest: Manifest) -> None:
        self._settings = settings
        self._backend = backend
        self._rewriting = rewriting
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(interceptors=[CallInterceptor()], options=_options(settings))
        servicer = RewriterServicer(rewriting, settings)
        add_RewriterServiceServicer_to_server(servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> int:
        """Listens and returns the port. Until the model is warm, turns are passed through and health is NOT_SERVING."""
        await self._set_health(_NOT_SERVING)
        port = self._server.add_insecure_port(f"{_bracketed(self._settings.host)}:{self._settings.port}")
        await self._server.start()
        return int(port)

    async def warm_up(self) -> None:
        """Loads the model and has it answer once; only then is health SERVING. Raises BackendError."""
        await self._backend.start()
        await self._rewriting.warm_up(self._settings.warm_up_timeout_seconds)
        await self._set_health(_SERVING)

    async def stop(self) -> None:
        """Turns health off, finishes the calls in flight (within the grace), then closes the model."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._settings.shutdown_grace_seconds)
        await self._backend.close()

    async def _set_health(self, status: int) -> None:
        for service in ("", SERVICE):
            await self._health.set(service, status)


def create(settings: ServerSettings) -> FrontServer:
    """A server of the newest version in ``model_dir``; raises ValueError or OSError if there is none to read."""
    version_dir = newest_version(settings.model_dir)
    manifest = load_manifest(version_dir)
    backend = EmbeddedBackend(
        version_dir,
        manifest.fingerprint,
        max_batch_size=settings.max_batch_size,
        max_queue_size=settings.max_queue_size,
    )
    rewriting = Rewriting(
        load_features(version_dir),
        backend,
        manifest.model,
        default_deadline_seconds=settings.default_deadline_seconds,
        deadline_margin_seconds=settings.deadline_margin_seconds,
    )
    return FrontServer(settings, backend, rewriting, manifest)


async def serve(settings: ServerSettings) -> None:
    """Serves until SIGTERM or SIGINT."""
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    server = create(settings)
    _LOGGER.info("listening on %s:%d", settings.host, await server.start())
    warming_up = asyncio.ensure_future(server.warm_up())
    stopping = asyncio.ensure_future(told_to_stop.wait())
    try:
        await asyncio.wait({warming_up, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            await warming_up
            _LOGGER.info("serving")
        await stopping
        _LOGGER.info("stopping")
    finally:
        warming_up.cancel()
        stopping.cancel()
        await server.stop()


def run(settings: ServerSettings) -> None:
    """Serves until told to stop; logs one line per event to standard error. What the command line calls."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # Read by TensorFlow when it starts: the operations of a turn are so small that sharing them out costs more.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    asyncio.run(serve(settings))


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", int(settings.reuse_port)),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)),
        # A client may ping as often as ours does; the default of gRPC would cut it off.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
