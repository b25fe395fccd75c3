"""A circuit breaker: an address that fails is left alone, and comes back once it has answered probes.

Nobody's turn is the probe: whoever opens the breaker has it probed with a turn of our own (``member.Member.recover``).
So there are three states: closed (asked), open (left alone until a moment), probing (left alone, being probed).
"""

import logging
from collections.abc import Callable
from enum import Enum

from serving.resilience.settings import BreakerSettings
from serving.resilience.windows import Totals, Window

_LOGGER = logging.getLogger(__name__)

# Closed for so long, an address has made up for its past: the next opening is as short as the first.
_FORGIVEN_SECONDS = 60.0
_JITTER = 0.2


class State(Enum):
    CLOSED = 0
    OPEN = 1
    PROBING = 2


class Breaker:
    """``clock`` is in seconds, ``random`` from 0 to 1; ``on_change`` is told each new state.

    Results carry the ``generation`` in which their call began: a call from before a change of state says nothing after.
    """

    def __init__(
        self,
        name: str,
        settings: BreakerSettings,
        clock: Callable[[], float],
        random: Callable[[], float],
        on_change: Callable[[State], None] = lambda state: None,
    ) -> None:
        self.generation = 0
        self.state = State.CLOSED
        self._name = name
        self._settings = settings
        self._clock = clock
        self._random = random
        self._on_change = on_change
        self._window = Window(settings.window_seconds, clock)
        self._failures_in_a_row = 0
        self._openings = 0  # without a long enough closed time between them
        self._closed_at = clock()
        self._probe_at = 0.0
        self._probes_answered = 0

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    def totals(self) -> Totals:
        """What the window holds since it was last closed."""
        return self._window.totals()

    def succeeded(self, generation: int, seconds: float) -> None:
        if self.closed and generation == self.generation:
            self._failures_in_a_row = 0
            self._window.succeeded(seconds)

    def failed(self, generation: int) -> None:
        if not self.closed or generation != self.generation:
            return
        self._failures_in_a_row += 1
        self._window.failed()
        totals = self._window.totals()
        too_many = totals.failures >= self._settings.min_failures
        if self._failures_in_a_row >= self._settings.failures_in_a_row:
            self.trip(f"{self._failures_in_a_row} failures in a row")
        elif too_many and totals.failure_share * 100 >= self._settings.failure_percent:
            self.trip(f"{totals.failures} of {totals.calls} calls failed")

    def trip(self, why: str) -> None:
        """Opens a closed breaker, whatever its own figures say."""
        if not self.closed:
            return
        if self._clock() - self._closed_at >= _FORGIVEN_SECONDS:
            self._openings = 0
        _LOGGER.warning("%s: left alone: %s", self._name, why)
        self._open()

    def seconds_to_probe(self) -> float | None:
        """0 when it is time; None unless it is open."""
        return max(0.0, self._probe_at - self._clock()) if self.state is State.OPEN else None

    def begin_probe(self) -> None:
        self._probes_answered = 0
        self._become(State.PROBING)

    def probe_answered(self) -> bool:
        """Returns True once there have been enough of them, and the breaker is closed."""
        self._probes_answered += 1
        if self._probes_answered < self._settings.probes:
            return False
        self._failures_in_a_row = 0
        self._window.clear()
        self._closed_at = self._clock()
        _LOGGER.info("%s: asked again", self._name)
        self._become(State.CLOSED)
        return True

    def probe_failed(self) -> None:
        self._open()

    def _open(self) -> None:
        seconds = min(self._settings.open_seconds * 2**self._openings, self._settings.max_open_seconds)
        # Many fronts that lost one server at once must not come back to it at once.
        self._probe_at = self._clock() + seconds * (1 + _JITTER * (2 * self._random() - 1))
        self._openings = min(self._openings + 1, 16)
        self._become(State.OPEN)

    def _become(self, state: State) -> None:
        self.state = state
        self.generation += 1
        self._on_change(state)
