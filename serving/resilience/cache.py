"""Answers of the model, kept for the same turn of the same conversation. Off unless an operator wants it.

What is kept is which positions the model copied, under a hash of the arrays that it read: a model sees nothing else, so
equal arrays have equal answers, whatever the tokenizer had to straighten to get there. No text is kept, and each
conversation gets its own characters and spans. Trouble is never kept, nor is an answer that cannot be read.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rewriter.features import ARRAY_NAMES, Source
from serving.backend import BackendError, BackendTimeout, Prediction, ServedModel, all_of
from serving.resilience.observing import NoObserver, Observer
from serving.resilience.settings import CacheSettings


@dataclass(frozen=True)
class _Entry:
    prediction: Prediction
    expires: float


class PredictionCache:
    """Goes around models: ``cache.around(served)``. ``clock`` is in seconds."""

    def __init__(
        self, settings: CacheSettings, observer: Observer | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._observer = observer or NoObserver()
        self._clock = clock
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._on_their_way: dict[bytes, asyncio.Future[Prediction]] = {}

    def around(self, served: ServedModel) -> ServedModel:
        return ServedModel(served.features, served.model, partial(self._predict, served))

    async def _predict(
        self, served: ServedModel, sources: Sequence[Source], *, beam: bool, timeout_seconds: float
    ) -> list[Prediction]:
        deadline = self._clock() + timeout_seconds
        return await all_of([self._one(served, source, beam, deadline) for source in sources])

    async def _one(self, served: ServedModel, source: Source, beam: bool, deadline: float) -> Prediction:
        key = _key(served, source, beam)
        kept = self._get(key)
        on_its_way = self._on_their_way.get(key)
        self._observer.cache_asked("hit" if kept else "joined" if on_its_way else "miss")
        while kept is None and on_its_way is not None:
            kept = await self._join(on_its_way, deadline) or self._get(key)
            on_its_way = self._on_their_way.get(key)
        return kept or await self._ask(served, source, key, beam, deadline)

    async def _ask(self, served: ServedModel, source: Source, key: bytes, beam: bool, deadline: float) -> Prediction:
        """Whoever asks the same meanwhile gets the same answer, or the same trouble."""
        first: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._on_their_way[key] = first
        try:
            seconds = deadline - self._clock()
            [prediction] = await served.predict([source], beam=beam, timeout_seconds=seconds)
        except BackendError as error:
            first.set_exception(error)
            first.exception()  # nobody may have joined
            raise
        else:
            first.set_result(prediction)
            self._keep(served, source, key, prediction)
            return prediction
        finally:
            first.cancel()
            del self._on_their_way[key]

    async def _join(self, first: "asyncio.Future[Prediction]", deadline: float) -> Prediction | None:
        """None if the first one had less time than it took: its trouble is not ours."""
        done, _ = await asyncio.wait([first], timeout=deadline - self._clock())
        if not done:
            raise BackendTimeout("the same turn was on its way, and not answered in time")
        if first.cancelled() or isinstance(first.exception(), BackendTimeout):
            return None
        return first.result()

    def _get(self, key: bytes) -> Prediction | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._clock() >= entry.expires:
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return entry.prediction

    def _keep(self, served: ServedModel, source: Source, key: bytes, prediction: Prediction) -> None:
        if prediction.answered_by is not None or not _is_readable(served, source, prediction):
            return
        self._entries[key] = _Entry(prediction, self._clock() + self._settings.ttl_seconds)
        self._entries.move_to_end(key)
        while len(self._entries) > self._settings.max_entries:
            self._entries.popitem(last=False)
        self._observer.cache_holds(len(self._entries))

    def _remove(self, key: bytes) -> None:
        del self._entries[key]
        self._observer.cache_holds(len(self._entries))


def _key(served: ServedModel, source: Source, beam: bool) -> bytes:
    model = served.model
    digest = hashlib.sha256(repr((model.name, model.version, model.vocabulary_fingerprint, beam)).encode())
    for name in ARRAY_NAMES:
        array = getattr(source, name)
        digest.update(repr(array.shape).encode())
        digest.update(array.tobytes())
    return digest.digest()


def _is_readable(served: ServedModel, source: Source, prediction: Prediction) -> bool:
    """False where ``rewriting`` would pass the turn through."""
    best = prediction.hypotheses[0]
    if not best.finished:
        return False
    try:
        return bool(served.features.rewrite(source, best.positions, best.log_prob).text)
    except ValueError:
        return False
