"""Replicas that do as they are told, for tests of what guards them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from clock import Clock
from front import MANIFEST, FakeBackend, features

from rewriter.conversation import Conversation
from rewriter.features import Source
from serving.answer import Model
from serving.backend import Prediction, ServedModel
from serving.resilience.member import Member
from serving.resilience.observing import NoObserver
from serving.resilience.pool import Pool
from serving.resilience.settings import ResilienceSettings

CONVERSATION = Conversation(("西安今天的天气怎么样",), "明天有雨吗")


class FakeReplica(FakeBackend):
    """``trouble`` is raised while it is set; ``takes_seconds`` pass by the clock."""

    def __init__(self, address: str, clock: Clock, model: Model = MANIFEST.model) -> None:
        super().__init__()
        self.address = address
        self.ready = True
        self.clock = clock
        self.model = model
        self.trouble: BaseException | None = None
        self.takes_seconds = 0.02

    def serving(self, conversation_id: str) -> ServedModel:
        return ServedModel(features(), self.model, partial(self.predict))

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        found = await super().predict(sources, beam=beam, timeout_seconds=timeout_seconds)
        self.clock.advance(self.takes_seconds)
        if self.trouble is not None:
            raise self.trouble
        return found


class Told(NoObserver):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def ejected(self, address: str) -> None:
        self.events.append(("ejected", address))

    def probed(self, address: str, answered: bool) -> None:
        self.events.append(("probed", address, answered))

    def refused(self, address: str, why: str) -> None:
        self.events.append(("refused", why))

    def retried(self, helped: bool) -> None:
        self.events.append(("retried", helped))

    def retry_refused(self) -> None:
        self.events.append(("retry refused",))

    def cache_asked(self, result: str) -> None:
        self.events.append((result,))


def member(
    replica: FakeReplica, told: Told | None = None, sleep: Callable[[float], Any] | None = None, **changes: Any
) -> Member:
    """``changes`` are of the settings; groups as dictionaries."""
    settings = ResilienceSettings(**changes)
    clock = replica.clock
    return Member(replica, settings, told, clock=clock, random=lambda: 0.5, sleep=sleep or clock.sleep)


def pool(replicas: Sequence[FakeReplica], told: Told | None = None, **changes: Any) -> Pool:
    clock = replicas[0].clock
    members = [member(replica, told, **changes) for replica in replicas]
    return Pool(members, ResilienceSettings(**changes), told, clock=clock, random=lambda: 0.5, sleep=clock.sleep)
