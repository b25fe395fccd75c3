"""One backend behind its guards: what cannot succeed is refused at once, and the rest teaches them."""

import asyncio
import random as randomness
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rewriter.features import Source
from serving.backend import (
    PROBE,
    Backend,
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    BackendUnreachable,
    BrokenAnswer,
    Prediction,
    ServedModel,
    UnfinishedAnswer,
)
from serving.resilience.breaker import Breaker, State
from serving.resilience.limits import AdaptiveLimit, Places
from serving.resilience.observing import NoObserver, Observer
from serving.resilience.run_times import RunTimes
from serving.resilience.settings import ResilienceSettings

# What cancels a call at its deadline is not exact.
_ALMOST = 0.95
# As in ``rewriter.features``: rounding makes a little more than 1 of certainty.
_MOST_CERTAIN = 1e-3


class Replica(Backend, Protocol):
    """A backend for one address."""

    @property
    def address(self) -> str: ...

    @property
    def ready(self) -> bool:
        """False while it is better not to ask."""

    def serving(self, conversation_id: str) -> ServedModel:
        """The model that a conversation gets here. Never raises."""


class Member:
    """A replica with a breaker, a limit and a memory of its own. ``clock`` and ``sleep`` are in seconds."""

    def __init__(
        self,
        replica: Replica,
        settings: ResilienceSettings,
        observer: Observer | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = randomness.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.address = replica.address
        self._replica = replica
        self._settings = settings
        self._observer = observer or NoObserver()
        self._clock = clock
        self._sleep = sleep
        self._started = False
        self._opened = asyncio.Event()
        self.breaker = Breaker(replica.address, settings.breaker, clock, random, self._breaker_became)
        limit = AdaptiveLimit(settings.limit, clock, self._limit_became)
        self._places = Places(limit, settings.limit)
        self._run_times = RunTimes(clock)
        self._observer.breaker_became(self.address, self.breaker.state)
        self._observer.limit_became(self.address, limit.turns)

    @property
    def usable(self) -> bool:
        """True if there is no reason not to ask."""
        return self._started and self._replica.ready and self.breaker.closed

    @property
    def load(self) -> float:
        """1 when no more turns are let in."""
        return self._places.load

    def serving(self, conversation_id: str) -> ServedModel:
        return self._replica.serving(conversation_id)

    def check(self) -> None:
        """Raises BackendError if any turn would be refused now."""
        self._check_breaker()
        if self._places.refuse_at_once:
            self._observer.refused(self.address, "limit")
            raise BackendOverloaded("too many turns are at the model already")

    async def start(self) -> None:
        """Failures count only from here on: a model that loads is not one that fails."""
        try:
            await self._replica.start()
        finally:
            # What did not start is not ready, and may be one day.
            self._started = True

    async def close(self) -> None:
        await self._replica.close()

    async def ask(
        self, served: ServedModel, sources: Sequence[Source], *, beam: bool, timeout_seconds: float
    ) -> list[Prediction]:
        """Asks ``served``, a model of this member. Raises BackendError: before the timeout, if it is clear by then."""
        deadline = self._clock() + timeout_seconds
        kind = (beam, max(map(len, sources)).bit_length())
        needed = self._run_times.fastest(kind)
        self._check(timeout_seconds, needed)
        try:
            await self._places.take(timeout_seconds - needed)
        except BackendOverloaded:
            self._observer.refused(self.address, "limit")
            raise
        call = _Call(self.breaker.generation, self._clock(), deadline - self._clock())
        self._observer.in_flight_became(self.address, self._places.in_use)
        try:
            self._check(call.given, needed)
            predictions = await self._learning(call, served.predict(sources, beam=beam, timeout_seconds=call.given))
            self._run_times.note(kind, self._clock() - call.began)
            return predictions
        finally:
            self._places.give_back(call.tells)
            self._observer.in_flight_became(self.address, self._places.in_use)

    async def recover(self) -> None:
        """Probes the replica whenever its breaker is open, until cancelled."""
        while True:
            await self._opened.wait()
            while (seconds := self.breaker.seconds_to_probe()) is not None:
                await self._sleep(seconds)
                await self._probe()
            self._opened.clear()

    async def _probe(self) -> None:
        self.breaker.begin_probe()
        closed = False
        while not closed:
            if not await self._answers():
                self.breaker.probe_failed()
                return
            closed = self.breaker.probe_answered()

    async def _answers(self) -> bool:
        seconds = self._settings.breaker.probe_timeout_seconds
        try:
            served = self.serving("")
            async with asyncio.timeout(seconds):
                source = served.features.encode(PROBE)
                check_sound(await served.predict([source], beam=False, timeout_seconds=seconds))
            answered = True
        except Exception:  # whatever it is, it is no answer, and the watch must go on
            answered = False
        self._observer.probed(self.address, answered)
        return answered

    def _check(self, timeout_seconds: float, needed: float) -> None:
        """Raises BackendError if the call cannot succeed."""
        self._check_breaker()
        if timeout_seconds <= needed:
            self._observer.refused(self.address, "time")
            raise BackendTimeout("there is less time left than the model needs")

    def _check_breaker(self) -> None:
        if not self.breaker.closed:
            self._observer.refused(self.address, "open")
            raise BackendUnreachable("the model has failed too often and is left alone for a while")

    async def _learning(self, call: "_Call", asked: Awaitable[list[Prediction]]) -> list[Prediction]:
        """Tells the breaker, and ``call`` what it tells the limit."""
        try:
            predictions = await asked
            check_sound(predictions)
        except (BackendError, asyncio.CancelledError) as error:
            self._learn_from(error, call)
            raise
        call.tells = self._clock() - call.began
        self.breaker.succeeded(call.generation, call.tells)
        return predictions

    def _learn_from(self, error: BaseException, call: "_Call") -> None:
        seconds = self._clock() - call.began
        cut_off = isinstance(error, asyncio.CancelledError) and seconds >= _ALMOST * call.given
        late = cut_off or isinstance(error, BackendTimeout)
        broken = isinstance(error, BackendUnavailable | BrokenAnswer) and not isinstance(error, UnfinishedAnswer)
        if self._started and (broken or (late and call.given >= self._settings.breaker.timeout_counts_from_seconds)):
            self.breaker.failed(call.generation)
        target = self._settings.limit.target_seconds
        if call.given >= target and (late or isinstance(error, BackendOverloaded)):
            call.tells = max(seconds, 2 * target)

    def _breaker_became(self, state: State) -> None:
        self._observer.breaker_became(self.address, state)
        if state is State.OPEN:
            self._opened.set()

    def _limit_became(self, turns: int) -> None:
        self._observer.limit_became(self.address, turns)


@dataclass
class _Call:
    """``given`` is the time it got, ``tells`` how long it took: None if that says nothing about the load. Seconds."""

    generation: int
    began: float
    given: float
    tells: float | None = None


def check_sound(predictions: Sequence[Prediction]) -> None:
    """Raises BrokenAnswer for what no model of ours answers: a probability that is none."""
    for prediction in predictions:
        best = prediction.hypotheses[0]
        if best.finished and not best.log_prob <= _MOST_CERTAIN:
            raise BrokenAnswer(f"expected a log-probability, found {best.log_prob}")
