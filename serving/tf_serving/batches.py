"""The front's own batches: turns of one length that arrive while the server works go to it together next."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from rewriter.features import Source
from serving.backend import BackendOverloaded, BackendTimeout, BackendUnavailable, Prediction
from serving.batching import Batcher, BatcherClosed, BatchObserver, DeadlinePassed, QueueFull

Kind = TypeVar("Kind", bound=Hashable)

# Makes the observer of a queue, from its largest batch.
Observe = Callable[[int], BatchObserver]

# Kinds come and go with the versions of the model; the oldest queue is let go beyond so many.
_MAX_QUEUES = 64


@dataclass(frozen=True, eq=False)
class _Job:
    source: Source
    deadline: float  # by the loop's clock


class FrontBatches(Generic[Kind]):
    """A queue for each kind. ``run`` gets a kind, its sources, and the time that the most patient one has left.

    ``max_batch_size`` is asked once for each kind.
    """

    def __init__(
        self,
        run: Callable[[Kind, Sequence[Source], float], Awaitable[list[Prediction]]],
        max_batch_size: Callable[[Kind], int],
        max_queue_size: int,
        observe: Observe,
    ) -> None:
        self._run = run
        self._observe = observe
        self._max_batch_size = max_batch_size
        self._max_queue_size = max_queue_size
        self._queues: dict[Kind, Batcher[_Job, Prediction]] = {}

    async def predict(self, kind: Kind, source: Source, timeout_seconds: float) -> Prediction:
        """Raises what ``run`` raised, or a BackendError."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        try:
            return await self._queue(kind).submit(_Job(source, deadline), timeout_seconds)
        except QueueFull:
            raise BackendOverloaded("too many turns are waiting for TF Serving") from None
        except DeadlinePassed:
            raise BackendTimeout("TF Serving did not answer in time") from None
        except BatcherClosed:
            raise BackendUnavailable("the server is stopping") from None

    async def close(self) -> None:
        await asyncio.gather(*(queue.close() for queue in self._queues.values()))

    def _queue(self, kind: Kind) -> Batcher[_Job, Prediction]:
        if kind not in self._queues:
            if len(self._queues) >= _MAX_QUEUES:
                # Whoever still waits in it keeps it alive until it is empty.
                del self._queues[next(iter(self._queues))]
            max_batch_size = self._max_batch_size(kind)
            self._queues[kind] = Batcher(
                partial(self._run_jobs, kind),
                lambda job: None,
                max_batch_size=max_batch_size,
                max_queue_size=self._max_queue_size,
                observer=self._observe(max_batch_size),
            )
        return self._queues[kind]

    async def _run_jobs(self, kind: Kind, jobs: Sequence[_Job]) -> list[Prediction]:
        time_left = max(job.deadline for job in jobs) - asyncio.get_running_loop().time()
        return await self._run(kind, [job.source for job in jobs], time_left)
