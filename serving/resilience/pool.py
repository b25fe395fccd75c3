"""All addresses as one backend: which one is asked, and whether another one is when that is unavailable.

The least busy of the usable addresses is asked: one that stalls gets no more than a few turns. A turn is asked a second
time at most, only if the first address was not reached, elsewhere if there is another one, and within the budget.
"""

import asyncio
import random as randomness
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count

from rewriter.features import Source
from serving.backend import BackendUnavailable, BackendUnreachable, ModelChanged, Prediction, ServedModel
from serving.resilience.member import Member
from serving.resilience.observing import NoObserver, Observer
from serving.resilience.outliers import find_outliers
from serving.resilience.retries import RetryBudget
from serving.resilience.settings import ResilienceSettings

_SECONDS_BETWEEN_COMPARISONS = 1.0


class Pool:
    """A backend; give ``Rewriting`` its ``serving`` as ``choose``. At least one member."""

    def __init__(
        self,
        members: Sequence[Member],
        settings: ResilienceSettings,
        observer: Observer | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = randomness.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._members = members
        self._settings = settings
        self._observer = observer or NoObserver()
        self._clock = clock
        self._random = random
        self._sleep = sleep
        self._retries = RetryBudget(settings.retry)
        self._turns = count()
        self._compared = clock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def usable(self) -> bool:
        """False while a turn would be passed through for want of a model."""
        return any(member.usable for member in self._members)

    async def start(self) -> None:
        """Returns once one is ready, the others follow; raises BackendUnavailable if none ever will be."""
        starting = [asyncio.create_task(member.start()) for member in self._members]
        self._tasks += starting
        self._tasks += [asyncio.create_task(member.recover()) for member in self._members]
        trouble = BackendUnavailable("expected an address, found none")
        for done in asyncio.as_completed(starting):
            try:
                await done
                return
            except BackendUnavailable as error:
                trouble = error
        raise trouble

    def serving(self, conversation_id: str) -> ServedModel:
        """The model that a conversation gets, at the address that is asked first. Never raises."""
        member = self._pick(self._members)
        served = member.serving(conversation_id)
        ask = partial(self._ask, member, served, conversation_id)
        return ServedModel(served.features, served.model, ask, member.check)

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        return await self.serving("").predict(sources, beam=beam, timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(member.close() for member in self._members))

    def _pick(self, members: Sequence[Member]) -> Member:
        if len(members) == 1:
            return members[0]
        candidates = [member for member in members if member.usable]
        candidates = candidates or [member for member in members if member.breaker.closed] or list(members)
        start = next(self._turns) % len(candidates)
        # In turns, where loads are equal.
        return min(candidates[start:] + candidates[:start], key=lambda member: member.load)

    async def _ask(
        self,
        member: Member,
        served: ServedModel,
        conversation_id: str,
        sources: Sequence[Source],
        *,
        beam: bool,
        timeout_seconds: float,
    ) -> list[Prediction]:
        self._retries.pay_in()
        self._compare()
        deadline = self._clock() + timeout_seconds
        try:
            return await member.ask(served, sources, beam=beam, timeout_seconds=timeout_seconds)
        except BackendUnreachable:
            other = self._second_choice(member)
            if other is None:
                raise
            if not self._retries.take():
                self._observer.retry_refused()
                raise
        return await self._ask_again(other, member, served, conversation_id, sources, beam=beam, deadline=deadline)

    async def _ask_again(
        self,
        other: Member,
        first: Member,
        served: ServedModel,
        conversation_id: str,
        sources: Sequence[Source],
        *,
        beam: bool,
        deadline: float,
    ) -> list[Prediction]:
        if other is first:
            most = min(self._settings.retry.max_pause_seconds, (deadline - self._clock()) / 4)
            await self._sleep(self._random() * max(0.0, most))
        helped = False
        try:
            again = other.serving(conversation_id)
            if again.model != served.model:
                raise ModelChanged("another version of the model is served elsewhere")
            seconds = deadline - self._clock()
            predictions = await other.ask(again, sources, beam=beam, timeout_seconds=seconds)
            helped = True
            return predictions
        finally:
            self._observer.retried(helped)

    def _second_choice(self, first: Member) -> Member | None:
        """Another address that is usable, or else the same one if it still is."""
        others = [member for member in self._members if member is not first and member.usable]
        if others:
            return self._pick(others)
        return first if first.usable else None

    def _compare(self) -> None:
        """Leaves alone the addresses that do worse than the others."""
        now = self._clock()
        if len(self._members) < 2 or now - self._compared < _SECONDS_BETWEEN_COMPARISONS:
            return
        self._compared = now
        asked = {member.address: member for member in self._members if member.usable}
        totals = {address: member.breaker.totals() for address, member in asked.items()}
        already_out = sum(not member.breaker.closed for member in self._members)
        for address, reason in find_outliers(totals, self._settings.outliers, already_out).items():
            self._observer.ejected(address)
            asked[address].breaker.trip(reason)
