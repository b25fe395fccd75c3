import logging
from pathlib import Path
from typing import Any

import pytest

from serving.config import ServerSettings
from serving.reloading import Reloading
from serving.settings import SettingsError


def settings(**changes: Any) -> ServerSettings:
    return ServerSettings(**{"model_dir": Path("models"), **changes})


class Applied:
    """Notes which settings it was given; ``next`` is what is read next."""

    def __init__(self, first: ServerSettings) -> None:
        self.next: ServerSettings | Exception = first
        self.calls: list[tuple[str, ServerSettings]] = []
        self.failures = 0
        appliers = {name: self.applier(name) for name in ("log.level", "rate_limit")}
        self.reloading = Reloading(first, self.load, appliers, self.fail)

    def applier(self, name: str) -> Any:
        return lambda found: self.calls.append((name, found))

    def load(self) -> ServerSettings:
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def fail(self) -> None:
        self.failures += 1

    def reload(self, found: ServerSettings | Exception) -> list[str]:
        """Returns what was applied."""
        self.next, self.calls = found, []
        self.reloading.reload()
        return [name for name, _ in self.calls]


def test_only_what_has_changed_is_applied_once() -> None:
    applied = Applied(settings())
    limits = {"turns_per_second": 5.0, "burst_turns": 10}
    assert applied.reload(settings(rate_limit=limits)) == ["rate_limit"]
    assert applied.calls[0][1].rate_limit.burst_turns == 10
    assert applied.reload(settings(rate_limit=limits)) == []
    assert applied.reload(settings(rate_limit=limits, log={"level": "DEBUG"})) == ["log.level"]


def test_what_needs_a_restart_is_named_every_time_and_never_applied(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    applied = Applied(settings())
    changed = settings(port=1, tls={"certificate_file": "a", "key_file": "b"}, log={"level": "ERROR"})
    assert applied.reload(changed) == ["log.level"]
    assert "settings: changed log.level" in caplog.text
    assert applied.reload(changed) == []
    assert caplog.text.count("restart only: port, tls.certificate_file, tls.key_file") == 2


def test_settings_that_cannot_be_used_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    applied = Applied(settings())
    assert applied.reload(SettingsError("rewriter.toml: port: expected a number\nlog.level: wrong")) == []
    assert caplog.text.count("kept as they were") == 2
    assert applied.failures == 1
    assert applied.reload(settings(log={"level": "DEBUG"})) == ["log.level"]
