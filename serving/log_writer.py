"""Log lines are made and written by a thread of their own: no caller waits for either, and who reads them may stall."""

import logging
import threading
import time
from collections import deque
from typing import TextIO

# Lines of so long a time are written together: under load, waking a thread for each costs more than the line.
_GATHER_SECONDS = 0.02
_FLUSH_SECONDS = 2.0


class LogWriter(logging.Handler):
    """Keeps up to ``most_waiting`` lines for ``stream``; what comes beyond that is lost, and how much is said."""

    def __init__(self, stream: TextIO, most_waiting: int = 10_000) -> None:
        super().__init__()
        self._stream = stream
        self._most_waiting = most_waiting
        self._waiting: deque[logging.LogRecord | threading.Event] = deque()
        self._lost, self._counting = 0, threading.Lock()
        self._something = threading.Event()
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._waiting) >= self._most_waiting:
            with self._counting:
                self._lost += 1
            return
        self._waiting.append(record)
        if not self._something.is_set():
            self._something.set()

    def flush(self) -> None:
        """Waits until all lines so far are written, two seconds at most; ``logging`` calls it as the process ends."""
        written = threading.Event()
        self._waiting.append(written)
        self._something.set()
        written.wait(_FLUSH_SECONDS)

    def _write(self) -> None:
        while self._something.wait():
            time.sleep(_GATHER_SECONDS)
            self._something.clear()
            lines: list[str] = []
            while self._waiting:
                item = self._waiting.popleft()
                if isinstance(item, logging.LogRecord):
                    lines += self._line(item)
                else:
                    self._write_out(lines)
                    lines = []
                    item.set()
            self._write_out([*lines, *self._said_of_lost()])

    def _line(self, record: logging.LogRecord) -> list[str]:
        """Empty for a record that cannot be formatted, which is a fault of ours."""
        try:
            return [self.format(record)]
        except Exception:
            self.handleError(record)
            return []

    def _write_out(self, lines: list[str]) -> None:
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads any more; there is nowhere to say so

    def _said_of_lost(self) -> list[str]:
        with self._counting:
            lost, self._lost = self._lost, 0
        if not lost:
            return []
        said = "%d lines of the log were lost"
        return [self.format(logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (lost,), None))]
