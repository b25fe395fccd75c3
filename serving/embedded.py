"""The model in this process: a SavedModel run by TensorFlow on a thread of its own, in batches."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewriter.features import Source, collate
from serving.backend import BackendOverloaded, BackendTimeout, BackendUnavailable, Prediction, all_of
from serving.batching import Batcher, BatcherClosed, BatchObserver, DeadlinePassed, QueueFull
from serving.logs import stack_of
from serving.model_thread import ModelThread
from serving.signatures import BEAM, GREEDY, INPUTS, OUTPUTS, read_predictions

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Job:
    source: Source
    beam: bool


class EmbeddedBackend:
    """Runs the SavedModel in ``version_dir``; every answer must carry ``fingerprint``.

    A model that hangs is left behind ``close_seconds`` after ``close``.
    """

    def __init__(
        self,
        version_dir: Path,
        fingerprint: int,
        *,
        max_batch_size: int,
        max_queue_size: int,
        observer: BatchObserver | None = None,
        close_seconds: float = 5.0,
    ) -> None:
        self._version_dir = version_dir
        self._fingerprint = fingerprint
        self._signatures: dict[str, Callable[..., dict[str, Any]]] = {}
        # One thread: two batches at once only slow each other.
        self._thread = ModelThread()
        self._close_seconds = close_seconds
        self._batcher: Batcher[_Job, Prediction] = Batcher(
            self._run_on_thread,
            _kind_of,
            max_batch_size=max_batch_size,
            max_queue_size=max_queue_size,
            observer=observer,
        )

    @property
    def busy_seconds(self) -> float:
        """How long the model has been at what it does now."""
        return self._thread.busy_seconds

    async def start(self) -> None:
        await self._thread.run(self._load)

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        if not self._signatures:
            raise BackendUnavailable("the model is not loaded yet")
        try:
            return await all_of([self._batcher.submit(_Job(source, beam), timeout_seconds) for source in sources])
        except QueueFull:
            raise BackendOverloaded("too many turns are waiting for the model") from None
        except DeadlinePassed:
            raise BackendTimeout("the model did not answer in time") from None
        except BatcherClosed:
            raise BackendUnavailable("the server is stopping") from None

    async def close(self) -> None:
        if not await self._batcher.close(self._close_seconds):
            _LOGGER.error("the model has been at one batch for %.0f s and is left behind", self.busy_seconds)
        self._thread.close()

    def _load(self) -> None:
        try:
            import tensorflow as tf

            # The signatures hold their model weakly, so it is kept with them.
            self._model = tf.saved_model.load(str(self._version_dir))
        except Exception as error:
            raise BackendUnavailable(f"{self._version_dir}: {error}") from error
        for name in (GREEDY, BEAM):
            _check_signature(self._version_dir, self._model.signatures, name)
        self._signatures = dict(self._model.signatures)

    async def _run_on_thread(self, jobs: Sequence[_Job]) -> list[Prediction]:
        return await self._thread.run(self._run, jobs)

    def _run(self, jobs: Sequence[_Job]) -> list[Prediction]:
        import tensorflow as tf

        beam = jobs[0].beam
        arrays = collate([job.source for job in jobs])
        try:
            tensors = self._signatures[BEAM if beam else GREEDY](**{k: tf.constant(v) for k, v in arrays.items()})
            outputs = {name: tensor.numpy() for name, tensor in tensors.items()}
        except Exception as error:
            # Without TensorFlow's message: it may quote the numbers, which stand for words.
            kind, facts = type(error).__name__, {"stack": stack_of(error)}
            _LOGGER.error("the model failed on a batch of %d: %s", len(jobs), kind, extra={"facts": facts})
            raise BackendUnavailable(f"the model failed: {kind}") from error
        return read_predictions(outputs, beam=beam, batch_size=len(jobs), fingerprint=self._fingerprint)


def _kind_of(job: _Job) -> tuple[bool, int]:
    """Sources of one batch differ by less than a factor of two in length, so that little time goes into padding."""
    return job.beam, len(job.source).bit_length()


def _check_signature(version_dir: Path, signatures: Any, name: str) -> None:
    if name not in signatures:
        raise BackendUnavailable(f"{version_dir}: expected a signature {name!r}, found {sorted(signatures)}")
    inputs = set(signatures[name].structured_input_signature[1])
    outputs = set(signatures[name].structured_outputs)
    if inputs != INPUTS or not outputs >= OUTPUTS[name]:
        raise BackendUnavailable(
            f"{version_dir}: expected {name!r} to turn {sorted(INPUTS)} into {sorted(OUTPUTS[name])}, "
            f"found {sorted(inputs)} into {sorted(outputs)}"
        )
