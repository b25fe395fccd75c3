"""A front service for tests: a real server on a free port, over a backend that does as it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import grpc
from saved_models import FEATURES, FINGERPRINT, VOCABULARY

from rewriter.features import Features, Source
from serving.artefact import Manifest
from serving.backend import Backend, Hypothesis, Prediction, ServedModel
from serving.call import Observability
from serving.config import ServerSettings
from serving.pb.rewriter_pb2_grpc import RewriterServiceStub
from serving.rewriting import Rewriting
from serving.server import FrontServer

MANIFEST = Manifest(
    name="fake",
    version="7",
    fingerprint=FINGERPRINT,
    vocabulary_fingerprint=VOCABULARY.fingerprint,
)


@lru_cache(maxsize=1)
def features() -> Features:
    return Features(FEATURES, VOCABULARY)


def hypothesis(positions: Sequence[int], *, log_prob: float = -0.5, finished: bool = True) -> Hypothesis:
    return Hypothesis(tuple(positions), log_prob, log_prob, finished)


def first_word_and_utterance(source: Source) -> Prediction:
    """The rewrite of the tiny model in ``saved_models``: the first word of the oldest turn, then the utterance."""
    first = next(i for i, place in enumerate(source.places) if place is not None)
    return Prediction((hypothesis([first, *source.utterance_positions]), hypothesis(source.utterance_positions)))


class FakeBackend:
    """Answers with ``answer(source)``, which may raise, once ``open`` is set; notes what it was asked."""

    def __init__(self, answer: Callable[[Source], Prediction] = first_word_and_utterance) -> None:
        self.answer = answer
        self.open = asyncio.Event()
        self.open.set()
        self.asked: list[Source] = []
        self.timeouts: list[float] = []
        self.cancelled = asyncio.Event()
        self.closed = False
        self._arrived = asyncio.Condition()

    async def start(self) -> None:
        await self.open.wait()

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        async with self._arrived:
            self.asked += sources
            self.timeouts.append(timeout_seconds)
            self._arrived.notify_all()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return [self.answer(source) for source in sources]

    async def close(self) -> None:
        self.closed = True

    async def wait_until_asked(self, count: int) -> None:
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.asked) >= count)


def failing_with(error: Exception) -> FakeBackend:
    def answer(source: Source) -> Prediction:
        raise error

    return FakeBackend(answer)


def rewriting(
    backend: Backend, *, default_deadline_seconds: float = 10, deadline_margin_seconds: float = 0
) -> Rewriting:
    return Rewriting(
        lambda conversation_id: ServedModel(features(), MANIFEST.model, backend.predict),
        default_deadline_seconds=default_deadline_seconds,
        deadline_margin_seconds=deadline_margin_seconds,
    )


@dataclass(frozen=True)
class Front:
    server: FrontServer
    target: str
    channel: grpc.aio.Channel
    stub: Any


@asynccontextmanager
async def front(
    backend: Backend, *, observability: Observability | None = None, **changes: Any
) -> AsyncIterator[Front]:
    """A listening server whose model is not warm yet, and a channel to it, without TLS."""
    features()  # loads jieba's dictionary for a second, which no call should wait for
    seconds = {"default_deadline_seconds": 10.0, "deadline_margin_seconds": 0.05}
    settings = ServerSettings(**{"model_dir": Path("unused"), "port": 0, **seconds, **changes})
    use_case = rewriting(
        backend,
        default_deadline_seconds=settings.default_deadline_seconds,
        deadline_margin_seconds=settings.deadline_margin_seconds,
    )
    server = FrontServer(settings, backend, use_case, observability)
    target = f"127.0.0.1:{await server.start()}"
    try:
        async with grpc.aio.insecure_channel(target) as channel:
            yield Front(server, target, channel, RewriterServiceStub(channel))
    finally:
        await server.stop()
