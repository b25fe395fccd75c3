"""Ends with 0 if the front in this container is SERVING, else with 1: for probes that speak no gRPC, or not its TLS.

``healthcheck.py [SERVICE [CERTIFICATE KEY]]``: SERVICE is a name that the server tells the health of, "" by default,
which is the process. The server's address and certificate are those of its own REWRITER_* variables; CERTIFICATE and
KEY are the probe's, for a server that asks clients for them.
"""

import os
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_TIMEOUT_SECONDS = 3.0
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def main(service: str = "", *client_files: str) -> int:
    host = os.environ.get("REWRITER_HOST", "")
    host, port = _LOOPBACK.get(host, host), int(os.environ.get("REWRITER_PORT") or 8600)
    certificate_file = os.environ.get("REWRITER_TLS__CERTIFICATE_FILE")
    try:
        with _channel(host, port, certificate_file, client_files) as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_TIMEOUT_SECONDS)
    except (grpc.RpcError, OSError) as error:
        print(f"not healthy: {type(error).__name__}", file=sys.stderr)
        return 1
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


def _channel(host: str, port: int, certificate_file: str | None, client_files: Sequence[str]) -> grpc.Channel:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not certificate_file:
        return grpc.insecure_channel(target)
    # The server's own certificate is all that it has to show here; who signed it is a question for callers elsewhere.
    client = [Path(path).read_bytes() for path in reversed(client_files)]
    credentials = grpc.ssl_channel_credentials(Path(certificate_file).read_bytes(), *client)
    name = _name_in_certificate(host, port, certificate_file)
    return grpc.secure_channel(target, credentials, [("grpc.ssl_target_name_override", name)])


def _name_in_certificate(host: str, port: int, certificate_file: str) -> str:
    """A name that the certificate is for, hardly ever that of this address; Python tells it after a handshake only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cafile=certificate_file)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS) as connection,
        context.wrap_socket(connection) as secured,
    ):
        found = secured.getpeercert() or {}
    names = [entry[1] for entry in found.get("subjectAltName", ())]
    return str(names[0]).replace("*", "any") if names else host


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
