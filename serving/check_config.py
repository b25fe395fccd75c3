"""``rewriter serve --check-config``: everything a start would need is looked at, and nothing is started."""

import importlib.util
import json
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from rewriter import __version__
from serving.artefact import load_features, newest_version
from serving.config import ServerSettings
from serving.settings import Loaded
from serving.settings_keys import keys, value_at
from serving.tf_serving.catalogue import Catalogue
from serving.tls import read_certificate
from serving.tokens import read_tokens
from serving.tracing import connect

HIDDEN = "********"

_Check = Callable[[ServerSettings], Iterator[str]]


def report(loaded: Loaded) -> int:
    """Prints the settings, and the problems to standard error; returns the status for the command to end with."""
    found = problems(loaded.settings)
    for line in effective_configuration(loaded):
        print(line)
    for problem in found:
        print(f"rewriter: {problem}", file=sys.stderr)
    return 2 if found else 0


def problems(settings: ServerSettings) -> list[str]:
    """What would keep a server with these settings from starting, or is unsafe. The model is found but not loaded."""
    checks: list[_Check] = [_model, _addresses, _tls, _tokens, _tracing]
    return [problem for check in checks for problem in _caught(check, settings)]


def effective_configuration(loaded: Loaded) -> Iterator[str]:
    """Lines of TOML, every key with its value and where that came from; secrets are hidden."""
    group = ""
    for key in keys().values():
        if key.group != group:
            group = key.group
            yield f"\n[{group}]"
        value = value_at(loaded.settings, key.path)
        name = key.path.rpartition(".")[2]
        line = f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"
        yield f"{line}  # {loaded.origins.get(key.path, 'default')}"


def _caught(check: _Check, settings: ServerSettings) -> list[str]:
    try:
        return list(check(settings))
    except (OSError, ValueError, LookupError) as error:
        return [str(error)]


def _model(settings: ServerSettings) -> Iterator[str]:
    if settings.backend == "tf_serving":
        # TF Serving has the model itself; the front needs what goes with it.
        Catalogue(settings.model_dir).initial(settings.tf_serving.version)
        return
    version_dir = newest_version(settings.model_dir)
    load_features(version_dir)
    if not (version_dir / "saved_model.pb").is_file():
        yield f"{version_dir}: expected saved_model.pb, found none"
    if importlib.util.find_spec("tensorflow") is None:
        yield "backend: expected tf_serving where TensorFlow is not installed, found embedded"


def _addresses(settings: ServerSettings) -> Iterator[str]:
    yield from _resolved("host", settings.host)
    if not settings.metrics.enabled:
        return
    yield from _resolved("metrics.host", settings.metrics.host)
    if settings.port == settings.metrics.port != 0:
        yield f"metrics.port: expected another port than that of the service, found {settings.metrics.port} for both"


def _resolved(key: str, host: str) -> Iterator[str]:
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_PASSIVE)
    except OSError as error:
        yield f"{key}: expected an address or a name of this machine, found {host!r}: {error}"


def _tls(settings: ServerSettings) -> Iterator[str]:
    if settings.tls.enabled:
        read_certificate(settings.tls)
        assert settings.tls.key_file is not None
        yield from _readable_by_others("tls.key_file", settings.tls.key_file)


def _tokens(settings: ServerSettings) -> Iterator[str]:
    if settings.auth.tokens_file is not None:
        read_tokens(settings.auth.tokens_file)
    yield from ()


def _readable_by_others(key: str, path: Path) -> Iterator[str]:
    mode = path.stat().st_mode & 0o777
    if mode & 0o007:
        yield f"{key}: expected a file that only its owner and group can read, found {path} with mode {mode:o}"


def _tracing(settings: ServerSettings) -> Iterator[str]:
    connect(settings.tracing, __version__).shut_down()
    yield from ()


def _toml(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's too."""
    if isinstance(value, SecretStr):
        return json.dumps(HIDDEN)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Path):
        value = str(value)
    return json.dumps(value, ensure_ascii=False)
