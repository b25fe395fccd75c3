"""The backend for one address of TF Serving."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rewriter.features import Source, collate
from rewriter.length_signatures import length_signature
from serving.backend import BackendUnavailable, ModelChanged, Prediction, ServedModel, all_of
from serving.signatures import BEAM, GREEDY, read_predictions
from serving.tf_serving.batches import FrontBatches, Observe
from serving.tf_serving.buckets import pad_rows
from serving.tf_serving.catalogue import Catalogue, Version
from serving.tf_serving.endpoint import Endpoint
from serving.tf_serving.routes import Route, canary_route, is_on_trial, stable_route
from serving.tf_serving.settings import TFServingSettings
from serving.tf_serving.statuses import VersionGone
from serving.tf_serving.tensors import to_arrays
from serving.tf_serving.watching import Watcher, wait_until_ready


@dataclass(frozen=True)
class _Question:
    """What sources of one batch have in common; ``length`` is what they are padded to."""

    route: Route
    version: Version
    beam: bool
    length: int


class AddressBackend:
    """See ``serving.backend.Backend``; and ``serving`` says which model a conversation gets.

    ``initial`` stands for the model until the server has told which one it serves.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        catalogue: Catalogue,
        initial: Version,
        settings: TFServingSettings,
        observe: Observe,
    ) -> None:
        self._endpoint = endpoint
        self._initial = initial
        self._settings = settings
        self._stable = stable_route(settings)
        self._canary = canary_route(settings)
        self._routes = [self._stable, *([self._canary] if self._canary else [])]
        self._watcher = Watcher(endpoint, catalogue, self._routes, settings)
        self._batches: FrontBatches[_Question] = FrontBatches(
            self._ask, lambda question: question.version.buckets.batch_sizes[-1], settings.max_queue_size, observe
        )
        self._observer = observe(1)  # of calls with one source each, where the server makes the batches
        self._calls = 0  # of this kind, now

    @property
    def address(self) -> str:
        return self._endpoint.address

    @property
    def ready(self) -> bool:
        """True if the server answered the last poll and serves a model that fits."""
        return self._watcher.ready

    async def start(self) -> None:
        """Waits for the server as long as it takes; raises BackendUnavailable if what it serves does not fit."""
        self._watcher.start()
        await wait_until_ready(self._watcher, self._stable)

    def serving(self, conversation_id: str) -> ServedModel:
        """Never raises; asking a model that is not there does."""
        if self._canary is None or self._canary.version is None:
            return self._served(self._stable, self._stable.version)
        on_trial = is_on_trial(conversation_id, self._settings.canary_percent)
        route = self._canary if on_trial else self._stable
        return self._served(route, route.version)

    def try_canary_on(self, percent: float) -> None:
        """From now on, or as soon as its version has been found. Without a label there is nothing to try."""
        self._settings = self._settings.model_copy(update={"canary_percent": percent})
        if self._canary is None and self._settings.canary_label and (route := canary_route(self._settings)):
            self._canary = route
            self._routes.append(route)

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        return await self.serving("").predict(sources, beam=beam, timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        await self._batches.close()
        await self._watcher.stop()
        await self._endpoint.close()

    def _served(self, route: Route, version: Version | None) -> ServedModel:
        shown = version or self._initial
        return ServedModel(shown.features, shown.model, partial(self._predict, route, version))

    async def _predict(
        self,
        route: Route,
        version: Version | None,
        sources: Sequence[Source],
        *,
        beam: bool,
        timeout_seconds: float,
    ) -> list[Prediction]:
        if version is None:
            if route.version is not None:
                raise ModelChanged("the first model has just arrived")
            raise BackendUnavailable(str(route.trouble))
        questions = [_Question(route, version, beam, version.buckets.length_for(len(source))) for source in sources]
        predict = self._ask_alone if self._settings.batching == "server" else self._batches.predict
        return await all_of([predict(q, s, timeout_seconds) for q, s in zip(questions, sources, strict=True)])

    async def _ask_alone(self, question: _Question, source: Source, timeout_seconds: float) -> Prediction:
        started = time.perf_counter()
        self._count_call(1)
        try:
            [prediction] = await self._ask(question, [source], timeout_seconds)
        finally:
            self._count_call(-1)
            seconds = time.perf_counter() - started
            self._observer.batch_ended(1, seconds)
        self._observer.item_ended(0.0, seconds)
        return prediction

    def _count_call(self, change: int) -> None:
        # Which of them the server works on and which wait in its queue, it does not tell.
        self._calls += change
        self._observer.waiting(self._calls)

    async def _ask(self, question: _Question, sources: Sequence[Source], timeout_seconds: float) -> list[Prediction]:
        """Asks for the sources in one call, padded to sizes that the model was warmed up with."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        signature = BEAM if question.beam else GREEDY
        arrays = collate(sources, question.length)
        rows = len(sources)
        if self._settings.batching == "server":
            signature = length_signature(signature, question.length)
        else:
            rows = question.version.buckets.batch_size_for(len(sources))
            if rows > len(sources):
                arrays = pad_rows(arrays, rows)
        try:
            response = await self._endpoint.predict(question.route.asked, signature, arrays, timeout_seconds)
        except VersionGone:
            await self._look(deadline)
            raise ModelChanged("the version of the model is no longer served") from None
        outputs = to_arrays(response.outputs)
        answered_by = await self._answered_by(question, response.model_spec.version.value, deadline)
        predictions = read_predictions(
            outputs,
            beam=question.beam,
            batch_size=rows,
            fingerprint=question.version.manifest.fingerprint,
        )
        return [Prediction(each.hypotheses, answered_by) for each in predictions[: len(sources)]]

    async def _answered_by(self, question: _Question, number: int, deadline: float) -> ServedModel | None:
        """None if the expected version answered. Raises ModelChanged if the one that did reads other arrays."""
        if number == question.version.number:
            return None
        version = self._watcher.known(number)
        if version is not None and version.reads_as(question.version):
            return self._served(question.route, version)
        await self._look(deadline)
        raise ModelChanged("another version of the model answered")

    async def _look(self, deadline: float) -> None:
        """Others of this length wait for the batch: a look that takes longer goes on without it."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._watcher.look()
