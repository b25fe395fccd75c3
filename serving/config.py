"""Every setting of the front service, read from ``REWRITER_*`` environment variables; units are in the names."""

import ipaddress
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServerSettings(BaseSettings):
    """Validated once, at start; nothing else reads the environment."""

    model_config = SettingsConfigDict(env_prefix="REWRITER_", frozen=True, extra="forbid")

    model_dir: Path = Field(description="holds numbered version folders; the highest one is served")
    host: str = "127.0.0.1"
    port: int = Field(default=8600, ge=0, le=65535, description="0 picks a free one")
    allow_insecure: bool = Field(default=False, description="serve without TLS on an address other machines can reach")
    reuse_port: bool = Field(default=False, description="let several server processes share the port")

    max_history_turns: int = Field(default=200, ge=0)
    max_turn_characters: int = Field(default=2000, ge=1)
    max_utterance_characters: int = Field(default=500, ge=1)
    max_alternatives: int = Field(default=8, ge=0)
    max_batch_items: int = Field(default=64, ge=1)
    max_stream_requests: int = Field(default=32, ge=1, description="unanswered requests of one stream")
    max_message_bytes: int = Field(default=256 * 1024, ge=1024)
    max_concurrent_streams: int = Field(default=256, ge=1, description="calls in flight on one connection")

    default_deadline_seconds: float = Field(default=2.0, gt=0, description="for calls without one; caps all others")
    deadline_margin_seconds: float = Field(default=0.02, ge=0, description="kept back for the way of the answer")
    max_batch_size: int = Field(default=16, ge=1, description="turns the model rewrites at once")
    max_queue_size: int = Field(default=256, ge=1, description="turns that may wait for the model")
    warm_up_timeout_seconds: float = Field(default=120.0, gt=0)
    shutdown_grace_seconds: float = Field(default=10.0, ge=0, description="for calls in flight when told to stop")
    max_connection_age_seconds: float = Field(default=300.0, gt=0, description="so that clients balance anew")
    log_text: bool = Field(default=False, description="write utterances and rewrites to the request log")

    @model_validator(mode="after")
    def _is_safe_where_it_listens(self) -> Self:
        if not self.allow_insecure and not _is_loopback(self.host):
            raise ValueError(
                f"expected a loopback host, found {self.host!r}: there is no TLS here, so other machines are served "
                "only with REWRITER_ALLOW_INSECURE=true, behind a proxy or a network policy"
            )
        return self


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
