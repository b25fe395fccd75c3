"""TLS over real sockets, with certificates made on the spot."""

import asyncio
import logging
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import trustme
from certificates import AUTHORITY, tls, write_certificate
from front import FakeBackend, Front, front

from serving.client import AsyncRewriter, Rewriter
from serving.config import TlsSettings
from serving.credentials import channel_credentials
from serving.tls import read_certificate

HISTORY = ["西安今天的天气怎么样"]
UTTERANCE = "明天有雨吗"
REWRITE = "西安明天有雨吗"


def target(served: Front) -> str:
    """By the name in the certificate, which has no address of the kind that gRPC compares."""
    return served.target.replace("127.0.0.1", "localhost")


def subject(served: Front) -> str:
    """The common name that a new connection is shown."""
    host, _, port = served.target.rpartition(":")
    context = ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as it:
        found = it.getpeercert()
    assert found is not None
    return dict(pair for [pair] in found["subject"])["commonName"]  # type: ignore[misc]


async def unavailable(rewriter: AsyncRewriter) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rewriter.rewrite(HISTORY, UTTERANCE, timeout_seconds=5)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(raised.value.details())


@pytest.mark.asyncio
async def test_both_clients_rewrite_over_tls(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    credentials = channel_credentials(tmp_path / "ca.crt")
    async with front(FakeBackend(), tls=tls(tmp_path)) as served:
        async with AsyncRewriter(target(served), credentials=credentials, timeout_seconds=10) as rewriter:
            assert (await rewriter.rewrite(HISTORY, UTTERANCE)).text == REWRITE

        def blocking() -> str:
            with Rewriter(target(served), credentials=credentials, timeout_seconds=10) as rewriter:
                return rewriter.rewrite(HISTORY, UTTERANCE).text

        assert await asyncio.to_thread(blocking) == REWRITE


@pytest.mark.asyncio
async def test_nothing_is_answered_in_the_clear_or_to_a_client_that_does_not_know_the_authority(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    stranger = tmp_path / "stranger.crt"
    stranger.write_bytes(trustme.CA().cert_pem.bytes())
    backend = FakeBackend()
    async with front(backend, tls=tls(tmp_path)) as served:
        async with AsyncRewriter(target(served)) as plain:
            await unavailable(plain)
        async with AsyncRewriter(target(served), credentials=channel_credentials(stranger)) as doubtful:
            await unavailable(doubtful)
    assert backend.asked == []


@pytest.mark.asyncio
async def test_with_an_authority_for_clients_each_needs_a_certificate_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("server", "pipeline"):
        write_certificate(tmp_path, name)
    write_certificate(tmp_path, "stranger", trustme.CA())
    write_certificate(tmp_path)
    authority = tmp_path / "ca.crt"
    backend = FakeBackend()
    async with front(backend, tls=tls(tmp_path, mutual=True)) as served:
        for files in ((), (tmp_path / "stranger.crt", tmp_path / "stranger.key")):
            async with AsyncRewriter(target(served), credentials=channel_credentials(authority, *files)) as refused:
                await unavailable(refused)
        assert backend.asked == []
        known = channel_credentials(authority, tmp_path / "pipeline.crt", tmp_path / "pipeline.key")
        async with AsyncRewriter(target(served), credentials=known, timeout_seconds=10) as rewriter:
            assert (await rewriter.rewrite(HISTORY, UTTERANCE)).text == REWRITE
    [line] = [vars(each)["facts"] for each in caplog.records if each.name == "serving.requests"]
    assert line["caller"] == "pipeline"


@pytest.mark.asyncio
async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_live_on(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    credentials = channel_credentials(tmp_path / "ca.crt")
    async with front(FakeBackend(), tls=tls(tmp_path)) as served:
        async with AsyncRewriter(target(served), credentials=credentials, timeout_seconds=10) as rewriter:
            await rewriter.rewrite(HISTORY, UTTERANCE)
            assert await asyncio.to_thread(subject, served) == "server"
            write_certificate(tmp_path, "renewed")
            os.replace(tmp_path / "renewed.crt", tmp_path / "server.crt")
            # Between the two files of a renewal: the new certificate does not fit the old key.
            assert await asyncio.to_thread(subject, served) == "server"
            os.replace(tmp_path / "renewed.key", tmp_path / "server.key")
            assert await asyncio.to_thread(subject, served) == "renewed"
            assert (await rewriter.rewrite(HISTORY, UTTERANCE)).text == REWRITE
        registry = served.server.observability.metrics.registry
    assert registry.get_sample_value("rewriter_reload_failures_total", {"file": "certificate"}) == 1


@pytest.mark.asyncio
async def test_files_that_vanish_change_nothing(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    async with front(FakeBackend(), tls=tls(tmp_path)) as served:
        (tmp_path / "server.key").unlink()
        assert await asyncio.to_thread(subject, served) == "server"


@pytest.mark.asyncio
async def test_the_end_of_the_certificate_is_a_metric_and_only_with_tls(tmp_path: Path) -> None:
    name = "rewriter_certificate_not_after_timestamp_seconds"
    async with front(FakeBackend(), tls=tls(write_certificate(tmp_path))) as served:
        expected = read_certificate(TlsSettings(**tls(tmp_path))).not_after.timestamp()
        assert served.server.observability.metrics.registry.get_sample_value(name) == expected
    async with front(FakeBackend()) as served:
        assert all(name != family.name for family in served.server.observability.metrics.registry.collect())


@pytest.mark.asyncio
async def test_the_command_rewrites_over_mutual_tls_with_a_token(tmp_path: Path) -> None:
    for name in ("server", "client"):
        write_certificate(tmp_path, name)
    (tmp_path / "tokens.toml").write_text(
        # The SHA-256 of "secret".
        '[shell]\nsha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"\n',
        encoding="utf-8",
    )
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    files = ["--ca-file", "ca.crt", "--certificate-file", "client.crt", "--key-file", "client.key"]

    async def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rewriter", "rewrite", "--server", target(served), *options]
        command += ["--history", HISTORY[0], UTTERANCE]
        paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, cwd=tmp_path, env=paths)

    auth = {"tokens_file": tmp_path / "tokens.toml"}
    async with front(FakeBackend(), tls=tls(tmp_path, mutual=True), auth=auth) as served:
        done = await run(*files, "--token-file", "token")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == REWRITE
        without_token = await run(*files)
        assert without_token.returncode == 2
        assert without_token.stderr.strip().endswith("UNAUTHENTICATED: expected a valid token")


def test_half_of_a_client_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected both a client's certificate and its key or neither"):
        channel_credentials(certificate_file=tmp_path / "client.crt")
