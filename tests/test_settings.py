from pathlib import Path
from typing import Any

import pytest

from serving.config import ServerSettings
from serving.generate import REPOSITORY
from serving.reference import page
from serving.settings import SettingsError, load, parse_flags
from serving.settings_keys import keys

FLAGS = {"model_dir": Path("models")}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in keys().values():
        monkeypatch.delenv(key.variable, raising=False)


def config_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rewriter.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(flags: dict[str, Any], path: Path | None = None) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        load({**FLAGS, **flags}, path)
    return str(raised.value).split("\n")


def test_flags_beat_variables_and_variables_beat_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config_file(tmp_path, "port = 1\nmax_queue_size = 1\n[rate_limit]\nburst_turns = 1\nturns_per_second = 1\n")
    monkeypatch.setenv("REWRITER_PORT", "2")
    monkeypatch.setenv("REWRITER_RATE_LIMIT__BURST_TURNS", "2")
    loaded = load({**FLAGS, "port": 3, "rate_limit.burst_turns": "3"}, path)
    settings = loaded.settings
    assert (settings.port, settings.rate_limit.burst_turns) == (3, 3)
    assert (settings.max_queue_size, settings.rate_limit.turns_per_second) == (1, 1.0)
    monkeypatch.setenv("REWRITER_MAX_QUEUE_SIZE", "2")
    loaded = load(FLAGS, path)
    assert (loaded.settings.port, loaded.settings.max_queue_size, loaded.settings.rate_limit.burst_turns) == (2, 2, 2)
    assert loaded.origins["rate_limit.burst_turns"] == "REWRITER_RATE_LIMIT__BURST_TURNS"
    assert loaded.origins["rate_limit.turns_per_second"] == f"{path}: rate_limit.turns_per_second"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"port": "x"}, "flag port: expected a whole number from 0 to 65535, found 'x'"),
        ({"max_queue_size": 0}, "flag max_queue_size: expected a whole number, at least 1, found 0"),
        # What gRPC cannot hold would end the start in a stack trace.
        ({"max_connection_age_seconds": "inf"}, "flag max_connection_age_seconds: expected"),
        ({"max_message_bytes": 2**30}, "flag max_message_bytes: expected a whole number"),
        ({"log.format": "xml"}, "flag log.format: expected one of text, json, found 'xml'"),
        ({"tracing.endpoint": "collector"}, "flag tracing.endpoint: expected http://HOST:PORT or https://HOST:PORT"),
        ({"tls.key_file": "k"}, "tls: expected both certificate_file and key_file or neither, found one of them"),
        ({"tls.client_ca_file": "ca"}, "tls: expected certificate_file and key_file beside client_ca_file"),
        ({"metrics.prot": "1"}, "flag metrics.prot: expected a known setting, found an unknown one; did you mean"),
        ({"host": "0.0.0.0"}, "settings: expected a loopback host, found '0.0.0.0': without TLS"),
    ],
)
def test_a_fault_is_named_with_what_was_expected_and_what_was_found(flags: dict[str, Any], problem: str) -> None:
    [found] = problems(flags)
    assert found.startswith(problem)


def test_every_fault_is_named_at_once_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config_file(tmp_path, "max_batch_size = 1.5\n[tls]\nkey_file = 3\n")
    monkeypatch.setenv("REWRITER_TRACING__SAMPLE_RATIO", "2")
    assert problems({}, path) == [
        f"{path}: max_batch_size: expected a whole number, at least 1, found 1.5",
        "REWRITER_TRACING__SAMPLE_RATIO: expected a number from 0 to 1, found '2'",
        f"{path}: tls.key_file: expected a path, found 3",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prot = 1", "prot: expected a known setting, found an unknown one; did you mean port?"),
        ("[tsl]\nkey_file = 'k'", "tsl: expected a known setting, found an unknown one; did you mean tls?"),
        ("[tls]\ncert_file = 'k'", "tls.cert_file: expected a known setting, found an unknown one; did you mean"),
        ("port: 1", "expected TOML, found something else"),
    ],
)
def test_a_file_with_a_misspelt_key_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = config_file(tmp_path, text)
    [found] = problems({}, path)
    assert found.startswith(f"{path}: {problem}")


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("REWRITER_PROT", "1", "expected a known setting, found an unknown one; did you mean REWRITER_PORT?"),
        ("REWRITER_TLS__KEYFILE", "k", "expected a known setting, found an unknown one; did you mean REWRITER_TLS__K"),
        ("REWRITER_TLS", "{}", "expected a known setting, found an unknown one"),
        ("REWRITER_TLS", "yes", "expected a known setting, found an unknown one"),
        ("REWRITER_TF_SERVING__ADDRESSES", "tf-serving:8500", "expected a list as JSON, found 'tf-serving:8500'"),
        ("REWRITER_PORT", "tcp://10.0.0.1:8600", "expected a setting, found a service link of Kubernetes"),
        ("REWRITER_SERVICE_HOST", "10.0.0.1", "expected a setting, found a service link of Kubernetes"),
    ],
)
def test_a_variable_that_is_no_setting_or_unreadable_does_not_go_unnoticed(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    [found] = problems({})
    assert found.startswith(f"{variable}: {problem}")


def test_an_empty_variable_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_TLS__CERTIFICATE_FILE", "")
    assert not load(FLAGS).settings.tls.enabled


def test_the_folder_of_models_has_to_be_named() -> None:
    with pytest.raises(SettingsError, match="model_dir: expected a path, found none; it is also REWRITER_MODEL_DIR"):
        load({})


def test_a_secret_is_never_repeated() -> None:
    [found] = problems({"tracing.headers": 17})
    assert "17" not in found
    loaded = load({**FLAGS, "tracing.headers": "authorization=hush"})
    assert "hush" not in repr(loaded)


@pytest.mark.parametrize("headers", ["authorization=hush,", "hush", "authorization=", "=hush", "a=hush,,b=2", ""])
def test_headers_that_a_collector_would_never_get_are_refused_without_quoting_them(headers: str) -> None:
    [found] = problems({"tracing.headers": headers})
    assert found == "flag tracing.headers: expected name=value with commas between, found another form"


def test_an_assignment_without_a_value_is_refused() -> None:
    assert parse_flags(["host=a=b", "log.level="]) == {"host": "a=b", "log.level": ""}
    with pytest.raises(SettingsError, match="--set: expected KEY=VALUE, found 'port'"):
        parse_flags(["port"])


def test_tls_is_enough_to_serve_other_machines() -> None:
    files = {"certificate_file": Path("c"), "key_file": Path("k")}
    assert ServerSettings(model_dir=Path("models"), host="0.0.0.0", tls=files).tls.enabled  # type: ignore[arg-type]


def test_every_setting_is_described_and_has_a_variable_of_its_own() -> None:
    found = keys().values()
    assert all(key.description and key.expected != "a value" for key in found), found
    assert len({key.variable for key in found}) == len(found)


def test_the_page_of_settings_is_fresh() -> None:
    stored = (REPOSITORY / "docs/settings.md").read_text(encoding="utf-8")
    assert stored == page(), "run `make docs`"
