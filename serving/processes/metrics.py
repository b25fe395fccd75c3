"""What all workers measure, added up, on the one port that Prometheus asks."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from serving.config import MetricsSettings
from serving.metrics import exposed as registry_exposed

# Workers write what they measure to files in this folder.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class WorkerMetrics:
    """A ``supervisor.Observer``. ``folder`` is what the workers find in FOLDER_VARIABLE."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = CollectorRegistry()
        MultiProcessCollector(self.registry, path=str(folder))  # type: ignore[no-untyped-call]
        self._running = Gauge("rewriter_workers", "Server processes that run now.", registry=self.registry)
        self._ends = Counter("rewriter_worker_ends", "Server processes that ended.", registry=self.registry)

    def started(self, pid: int) -> None:
        self._running.inc()

    def ended(self, pid: int) -> None:
        self._running.dec()
        self._ends.inc()
        mark_process_dead(pid, str(self.folder))  # type: ignore[no-untyped-call]


@contextmanager
def exposed(settings: MetricsSettings) -> Iterator[tuple[WorkerMetrics, str | None]]:
    """The metrics, and the address where they are; None if they are switched off. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="rewriter-metrics-") as folder:
        metrics = WorkerMetrics(Path(folder))
        with registry_exposed(metrics.registry, settings) as address:
            yield metrics, address
