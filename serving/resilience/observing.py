"""Who is told what happened between the front and the model: metrics, in a server; nobody, in most tests."""

from typing import Protocol

from serving.resilience.breaker import State


class Observer(Protocol):
    """Must be quick and must not raise. ``address`` is one of the operator's."""

    def breaker_became(self, address: str, state: State) -> None: ...

    def limit_became(self, address: str, turns: int) -> None: ...

    def in_flight_became(self, address: str, turns: int) -> None: ...

    def ejected(self, address: str) -> None:
        """The address was left alone because the others do better."""

    def probed(self, address: str, answered: bool) -> None: ...

    def refused(self, address: str, why: str) -> None:
        """A turn did not get to the address; ``why`` is one of a few words: open, limit, time."""

    def retried(self, helped: bool) -> None:
        """A turn was asked a second time."""

    def retry_refused(self) -> None:
        """A turn would have been, but the budget was empty."""

    def cache_asked(self, result: str) -> None:
        """``result`` is hit, miss, or joined: the same turn was on its way to the model already."""

    def cache_holds(self, entries: int) -> None: ...


class NoObserver:
    """Is told, and tells nobody."""

    def breaker_became(self, address: str, state: State) -> None:
        pass

    def limit_became(self, address: str, turns: int) -> None:
        pass

    def in_flight_became(self, address: str, turns: int) -> None:
        pass

    def ejected(self, address: str) -> None:
        pass

    def probed(self, address: str, answered: bool) -> None:
        pass

    def refused(self, address: str, why: str) -> None:
        pass

    def retried(self, helped: bool) -> None:
        pass

    def retry_refused(self) -> None:
        pass

    def cache_asked(self, result: str) -> None:
        pass

    def cache_holds(self, entries: int) -> None:
        pass
