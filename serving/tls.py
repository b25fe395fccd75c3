"""The server's certificate: read from files, proven by a handshake, replaced while serving when the files change.

Every new connection gets the newest good certificate; connections that stand keep theirs. A renewal that writes
certificate and key one after the other is taken up when they fit together.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from serving.config import TlsSettings
from serving.watching import Watched


@dataclass(frozen=True)
class Certificate:
    """What gRPC needs of it, and when it ends."""

    configuration: grpc.ServerCertificateConfiguration
    not_after: datetime


def server_credentials(
    settings: TlsSettings,
    *,
    on_certificate: Callable[[Certificate], None] = lambda certificate: None,
    on_failure: Callable[[], None] = lambda: None,
) -> grpc.ServerCredentials:
    """Raises OSError or ValueError; later, a file that cannot be used changes nothing and calls ``on_failure``."""
    if settings.certificate_file is None or settings.key_file is None:
        raise ValueError("tls: expected certificate_file and key_file, found none")
    paths = [path for path in (settings.certificate_file, settings.key_file, settings.client_ca_file) if path]
    watched = Watched(
        "certificate", paths, lambda: read_certificate(settings), on_failure=on_failure, check_seconds=0.0
    )
    current = watched.get()
    on_certificate(current)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC, on threads of its own, before every handshake; None is no change."""
        nonlocal current
        newest = watched.get()
        if newest is current:
            return None
        current = newest
        on_certificate(newest)
        return newest.configuration

    return grpc.dynamic_ssl_server_credentials(
        current.configuration, fetch, require_client_authentication=settings.client_ca_file is not None
    )


def read_certificate(settings: TlsSettings) -> Certificate:
    """Raises OSError, or ValueError that names the setting, if no handshake would succeed with these files."""
    certificate_file, key_file, client_ca_file = settings.certificate_file, settings.key_file, settings.client_ca_file
    assert certificate_file is not None and key_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate_file, key_file, password=lambda: b"")
    except ssl.SSLError as error:
        raise ValueError(
            f"tls.certificate_file, tls.key_file: expected PEM of a certificate and its unencrypted key, "
            f"found {certificate_file} and {key_file}: {error.reason or 'no PEM'}"
        ) from None
    client_authorities = _client_authorities(client_ca_file) if client_ca_file else None
    pair = (key_file.read_bytes(), certificate_file.read_bytes())
    configuration = grpc.ssl_server_certificate_configuration([pair], root_certificates=client_authorities)
    return Certificate(configuration, _not_after(context, certificate_file))


def _client_authorities(path: Path) -> bytes:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ValueError(f"tls.client_ca_file: expected PEM, found {path}: {error.reason or 'no PEM'}") from None
    return path.read_bytes()


def _not_after(server: ssl.SSLContext, certificate_file: Path) -> datetime:
    """Shakes hands in memory, with a client that trusts this one certificate: Python reads no certificate by itself."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cafile=certificate_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        # Each turn is one flight of messages; TLS 1.3 needs two and TLS 1.2 needs three.
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError as error:
        raise ValueError(
            f"tls.certificate_file: expected a certificate that clients accept, found {certificate_file}: "
            f"{error.verify_message}"
        ) from None
    found = ends[0].getpeercert()
    assert found is not None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), UTC)
