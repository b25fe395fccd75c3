"""What the batches of a backend look like, for metrics, spans and the log."""

from serving.call import add_stages
from serving.metrics import Metrics


class BatchMetrics:
    """A ``batching.BatchObserver``; several queues of one server add up."""

    def __init__(self, metrics: Metrics, max_batch_size: int) -> None:
        self._metrics = metrics
        self._max_batch_size = max_batch_size
        self._waiting = 0

    def waiting(self, count: int) -> None:
        if count != self._waiting:
            self._metrics.queue_depth.inc(count - self._waiting)
            self._waiting = count

    def batch_ended(self, size: int, seconds: float) -> None:
        self._metrics.batch_fill.observe(size / self._max_batch_size)
        self._metrics.batch_seconds.observe(seconds)

    def item_ended(self, queue_seconds: float, run_seconds: float) -> None:
        add_stages(queue=queue_seconds, model=run_seconds)
