"""What a client shows and expects: certificates for the channel, a token for every call. Needs gRPC alone."""

from pathlib import Path

import grpc


def channel_credentials(
    ca_file: Path | None = None, certificate_file: Path | None = None, key_file: Path | None = None
) -> grpc.ChannelCredentials:
    """TLS to a server that the authorities in ``ca_file`` know, those of gRPC by default.

    ``certificate_file`` and ``key_file`` are the client's own, for servers that want one. Raises OSError or ValueError.
    """
    if (certificate_file is None) != (key_file is None):
        raise ValueError("expected both a client's certificate and its key or neither, found one of them")
    authorities, key, certificate = (path and path.read_bytes() for path in (ca_file, key_file, certificate_file))
    return grpc.ssl_channel_credentials(authorities, key, certificate)


def read_token(path: Path) -> str:
    """What the file holds, without the space around it. Raises OSError, or ValueError if it is empty."""
    token = path.read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError(f"{path}: expected a token, found nothing")
    return token


def call_metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """gRPC metadata of every call."""
    return (("authorization", f"Bearer {token}"),) if token else ()
