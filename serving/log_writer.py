"""Log lines are written by a thread of their own: whoever reads them may stall, and no caller waits for that."""

import logging
import queue
import threading
from typing import TextIO

_FLUSH_SECONDS = 1.0


class LogWriter(logging.Handler):
    """Keeps up to ``most_waiting`` lines for ``stream``; what comes beyond that is lost, and how much is said."""

    def __init__(self, stream: TextIO, most_waiting: int = 10_000) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: queue.Queue[str | threading.Event] = queue.Queue(most_waiting)
        self._lost = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if self._lost:
                self._waiting.put_nowait(self.format(_said_of(self._lost)))
                self._lost = 0
            self._waiting.put_nowait(line)
        except queue.Full:
            self._lost += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Waits until all lines so far are written, two seconds at most; ``logging`` calls it as the process ends."""
        written = threading.Event()
        try:
            self._waiting.put(written, timeout=_FLUSH_SECONDS)
        except queue.Full:
            return
        written.wait(_FLUSH_SECONDS)

    def _write(self) -> None:
        while True:
            line = self._waiting.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                pass  # nobody reads any more; there is nowhere to say so


def _said_of(lost: int) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, "%d lines of the log were lost", (lost,), None)
