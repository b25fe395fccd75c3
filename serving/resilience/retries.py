"""How often a turn may be asked a second time: a share of all turns, so that retries never become the load."""

from serving.resilience.settings import RetrySettings


class RetryBudget:
    """Every turn pays in its share, every retry takes a whole one; at most the reserve is kept, full at first."""

    def __init__(self, settings: RetrySettings) -> None:
        self._share = settings.percent / 100
        self._most = float(settings.reserve_turns) if self._share else 0.0
        self._balance = self._most

    def pay_in(self) -> None:
        self._balance = min(self._balance + self._share, max(self._most, 1.0))

    def take(self) -> bool:
        """False if there is nothing left."""
        # A billionth less than one is one: ten tenths are not quite 1.0.
        if self._balance < 1 - 1e-9:
            return False
        self._balance -= 1
        return True
