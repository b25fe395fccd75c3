"""Certificates for tests, made on the spot by an authority of their own."""

from pathlib import Path
from typing import Any

import trustme

AUTHORITY = trustme.CA()


def write_certificate(folder: Path, name: str = "server", authority: trustme.CA = AUTHORITY, **fields: Any) -> Path:
    """Writes ``name.crt`` and ``name.key`` for this machine, and the authority as ``ca.crt``; returns the folder."""
    issued = authority.issue_cert("localhost", "127.0.0.1", common_name=name, **fields)
    (folder / f"{name}.crt").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key = folder / f"{name}.key"
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    (folder / "ca.crt").write_bytes(authority.cert_pem.bytes())
    return folder


def tls(folder: Path, *, mutual: bool = False) -> dict[str, Path]:
    """The group ``tls`` of the settings."""
    files = {"certificate_file": folder / "server.crt", "key_file": folder / "server.key"}
    return {**files, "client_ca_file": folder / "ca.crt"} if mutual else files
