"""Who calls, and whether the call may go on: tokens first, then the caller's rate limit, before anything is parsed."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from serving.config import AuthSettings, RateLimitSettings
from serving.errors import RateLimited, Unauthenticated
from serving.metrics import Metrics
from serving.rate_limits import Limit, RateLimits
from serving.tokens import TokenHolder, Tokens, read_tokens
from serving.watching import Watched

_SCHEME = "bearer "
# Of a stream beyond its limit: after that, its token and its limit are looked at again.
_LONGEST_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Caller:
    """``name`` is for the log; ``label`` for metrics, where only names of the operator's own choice may stand."""

    name: str
    label: str
    limit: Limit | None


class Access:
    """The gate that every call but health checks goes through."""

    def __init__(self, auth: AuthSettings, rate_limit: RateLimitSettings, metrics: Metrics) -> None:
        """Raises OSError or ValueError if the tokens cannot be read."""
        self._rate_limit = rate_limit
        self._rate_limits = RateLimits()
        self._metrics = metrics
        self._tokens: Watched[Tokens] | None = None
        if path := auth.tokens_file:
            failed = metrics.reload_failures.labels("tokens").inc
            self._tokens = Watched("tokens", [path], lambda: read_tokens(path), on_failure=failed)

    def limit_rates(self, settings: RateLimitSettings) -> None:
        """From now on, on open streams too; a caller whose limit changes starts anew with a full burst."""
        self._rate_limit = settings

    def identify(self, metadata: Mapping[str, Any], context: grpc.aio.ServicerContext) -> Caller:
        """``metadata`` is what the caller sent with the call. Raises Unauthenticated."""
        if self._tokens is not None:
            holder = self._tokens.get().holder_of(_token_in(metadata))
            if holder is None:
                raise Unauthenticated
            return Caller(holder.name, holder.name, self._limit_of(holder))
        if certificate := _certificate_name(context.auth_context()):
            return Caller(certificate, "certificate", self._limit_of(None))
        return Caller(_address(context.peer()), "address", self._limit_of(None))

    def admit(self, caller: Caller) -> None:
        """Raises RateLimited while the caller owes turns."""
        if seconds := self._seconds_to_wait(caller):
            self._metrics.rate_limited.labels(caller.label).inc()
            raise RateLimited(seconds)

    async def admit_when_due(self, metadata: Mapping[str, Any], context: grpc.aio.ServicerContext) -> Caller:
        """For each message of a stream, which is slowed down and not broken off by a limit.

        The caller is identified anew, by tokens and limits as they are once it may go on. Raises Unauthenticated.
        """
        caller = self.identify(metadata, context)
        if self._seconds_to_wait(caller):
            self._metrics.rate_limited.labels(caller.label).inc()
        while seconds := self._seconds_to_wait(caller):
            await asyncio.sleep(min(seconds, _LONGEST_WAIT_SECONDS))
            caller = self.identify(metadata, context)
        return caller

    def charge(self, caller: Caller, turns: int) -> None:
        if caller.limit is not None:
            self._rate_limits.charge((caller.label, caller.name), caller.limit, turns)

    def _seconds_to_wait(self, caller: Caller) -> float:
        if caller.limit is None:
            return 0.0
        return self._rate_limits.seconds_to_wait((caller.label, caller.name), caller.limit)

    def _limit_of(self, holder: TokenHolder | None) -> Limit | None:
        turns_per_second = (holder and holder.turns_per_second) or self._rate_limit.turns_per_second
        if turns_per_second is None:
            return None
        return Limit(turns_per_second, (holder and holder.burst_turns) or self._rate_limit.burst_turns)


def _token_in(metadata: Mapping[str, Any]) -> str:
    value = metadata.get("authorization")
    if not isinstance(value, str) or not value.lower().startswith(_SCHEME):
        return ""
    return value[len(_SCHEME) :].strip()


def _certificate_name(properties: Mapping[str, Any]) -> str:
    """Who the client's certificate says it is; empty without one."""
    for key in ("x509_common_name", "x509_subject_alternative_name"):
        for value in properties.get(key, ()):
            return str(value.decode("utf-8", "replace"))
    return ""


def _address(peer: str) -> str:
    """``ipv4:10.0.0.7:50123`` without the port, which is new with every connection."""
    return peer.rpartition(":")[0] or peer
