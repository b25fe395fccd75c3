"""How an address did lately: outcomes of the last seconds, in slices that are forgotten one by one."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_SLICES = 10


@dataclass
class Totals:
    """``seconds`` is the sum over the successes: how long failures take says nothing."""

    successes: int = 0
    failures: int = 0
    seconds: float = 0.0

    @property
    def calls(self) -> int:
        return self.successes + self.failures

    @property
    def failure_share(self) -> float:
        """0 to 1; 0 without calls."""
        return self.failures / self.calls if self.calls else 0.0

    @property
    def mean_seconds(self) -> float:
        """Of the successes; 0 without any."""
        return self.seconds / self.successes if self.successes else 0.0


class Window:
    """Rolls by ``clock``, in seconds."""

    def __init__(self, window_seconds: float, clock: Callable[[], float]) -> None:
        self._slice_seconds = window_seconds / _SLICES
        self._clock = clock
        self._slices: deque[tuple[int, Totals]] = deque()

    def succeeded(self, seconds: float) -> None:
        current = self._current()
        current.successes += 1
        current.seconds += seconds

    def failed(self) -> None:
        self._current().failures += 1

    def totals(self) -> Totals:
        self._forget()
        return Totals(
            sum(each.successes for _, each in self._slices),
            sum(each.failures for _, each in self._slices),
            sum(each.seconds for _, each in self._slices),
        )

    def clear(self) -> None:
        self._slices.clear()

    def _current(self) -> Totals:
        number = self._number()
        if not self._slices or self._slices[-1][0] != number:
            self._forget()
            self._slices.append((number, Totals()))
        return self._slices[-1][1]

    def _forget(self) -> None:
        oldest = self._number() - _SLICES
        while self._slices and self._slices[0][0] <= oldest:
            self._slices.popleft()

    def _number(self) -> int:
        return int(self._clock() / self._slice_seconds)
