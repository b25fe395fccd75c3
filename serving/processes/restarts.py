"""When a worker that ended is started anew: at once at first, and more and more slowly if it keeps ending."""

_FIRST_SECONDS = 0.5
_MOST_SECONDS = 30.0
# What has lived for so long did not end because of how it started.
_GOOD_LIFE_SECONDS = 60.0


class Restarts:
    """Of one worker."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_seconds(self, lived_seconds: float) -> float:
        """How long to wait after a life of so many seconds."""
        if lived_seconds >= _GOOD_LIFE_SECONDS:
            self._in_a_row = 0
        pause = min(_FIRST_SECONDS * 2.0**self._in_a_row, _MOST_SECONDS)
        self._in_a_row = min(self._in_a_row + 1, 16)
        return pause
