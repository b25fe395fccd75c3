"""Token buckets, one a caller. A call is let in while the caller owes nothing, and pays for its turns afterwards.

So a limit is checked before anything is parsed, and a batch larger than the burst still gets through, late.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

# Callers without a name are told apart by address, of which a hostile network has many.
MAX_CALLERS = 10_000


@dataclass(frozen=True)
class Limit:
    turns_per_second: float
    burst_turns: int


class RateLimits:
    """Buckets by key; the caller longest not seen is forgotten first, and starts anew with a full bucket."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def seconds_to_wait(self, key: Hashable, limit: Limit) -> float:
        """0 if the caller may send a turn now."""
        return self._bucket(key, limit).seconds_to_wait(self._clock())

    def charge(self, key: Hashable, limit: Limit, turns: int) -> None:
        self._bucket(key, limit).take(turns, self._clock())

    def _bucket(self, key: Hashable, limit: Limit) -> "_Bucket":
        bucket = self._buckets.get(key)
        if bucket is None or bucket.limit != limit:
            bucket = self._buckets[key] = _Bucket(limit, self._clock())
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return bucket


class _Bucket:
    """``level`` is what may be sent at once; below zero, what is owed."""

    def __init__(self, limit: Limit, now: float) -> None:
        self.limit = limit
        self._level = float(limit.burst_turns)
        self._filled = now

    def seconds_to_wait(self, now: float) -> float:
        self._fill(now)
        # A billionth less than a turn is a turn: rounding must not send a caller away for no time at all.
        missing = 1.0 - self._level
        return missing / self.limit.turns_per_second if missing > 1e-9 else 0.0

    def take(self, turns: int, now: float) -> None:
        self._fill(now)
        self._level -= turns

    def _fill(self, now: float) -> None:
        grown = self._level + (now - self._filled) * self.limit.turns_per_second
        self._level = min(float(self.limit.burst_turns), grown)
        self._filled = now
