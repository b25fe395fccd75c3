"""``rewriter serve --check-config`` as an operator runs it, and the checks behind it."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from certificates import tls, write_certificate
from saved_models import write_model

from serving.artefact import load_manifest, manifest_path
from serving.check_config import effective_configuration, problems
from serving.config import ServerSettings
from serving.settings import load
from serving.settings_keys import keys


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models"))


def write_tokens(path: Path, digest: str = hashlib.sha256(b"secret").hexdigest()) -> Path:
    path.write_text(f'[chatbot]\nsha256 = "{digest}"\n', encoding="utf-8")
    return path


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rewriter", "serve", "--check-config", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REWRITER_")}
    return subprocess.run(command, capture_output=True, text=True, env={**environment, "REWRITER_LOG__LEVEL": "ERROR"})


def test_good_settings_are_printed_as_toml_with_their_origins_and_without_secrets(
    model_dir: Path, tmp_path: Path
) -> None:
    config = tmp_path / "rewriter.toml"
    config.write_text('max_queue_size = 7\n[tracing]\nheaders = "authorization=hush"\n', encoding="utf-8")
    done = check("--config", str(config), "--model-dir", str(model_dir), "--set", "port=0")
    assert done.returncode == 0, done.stderr
    printed = tomllib.loads(done.stdout)
    assert (printed["max_queue_size"], printed["port"], printed["log"]["level"]) == (7, 0, "ERROR")
    assert f"max_queue_size = 7  # {config}: max_queue_size" in done.stdout
    assert 'level = "ERROR"  # REWRITER_LOG__LEVEL' in done.stdout
    assert "port = 0  # flag port" in done.stdout
    assert "hush" not in done.stdout + done.stderr


def test_what_would_fail_later_fails_the_check(tmp_path: Path) -> None:
    done = check("--model-dir", str(tmp_path), "--set", f"auth.tokens_file={tmp_path / 'none.toml'}")
    assert done.returncode == 2
    assert "expected a numbered version folder, found none" in done.stderr
    assert "none.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fault_in_the_settings_ends_in_status_2(model_dir: Path) -> None:
    done = check("--model-dir", str(model_dir), "--set", "prot=1")
    assert done.returncode == 2
    assert done.stderr.startswith("rewriter: flag prot: expected a known setting")


def test_everything_good_together_has_no_problems(model_dir: Path, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    tokens = write_tokens(tmp_path / "tokens.toml")
    settings = {"tls": tls(tmp_path, mutual=True), "auth": {"tokens_file": tokens}, "tracing": {"endpoint": None}}
    assert problems(ServerSettings(model_dir=model_dir, **settings)) == []  # type: ignore[arg-type]


def test_the_model_itself_is_needed_only_where_it_runs(model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(model_dir, tmp_path / "models")
    (tmp_path / "models/1/saved_model.pb").unlink()
    [problem] = problems(ServerSettings(model_dir=tmp_path / "models"))
    assert problem.endswith("expected saved_model.pb, found none")
    assert problems(ServerSettings(model_dir=tmp_path / "models", backend="tf_serving")) == []


def test_a_front_of_tf_serving_is_checked_for_the_version_that_it_would_begin_with(
    model_dir: Path, tmp_path: Path
) -> None:
    def problems_with(**changes: Any) -> list[str]:
        return problems(ServerSettings(model_dir=tmp_path, backend="tf_serving", tf_serving=changes))

    for number in (1, 2):
        shutil.copytree(model_dir / "1", tmp_path / str(number))
    manifest_path(tmp_path / "2").write_text("{}", encoding="utf-8")
    assert problems_with() == []
    [problem] = problems_with(version=9)
    assert problem.endswith("expected the assets of version 9, found no model.json")
    path = manifest_path(tmp_path / "1")
    path.write_text(load_manifest(tmp_path / "1").model_copy(update={"length_buckets": ()}).model_dump_json())
    [problem] = problems_with(version=1)
    assert "expected length_buckets up to" in problem


def _expired(folder: Path) -> dict[str, Any]:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    return {"tls": tls(write_certificate(folder, not_before=datetime(2019, 1, 1, tzinfo=UTC), not_after=past))}


def _of_another_key(folder: Path) -> dict[str, Any]:
    files = tls(write_certificate(folder))
    return {"tls": {**files, "key_file": write_certificate(folder, "other") / "other.key"}}


def _readable_by_all(folder: Path) -> dict[str, Any]:
    files = tls(write_certificate(folder))
    files["key_file"].chmod(0o644)
    return {"tls": files}


def _authority_that_is_none(folder: Path) -> dict[str, Any]:
    files = tls(write_certificate(folder), mutual=True)
    files["client_ca_file"].write_text("nonsense", encoding="utf-8")
    return {"tls": files}


def _short_token(folder: Path) -> dict[str, Any]:
    return {"auth": {"tokens_file": write_tokens(folder / "tokens.toml", "hush")}}


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (_expired, "clients accept, found .*server.crt: certificate has expired"),
        (_of_another_key, "expected PEM of a certificate and its unencrypted key, .*KEY_VALUES_MISMATCH"),
        (_readable_by_all, "tls.key_file: expected a file that only its owner and group can read, .* mode 644"),
        (_authority_that_is_none, "tls.client_ca_file: expected PEM, found"),
        (_short_token, "chatbot.sha256: expected 64 hexadecimal digits, found 4 other characters"),
        (lambda folder: {"host": "no.such.host.invalid", "allow_insecure": True}, "^host: expected an address or"),
        (lambda folder: {"metrics": {"port": 8600}}, "metrics.port: expected another port .*, found 8600 for both"),
    ],
)
def test_every_file_and_address_is_looked_at(
    model_dir: Path, tmp_path: Path, prepare: Callable[[Path], dict[str, Any]], problem: str
) -> None:
    [found] = problems(ServerSettings(model_dir=model_dir, **prepare(tmp_path)))
    assert re.search(problem, found), found


def test_every_setting_is_printed() -> None:
    printed = "\n".join(effective_configuration(load({"model_dir": "models"})))
    assert all(key.path.rpartition(".")[2] in printed for key in keys().values())
