"""Start and stop in the order an operator expects: listening, model warm, SERVING; NOT_SERVING, drained, closed."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rewriter import __version__
from serving.access import Access
from serving.backend import Backend, BackendError, BackendOverloaded, BackendTimeout, BackendUnreachable
from serving.backends import guarded_model
from serving.call import Observability
from serving.config import ServerSettings
from serving.draining import Drain
from serving.health import SERVICE, AlwaysUsable, Health, HealthWatch, ModelState
from serving.interceptors import CallInterceptor
from serving.logs import configure, log_loop_errors
from serving.metrics import Metrics, exposed
from serving.pb.rewriter_pb2_grpc import add_RewriterServiceServicer_to_server
from serving.reloading import Reloading
from serving.rewriting import Rewriting
from serving.servicer import RewriterServicer
from serving.tls import Certificate, server_credentials
from serving.tracing import connect

_LOGGER = logging.getLogger(__name__)

_CLOSE_MARGIN_SECONDS = 1.0
_WARM_UP_PAUSE_SECONDS = 1.0

Load = Callable[[], ServerSettings]


class ModelStuck(Exception):
    """The model of this process will not answer any more."""


class FrontServer:
    """The rewriter, health and reflection on one port. ``start``, ``warm_up``, ``stop``, once each."""

    def __init__(
        self,
        settings: ServerSettings,
        backend: Backend,
        rewriting: Rewriting,
        observability: Observability | None = None,
        model_state: ModelState | None = None,
    ) -> None:
        """Raises OSError or ValueError if the files of the settings cannot be used."""
        self._settings = settings
        self._backend = backend
        self._rewriting = rewriting
        self.observability = observability or Observability()
        access = Access(settings.auth, settings.rate_limit, self.observability.metrics)
        # What can change while serving, for ``reloading``.
        self.on_reload: dict[str, Callable[[ServerSettings], None]] = {
            "log.level": lambda new: logging.getLogger().setLevel(new.log.level),
            "rate_limit": lambda new: access.limit_rates(new.rate_limit),
        }
        self._drain = Drain()
        health_servicer = Health(self._drain)
        self.health = HealthWatch(health_servicer, settings.resilience.health, model_state or AlwaysUsable())
        self._watching: asyncio.Task[None] | None = None
        interceptor = CallInterceptor(
            self.observability,
            access,
            self._drain,
            max_message_bytes=settings.max_message_bytes,
            max_turns=settings.max_batch_items,
            receive_seconds=settings.resilience.receive_seconds,
        )
        self._server = grpc.aio.server(interceptors=[interceptor], options=_options(settings))
        add_RewriterServiceServicer_to_server(RewriterServicer(rewriting, settings), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(health_servicer, self._server)
        if settings.reflection:
            reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> int:
        """Listens and returns the port. Until the model is warm, turns are passed through and health is NOT_SERVING."""
        self._watching = asyncio.create_task(self.health.keep())
        address = f"{_bracketed(self._settings.host)}:{self._settings.port}"
        if self._settings.tls.enabled:
            port = self._server.add_secure_port(address, self._credentials())
        else:
            port = self._server.add_insecure_port(address)
        await self._server.start()
        return int(port)

    async def warm_up(self) -> None:
        """Loads the model and has it answer; only then is health SERVING. Raises BackendError if it never will."""
        await self._backend.start()
        await self._first_answers()
        model = self._rewriting.model
        self.observability.metrics.add_model(model.name, model.version, model.vocabulary_fingerprint)
        self.health.warm = True
        self.health.look()

    async def _first_answers(self) -> None:
        """Trouble that passes is waited for."""
        while True:
            try:
                return await self._rewriting.warm_up(self._settings.warm_up_timeout_seconds)
            except (BackendOverloaded, BackendTimeout, BackendUnreachable) as error:
                _LOGGER.warning("the model is not warm yet: %s", error)
            self.health.look_for_hang()
            await asyncio.sleep(_WARM_UP_PAUSE_SECONDS)

    async def stop(self) -> None:
        """Turns health off, lets calls and streams end (within the grace), then closes the model."""
        self.health.stopping = True
        self.health.look()
        await asyncio.sleep(self._settings.resilience.drain_delay_seconds)
        self._drain.begin()
        await self._server.stop(self._settings.shutdown_grace_seconds)
        if self._watching is not None:
            self._watching.cancel()
        await self._close_backend()
        # Sends the last spans, which may take as long as the collector does.
        await asyncio.to_thread(self.observability.tracing.shut_down)

    async def _close_backend(self) -> None:
        try:
            async with asyncio.timeout(self._settings.resilience.close_seconds + _CLOSE_MARGIN_SECONDS):
                await self._backend.close()
        except TimeoutError:
            _LOGGER.error("the backend did not close in time and is left behind")

    def _credentials(self) -> grpc.ServerCredentials:
        metrics = self.observability.metrics

        def note(certificate: Certificate) -> None:
            metrics.set_later(
                "certificate_not_after_timestamp_seconds",
                "When the server's certificate ends.",
                certificate.not_after.timestamp(),
            )

        failed = metrics.reload_failures.labels("certificate").inc
        return server_credentials(self._settings.tls, on_certificate=note, on_failure=failed)


def create(settings: ServerSettings) -> FrontServer:
    """A server of the models in ``model_dir``; raises ValueError or OSError if there is none to begin with."""
    observability = Observability(Metrics(), connect(settings.tracing, __version__))
    guarded = guarded_model(settings, observability.metrics)
    rewriting = Rewriting(
        guarded.choose,
        default_deadline_seconds=settings.default_deadline_seconds,
        deadline_margin_seconds=settings.deadline_margin_seconds,
    )
    server = FrontServer(settings, guarded.pool, rewriting, observability, guarded)
    server.on_reload["tf_serving.canary_percent"] = lambda new: guarded.try_canary_on(new.tf_serving.canary_percent)
    return server


async def serve(settings: ServerSettings, load: Load | None = None, *, end_when_stuck: bool = False) -> None:
    """Serves until SIGTERM or SIGINT; with ``load``, SIGHUP has the settings read anew.

    Raises RuntimeError if the model cannot be used; ModelStuck, if it is asked to, once the model hangs for good.
    """
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    log_loop_errors(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    server = create(settings)
    if load is not None:
        loop.add_signal_handler(signal.SIGHUP, _reloading(settings, load, server).reload)
    with exposed(server.observability.metrics.registry, settings.metrics) as metrics_address:
        if metrics_address:
            _LOGGER.info("metrics on %s", metrics_address)
        _LOGGER.info("listening on %s:%d", settings.host, await server.start())
        await _serve_until(told_to_stop, server, end_when_stuck)


def _reloading(settings: ServerSettings, load: Load, server: FrontServer) -> Reloading:
    failed = server.observability.metrics.reload_failures.labels("settings").inc
    return Reloading(settings, load, server.on_reload, failed)


async def _serve_until(told_to_stop: asyncio.Event, server: FrontServer, end_when_stuck: bool) -> None:
    warming_up = asyncio.ensure_future(server.warm_up())
    stopping = asyncio.ensure_future(told_to_stop.wait())
    stuck = asyncio.ensure_future(server.health.stuck.wait())
    ends = {stopping, stuck} if end_when_stuck else {stopping}
    try:
        await asyncio.wait({warming_up, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if not any(end.done() for end in ends):
            await warming_up
            # What is loaded stays: a collection that looks through all of TensorFlow stops every call for 0.3 s.
            gc.freeze()
            _LOGGER.info("serving")
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        _LOGGER.info("stopping")
    except BackendError as error:
        raise RuntimeError(f"the model cannot be used: {error}") from None
    finally:
        for task in (warming_up, stopping, stuck):
            task.cancel()
        await server.stop()
    if not told_to_stop.is_set():
        raise ModelStuck("the model hangs, and only another process helps")


def run(settings: ServerSettings, load: Load | None = None, *, end_when_stuck: bool = False) -> None:
    """``serve`` in an event loop; logs one line per event to standard error. What the command line calls."""
    configure(settings.log)
    # Read by TensorFlow when it starts: the operations of a turn are so small that sharing them out costs more.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    asyncio.run(serve(settings, load, end_when_stuck=end_when_stuck))


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", int(settings.reuse_port)),
        # Larger than what is parsed: within it, the interceptor names the limit; beyond it, gRPC drops the message.
        ("grpc.max_receive_message_length", 2 * settings.max_message_bytes),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)),
        # Finds callers who are gone without a word, and whose streams would stay for ever.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # A client may ping as often as ours does; the default of gRPC would cut it off.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
