"""``rewriter serve --workers N``: a supervisor with real processes, signals and a port."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.config import ServerSettings
from serving.logs import configure
from serving.processes.metrics import FOLDER_VARIABLE, WorkerMetrics, exposed
from serving.processes.supervisor import Process, Supervisor

_LOGGER = logging.getLogger(__name__)

# A worker's own waiting is bounded; this is for what it does around it.
_MARGIN_SECONDS = 5.0


def run(settings: ServerSettings, flags: Mapping[str, Any], config_file: Path | None) -> int:
    """Returns the status to end with. ``flags`` and ``config_file`` are where the settings came from."""
    configure(settings.log)
    return asyncio.run(_supervise(settings, flags, config_file))


async def _supervise(settings: ServerSettings, flags: Mapping[str, Any], config_file: Path | None) -> int:
    with exposed(settings.metrics) as (metrics, address), _port(settings) as port:
        if address:
            _LOGGER.info("metrics on %s", address)
        supervisor = Supervisor(
            settings.workers,
            _Starter({**flags, "port": port}, config_file, metrics).start,
            metrics,
            stop_seconds=_stop_seconds(settings),
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        loop.add_signal_handler(signal.SIGHUP, supervisor.tell, signal.SIGHUP)
        return await supervisor.run()


class _Starter:
    def __init__(self, flags: Mapping[str, Any], config_file: Path | None, metrics: WorkerMetrics) -> None:
        sources = {"flags": dict(flags), "config": None if config_file is None else str(config_file)}
        self._command = [sys.executable, "-m", "serving.processes.worker", json.dumps(sources, default=str)]
        self._environment = {**os.environ, FOLDER_VARIABLE: str(metrics.folder)}

    async def start(self, number: int) -> Process:
        # The pipe is how a worker learns that its supervisor is gone. It has a session of its own: Ctrl-C is for us.
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, env=self._environment, start_new_session=True
        )


@contextmanager
def _port(settings: ServerSettings) -> Iterator[int]:
    """A port that all workers can listen on: where the settings leave it open, one that is kept free for them."""
    if settings.port:
        yield settings.port
        return
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind((settings.host, 0))
        yield kept.getsockname()[1]


def _stop_seconds(settings: ServerSettings) -> float:
    resilience = settings.resilience
    waits = (resilience.drain_delay_seconds, settings.shutdown_grace_seconds, resilience.close_seconds)
    return sum(waits) + _MARGIN_SECONDS
