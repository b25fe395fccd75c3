"""Every setting of the front service, as one tree; units are in the names. ``settings`` says where values come from.

A new setting is a field here, with a description; docs/settings.md is generated from it (``make docs``).
"""

import ipaddress
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from serving.resilience.settings import ResilienceSettings
from serving.tf_serving.settings import TFServingSettings

ENVIRONMENT_PREFIX = "REWRITER_"
GROUP_DELIMITER = "__"


class Group(BaseModel):
    """Settings that belong together: a table of the file, a prefix of the variables."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class LogSettings(Group):
    format: Literal["text", "json"] = Field(default="text", description="for people, or one JSON object a line")
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="the least severe line that is written; a request's line is INFO"
    )


class MetricsSettings(Group):
    enabled: bool = Field(default=True, description="answer Prometheus on a port of its own")
    host: str = Field(default="127.0.0.1", description="address of that port; there is neither TLS nor a password")
    port: int = Field(default=8601, ge=0, le=65535, description="0 picks a free one, which the log names")


def read_headers(headers: SecretStr) -> dict[str, str]:
    """``name=value`` with commas between, as gRPC wants it: names in lower case. Raises ValueError, without quoting."""
    split = (pair.partition("=") for pair in headers.get_secret_value().split(","))
    pairs = [(name.strip().lower(), value.strip()) for name, _, value in split]
    if not all(name and value for name, value in pairs):
        raise ValueError("expected name=value with commas between, found another form")
    return dict(pairs)


class TracingSettings(Group):
    endpoint: str | None = Field(
        default=None, description="OTLP collector (gRPC), such as http://localhost:4317; without one, no spans are made"
    )
    headers: SecretStr | None = Field(
        default=None, description="sent to the collector: name=value, more of them after commas"
    )
    sample_ratio: float = Field(
        default=0.1, ge=0, le=1, description="share of the calls to trace; a caller who traces decides for its calls"
    )
    service_name: str = Field(default="rewriter", min_length=1, description="what spans call this service")

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, endpoint: str | None) -> str | None:
        if endpoint is not None:
            url = urlsplit(endpoint)
            if url.scheme not in ("http", "https") or not url.hostname:
                raise ValueError("expected http://HOST:PORT or https://HOST:PORT, found another form")
            if url.username or url.password:
                raise ValueError("expected no password in the address, found one: tracing.headers is the place for it")
        return endpoint

    @field_validator("headers")
    @classmethod
    def _are_pairs(cls, headers: SecretStr | None) -> SecretStr | None:
        if headers is not None:
            read_headers(headers)
        return headers


class TlsSettings(Group):
    certificate_file: Path | None = Field(
        default=None, description="the server's certificate with its chain, PEM; read again when it changes"
    )
    key_file: Path | None = Field(default=None, description="its private key, PEM, not encrypted")
    client_ca_file: Path | None = Field(
        default=None, description="authorities of client certificates, PEM; with it, clients must have one (mTLS)"
    )

    @property
    def enabled(self) -> bool:
        return self.certificate_file is not None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("expected both certificate_file and key_file or neither, found one of them")
        if self.client_ca_file is not None and self.certificate_file is None:
            raise ValueError("expected certificate_file and key_file beside client_ca_file, found neither")
        return self


class AuthSettings(Group):
    tokens_file: Path | None = Field(
        default=None, description="callers and the SHA-256 of their tokens, TOML; with it, every call needs a token"
    )


class RateLimitSettings(Group):
    turns_per_second: float | None = Field(
        default=None,
        gt=0,
        description="turns of one caller in the long run, counted by each process; without it, there is no limit",
    )
    burst_turns: int = Field(default=200, ge=1, description="turns that a caller who was quiet may send at once")


class ServerSettings(BaseSettings):
    """Validated once, at start. ``settings.load`` reads the file and the flags too, and refuses unknown variables."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter=GROUP_DELIMITER,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    model_dir: Path = Field(description="holds numbered version folders; the highest one is served")
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8600, ge=0, le=65535, description="0 picks a free one")
    allow_insecure: bool = Field(default=False, description="serve without TLS on an address other machines can reach")
    workers: int = Field(
        default=1, ge=1, description="server processes; with more than one, a process looks after them"
    )
    reuse_port: bool = Field(default=False, description="let several server processes share the port")
    reflection: bool = Field(default=True, description="tell clients the schema of the contract (gRPC reflection)")

    max_history_turns: int = Field(default=200, ge=0, description="turns of history in a request")
    max_turn_characters: int = Field(default=2000, ge=1, description="code points of a turn of history")
    max_utterance_characters: int = Field(default=500, ge=1, description="code points of an utterance")
    max_alternatives: int = Field(default=8, ge=0, description="other rewrites that a request may ask for")
    max_batch_items: int = Field(default=64, ge=1, description="requests in a BatchRewrite")
    max_stream_requests: int = Field(default=32, ge=1, description="unanswered requests of one stream")
    max_message_bytes: int = Field(
        default=256 * 1024, ge=1024, le=2**30 - 1, description="bytes of a message on the wire"
    )
    max_concurrent_streams: int = Field(default=256, ge=1, description="calls in flight on one connection")

    default_deadline_seconds: float = Field(default=2.0, gt=0, description="for calls without one; caps all others")
    deadline_margin_seconds: float = Field(
        default=0.02, ge=0, description="kept back for the way of the answer; a tenth of the time, if that is more"
    )
    max_batch_size: int = Field(default=16, ge=1, description="turns that an embedded model rewrites at once")
    max_queue_size: int = Field(default=256, ge=1, description="turns that may wait for an embedded model")
    warm_up_timeout_seconds: float = Field(default=120.0, gt=0, description="for each of the model's first answers")
    shutdown_grace_seconds: float = Field(default=10.0, ge=0, description="for calls in flight when told to stop")
    max_connection_age_seconds: float = Field(
        default=300.0, gt=0, le=2_000_000, description="so that clients balance anew"
    )
    log_text: bool = Field(default=False, description="write utterances and rewrites to the log")

    backend: Literal["embedded", "tf_serving"] = Field(
        default="embedded", description="where the model runs: in this process, or in TF Serving"
    )

    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    tls: TlsSettings = TlsSettings()
    auth: AuthSettings = AuthSettings()
    rate_limit: RateLimitSettings = RateLimitSettings()
    tf_serving: TFServingSettings = TFServingSettings()
    resilience: ResilienceSettings = ResilienceSettings()

    @model_validator(mode="after")
    def _is_safe_where_it_listens(self) -> Self:
        if not (self.tls.enabled or self.allow_insecure or _is_loopback(self.host)):
            raise ValueError(
                f"expected a loopback host, found {self.host!r}: without TLS (tls.certificate_file, tls.key_file) "
                "other machines are served only with REWRITER_ALLOW_INSECURE=true, behind a proxy or a network policy"
            )
        return self


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
