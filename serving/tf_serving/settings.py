"""What the operator says about TF Serving; units are in the names."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class TFServingSettings(BaseModel):
    """Where the model is served, under which name, and which version of it to ask."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    addresses: tuple[str, ...] = Field(
        default=("localhost:8500",),
        min_length=1,
        description="host:port of each server; for a dns:/// name of several, gRPC takes turns",
    )
    model_name: str = Field(default="rewriter", min_length=1, description="what the servers call it (--model_name)")
    version: int | None = Field(default=None, ge=1, description="ask for this version only")
    version_label: str = Field(default="", description="ask for the version with this label; else for the newest")
    canary_label: str = Field(default="", description="label of the version on trial")
    canary_percent: float = Field(default=0.0, ge=0, le=100, description="share of the conversations that try it")

    batching: Literal["front", "server"] = Field(
        default="front",
        description="who makes batches; the server (--enable_batching) needs signatures per length (`rewriter export`)",
    )
    max_queue_size: int = Field(default=256, ge=1, description="turns that may wait for a batch of their length")

    poll_seconds: float = Field(default=1.0, gt=0, description="how often a server is asked what it serves")
    poll_timeout_seconds: float = Field(default=5.0, gt=0, description="for that question")
    probe_timeout_seconds: float = Field(default=60.0, gt=0, description="for the first answer of a new version")
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=1024, le=2**31 - 1, description="of an answer")
    keepalive_seconds: float | None = Field(
        default=None,
        gt=0,
        le=2_000_000,
        description="ping idle connections; below 300, TF Serving hangs up unless told otherwise "
        "(--grpc_channel_arguments=grpc.http2.min_ping_interval_without_data_ms=...)",
    )

    @model_validator(mode="after")
    def _asks_for_one_version(self) -> Self:
        if self.version is not None and self.version_label:
            raise ValueError(f"expected a version or a label, found {self.version} and {self.version_label!r}")
        if self.canary_percent and not self.canary_label:
            raise ValueError(f"expected a canary_label for {self.canary_percent} percent, found none")
        if self.canary_label and self.version is None and not self.version_label:
            # The version on trial usually is the newest.
            raise ValueError("expected a version or version_label beside the canary_label, found the newest version")
        return self
