"""What the operator says about trouble with the model; units are in the names, docs/resilience.md says how they act."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class LimitSettings(_Group):
    """How many turns may be at one backend at once; learned from how long they take."""

    target_seconds: float = Field(
        default=0.08, gt=0, description="let fewer turns to the model at once when a tenth of them take longer"
    )
    initial_turns: int = Field(default=32, ge=1, description="turns at the model of one address at once, at first")
    min_turns: int = Field(default=8, ge=1, description="however slow it is")
    max_turns: int = Field(default=512, ge=1, description="however fast it is")
    bulk_share: float = Field(
        default=0.8, gt=0, le=1, description="of them for batches and streams, which wait for a place; others do not"
    )

    @model_validator(mode="after")
    def _are_in_order(self) -> Self:
        if not self.min_turns <= self.initial_turns <= self.max_turns:
            raise ValueError(
                "expected min_turns <= initial_turns <= max_turns, "
                f"found {self.min_turns}, {self.initial_turns}, {self.max_turns}"
            )
        return self


class BreakerSettings(_Group):
    """When an address is left alone, and how it comes back."""

    failures_in_a_row: int = Field(default=5, ge=1, description="after so many, an address is left alone")
    failure_percent: float = Field(default=50.0, gt=0, le=100, description="or with so many failures in the window")
    min_failures: int = Field(default=10, ge=1, description="of which there must be so many")
    window_seconds: float = Field(default=10.0, gt=0, description="how far back failures count")
    open_seconds: float = Field(
        default=0.5, gt=0, description="before an address left alone is probed; doubled each time it fails"
    )
    max_open_seconds: float = Field(default=3.0, gt=0, description="at most")
    probes: int = Field(default=2, ge=1, description="answers in a row that bring it back")
    probe_timeout_seconds: float = Field(default=2.0, gt=0, description="for each of them")
    timeout_counts_from_seconds: float = Field(
        default=0.5, ge=0, description="a timeout is a failure only if the model had so long: callers may be in a hurry"
    )


class RetrySettings(_Group):
    percent: float = Field(
        default=10.0, ge=0, le=100, description="of the turns may be asked twice, if an address is unavailable; 0: none"
    )
    reserve_turns: int = Field(default=10, ge=0, description="that may be, before there were any others")
    max_pause_seconds: float = Field(default=0.05, ge=0, description="before the only address is asked again")


class OutlierSettings(_Group):
    """When one of several addresses is left alone because the others do better."""

    latency_factor: float = Field(
        default=4.0, gt=1, description="an address so much slower than the median of the others is left alone"
    )
    failure_percent: float = Field(
        default=20.0, gt=0, le=100, description="or one that fails so much more often than they do, in points"
    )
    min_turns: int = Field(default=20, ge=1, description="that an address must have had in the breaker's window")
    max_ejected_percent: float = Field(
        default=50.0, ge=0, le=100, description="of the addresses are left alone for this reason; 0: never"
    )


class CacheSettings(_Group):
    max_entries: int = Field(default=0, ge=0, description="answers of the model kept in each process; 0: no cache")
    ttl_seconds: float = Field(default=300.0, gt=0, description="for how long")


class HealthSettings(_Group):
    not_ready_without_model_seconds: float | None = Field(
        default=None,
        ge=0,
        description="health of the service is NOT_SERVING after so long without a model; by default it never is",
    )
    stuck_seconds: float = Field(
        default=60.0,
        gt=0,
        description="health of the process is NOT_SERVING once the model in it is at one batch for so long",
    )


class ResilienceSettings(_Group):
    receive_seconds: float = Field(default=10.0, gt=0, description="for the message of a call, from its beginning")
    drain_delay_seconds: float = Field(
        default=0.0, ge=0, description="from NOT_SERVING to refusing calls, for balancers to notice"
    )
    close_seconds: float = Field(default=5.0, ge=0, description="for a model to end what it does, when all calls have")

    limit: LimitSettings = LimitSettings()
    breaker: BreakerSettings = BreakerSettings()
    retry: RetrySettings = RetrySettings()
    outliers: OutlierSettings = OutlierSettings()
    cache: CacheSettings = CacheSettings()
    health: HealthSettings = HealthSettings()
