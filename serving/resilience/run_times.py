"""What the model needs at the very least, by kind of work: a call with less time than that is lost from the start.

The fastest of the last few runs counts, not the average: what is refused must have been hopeless. And it counts for
some seconds only: if everything is refused, nothing is measured any more, and a model that was slow for a while would
be given up for ever.
"""

from collections import deque
from collections.abc import Callable, Hashable

_RUNS = 16
_REMEMBERED_SECONDS = 5.0
# Kinds are few (greedy or beam, by length); more than that would be a fault of ours, and must not become a leak.
_MAX_KINDS = 256


class RunTimes:
    """By ``clock``, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._runs: dict[Hashable, deque[tuple[float, float]]] = {}

    def note(self, kind: Hashable, seconds: float) -> None:
        if kind not in self._runs and len(self._runs) >= _MAX_KINDS:
            self._runs.clear()
        self._runs.setdefault(kind, deque(maxlen=_RUNS)).append((self._clock(), seconds))

    def fastest(self, kind: Hashable) -> float:
        """0 if nothing is known."""
        runs = self._runs.get(kind)
        if not runs:
            return 0.0
        while runs and self._clock() - runs[0][0] > _REMEMBERED_SECONDS:
            runs.popleft()
        return min((seconds for _, seconds in runs), default=0.0)
