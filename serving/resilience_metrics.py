"""What the guards of the model tell Prometheus: a ``serving.resilience.observing.Observer``."""

from functools import cache
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from serving.resilience.breaker import State

_REFUSALS = ("open", "limit", "time")
_CACHE_RESULTS = ("hit", "miss", "joined")


class ResilienceMetrics:
    """``addresses`` are those that will be named; every label is there from the start."""

    def __init__(self, registry: CollectorRegistry, addresses: tuple[str, ...]) -> None:
        self._registry = registry
        self._make_address_metrics(addresses)
        self._retries = self._counter("retries", "Turns asked a second time, by whether that helped.", "helped")
        self._refused_retries = self._counter("retries_refused", "Turns not asked again, for want of retry budget.")
        self._cache = self._counter("cache_requests", "Turns looked up in the cache, by result.", "result")
        self._cache_entries = self._gauge("cache_entries", "Answers in the cache of this process.")
        for helped in ("yes", "no"):
            self._retries.labels(helped)
        for result in _CACHE_RESULTS:
            self._cache.labels(result)

    def _make_address_metrics(self, addresses: tuple[str, ...]) -> None:
        self._breaker = self._gauge(
            "breaker_state", "0 asked, 1 left alone, 2 being probed.", "address", mode="livemax"
        )
        self._limit = self._gauge("concurrency_limit", "Turns let to the address at once.", "address")
        # Asked for by every turn; kept, as in ``Metrics``.
        self._in_flight = cache(self._gauge("model_turns_in_flight", "Turns at the address now.", "address").labels)
        self._ejections = self._counter(
            "ejections", "Times the address was left alone because others do better.", "address"
        )
        self._opened = self._counter("breaker_opened", "Times the address was left alone, for any reason.", "address")
        self._probes = self._counter("probes", "Turns of our own that ask whether it is back.", "address", "answered")
        refused = self._counter(
            "model_turns_refused", "Turns that were not sent to the address, by why.", "address", "why"
        )
        self._refused = cache(refused.labels)
        for address in addresses:
            self._ejections.labels(address)
            self._opened.labels(address)
            self._in_flight(address)
            for why in _REFUSALS:
                self._refused(address, why)

    def breaker_became(self, address: str, state: State) -> None:
        self._breaker.labels(address).set(state.value)
        if state is State.OPEN:
            self._opened.labels(address).inc()

    def limit_became(self, address: str, turns: int) -> None:
        self._limit.labels(address).set(turns)

    def in_flight_became(self, address: str, turns: int) -> None:
        self._in_flight(address).set(turns)

    def ejected(self, address: str) -> None:
        self._ejections.labels(address).inc()

    def probed(self, address: str, answered: bool) -> None:
        self._probes.labels(address, _yes(answered)).inc()

    def refused(self, address: str, why: str) -> None:
        self._refused(address, why).inc()

    def retried(self, helped: bool) -> None:
        self._retries.labels(_yes(helped)).inc()

    def retry_refused(self) -> None:
        self._refused_retries.inc()

    def cache_asked(self, result: str) -> None:
        self._cache.labels(result).inc()

    def cache_holds(self, entries: int) -> None:
        self._cache_entries.set(entries)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"rewriter_{name}", help_text, labels, registry=self._registry)

    def _gauge(self, name: str, help_text: str, *labels: str, mode: Literal["livesum", "livemax"] = "livesum") -> Gauge:
        return Gauge(f"rewriter_{name}", help_text, labels, registry=self._registry, multiprocess_mode=mode)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
