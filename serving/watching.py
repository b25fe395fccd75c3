"""Values that live in files and follow them: read again when a file changes, kept if the new file is bad."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Value = TypeVar("Value")

_LOGGER = logging.getLogger(__name__)
_Signature = tuple[tuple[int, int, int] | None, ...]


class Watched(Generic[Value]):
    """``read`` is called once here, whose exception is raised, and again after every change of a file."""

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        read: Callable[[], Value],
        *,
        on_failure: Callable[[], None] = lambda: None,
        check_seconds: float = 1.0,
    ) -> None:
        self._name = name
        self._paths = paths
        self._read = read
        self._on_failure = on_failure
        self._check_seconds = check_seconds
        self._lock = threading.Lock()
        # The signature is taken first: a file that changes while it is read is read again.
        self._signature = self._sign()
        self._value = read()
        self._checked = time.monotonic()

    def get(self) -> Value:
        """The newest good value; looks at the files every ``check_seconds`` at most. For any thread."""
        with self._lock:
            now = time.monotonic()
            if now - self._checked >= self._check_seconds:
                self._checked = now
                self._follow()
            return self._value

    def _follow(self) -> None:
        signature = self._sign()
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:
            # Files of ours, not of a caller, so their errors may be quoted.
            _LOGGER.error("%s: kept as it was, the changed file cannot be used: %s", self._name, error)
            self._on_failure()
        else:
            _LOGGER.info("%s: read again", self._name)

    def _sign(self) -> _Signature:
        return tuple(map(_signature, self._paths))


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
