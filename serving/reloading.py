"""SIGHUP: the settings are read anew, and those that can change while serving do. The log names the others.

What is wrong with new settings is logged, and everything stays as it was.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from serving.config import ServerSettings
from serving.settings_keys import keys, value_at

_LOGGER = logging.getLogger(__name__)

Apply = Callable[[ServerSettings], None]


class Reloading:
    """``load`` raises ValueError (SettingsError) for settings that cannot be used.

    ``appliers`` are by the path of a key, or of a group for all of its keys; each is called once, and must not raise.
    """

    def __init__(
        self,
        settings: ServerSettings,
        load: Callable[[], ServerSettings],
        appliers: Mapping[str, Apply],
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._load = load
        self._appliers = appliers
        self._on_failure = on_failure

    def reload(self) -> None:
        """Never raises."""
        try:
            settings = self._load()
        except (ValueError, OSError) as error:
            for line in str(error).splitlines():
                _LOGGER.error("settings: kept as they were: %s", line)
            self._on_failure()
            return
        changed = [path for path in keys() if value_at(self._settings, path) != value_at(settings, path)]
        applied = {path: name for path in changed for name in self._appliers if _covers(name, path)}
        # Said before it is done: the new settings may silence the log.
        if applied:
            _LOGGER.info("settings: changed %s", ", ".join(applied))
        if waiting := [path for path in changed if path not in applied]:
            _LOGGER.warning("settings: these change with a restart only: %s", ", ".join(waiting))
        if not changed:
            _LOGGER.info("settings: nothing has changed")
        for name in dict.fromkeys(applied.values()):
            self._appliers[name](settings)
        # What waits for a restart is named again by the next reload.
        self._settings = _with(self._settings, settings, applied)


def _covers(name: str, path: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _with(old: Any, new: Any, paths: Mapping[str, str]) -> Any:
    """``old`` with the values that ``new`` has at the paths."""
    changes: dict[str, Any] = {}
    for name in {path.partition(".")[0] for path in paths}:
        below = {path.partition(".")[2]: path for path in paths if path.startswith(f"{name}.")}
        changes[name] = _with(getattr(old, name), getattr(new, name), below) if below else getattr(new, name)
    return old.model_copy(update=changes)
