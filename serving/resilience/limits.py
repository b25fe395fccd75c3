"""How many turns may be at one backend at once: learned from how long they take (AIMD on latency).

While a tenth of the turns take longer than the target, the limit shrinks, by as much as the mean is beyond the target;
while they do not and the limit is used, it grows by one each window. A model that works in batches answers more turns a
second the more of them wait, up to a point, so the fall of latency with fewer turns (the gradient of Netflix's
concurrency-limits) would stop short of that point; a target does not. Beyond the limit a turn is refused at once,
instead of late.

Batches and streams come with many turns at a time and are patient: theirs wait for a place, in order, and get no more
than a share of all places, so that single turns always find one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from serving.backend import BackendOverloaded
from serving.resilience.settings import LimitSettings

_SLOW_SHARE = 0.1
_MIN_TURNS = 10  # that a window needs before anything is concluded from it
_WINDOW_SECONDS = 0.1
_STALE_SECONDS = 5.0
_BIGGEST_CUT, _SMALLEST_CUT = 0.5, 0.9

_PATIENT: ContextVar[bool] = ContextVar("patient", default=False)


@contextmanager
def patient() -> Iterator[None]:
    """Turns asked within, by this task and those it starts, wait for a place instead of being refused."""
    token = _PATIENT.set(True)
    try:
        yield
    finally:
        _PATIENT.reset(token)


class AdaptiveLimit:
    """The figure itself. ``clock`` is in seconds; ``on_change`` is told each new limit."""

    def __init__(
        self, settings: LimitSettings, clock: Callable[[], float], on_change: Callable[[int], None] = lambda limit: None
    ) -> None:
        self.turns = settings.initial_turns
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._turns, self._slow, self._peak, self._seconds = 0, 0, 0, 0.0
        self._began, self._lasts = clock(), _WINDOW_SECONDS

    def note(self, seconds: float, in_flight: int) -> None:
        """A turn took so long, and there were so many at once, itself included."""
        now = self._clock()
        if now - self._began > max(_STALE_SECONDS, 2 * self._lasts):
            # Some calls of a quiet hour: what they tell together is about no moment at all.
            self._begin_window(now)
        self._turns += 1
        self._seconds += seconds
        self._slow += seconds > self._settings.target_seconds
        self._peak = max(self._peak, in_flight)
        if self._turns >= _MIN_TURNS and now - self._began >= self._lasts:
            self._conclude()

    def _conclude(self) -> None:
        mean = self._seconds / self._turns
        if self._slow > _SLOW_SHARE * self._turns:
            cut = min(max(self._settings.target_seconds / mean, _BIGGEST_CUT), _SMALLEST_CUT)
            self._set(max(self._settings.min_turns, int(self.turns * cut)))
        elif 2 * self._peak >= self.turns:
            self._set(min(self._settings.max_turns, self.turns + 1))
        # What is at the model now was let in under the old limit: the next conclusion waits until it is out.
        self._begin_window(self._clock(), mean)

    def _begin_window(self, now: float, mean_seconds: float = 0.0) -> None:
        self._began = now
        self._lasts = max(_WINDOW_SECONDS, mean_seconds)
        self._turns, self._slow, self._peak, self._seconds = 0, 0, 0, 0.0

    def _set(self, turns: int) -> None:
        if turns != self.turns:
            self.turns = turns
            self._on_change(turns)


class Places:
    """Gives out as many places as the limit has at the moment."""

    def __init__(self, limit: AdaptiveLimit, settings: LimitSettings) -> None:
        self.in_use = 0
        self._limit = limit
        self._bulk_share = settings.bulk_share
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def load(self) -> float:
        """1 when all places are in use."""
        return self.in_use / self._limit.turns

    @property
    def refuse_at_once(self) -> bool:
        """True if ``take`` would raise now, for whoever asks."""
        return not _PATIENT.get() and self.in_use >= self._limit.turns

    async def take(self, patience_seconds: float) -> None:
        """Raises BackendOverloaded: at once, or for the patient after ``patience_seconds``."""
        if self.refuse_at_once:
            raise BackendOverloaded("too many turns are at the model already")
        if not _PATIENT.get() or self.in_use < self._for_bulk and not self._waiting:
            self.in_use += 1
        else:
            await self._wait(patience_seconds)

    def give_back(self, seconds: float | None) -> None:
        """``seconds`` is how long the turn took; None if that says nothing."""
        if seconds is not None:
            self._limit.note(seconds, self.in_use)
        self.in_use -= 1
        self._let_in()

    @property
    def _for_bulk(self) -> int:
        return max(1, int(self._limit.turns * self._bulk_share))

    async def _wait(self, patience_seconds: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(patience_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(None)  # let in and gone at the same moment
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise BackendOverloaded("too many turns are at the model already, for all the time there was") from None
            raise

    def _let_in(self) -> None:
        while self._waiting and self.in_use < self._for_bulk:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_use += 1
                turn.set_result(None)
