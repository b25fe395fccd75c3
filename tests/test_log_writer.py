"""Lines are written by a thread of their own; see ``serving.log_writer``."""

import io
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from serving.log_writer import LogWriter


class Stalling(io.StringIO):
    """Writes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.stalls, self.go_on = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.stalls.set()
        self.go_on.wait()
        return super().write(text)


def logger_to(writer: LogWriter) -> logging.Logger:
    logger = logging.Logger("test")
    logger.addHandler(writer)
    return logger


def test_lines_are_written_in_order_and_flushed() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    logger = logger_to(writer)
    for number in range(100):
        logger.info("line %d", number)
    writer.flush()
    assert stream.getvalue().splitlines() == [f"line {number}" for number in range(100)]


def test_a_reader_that_stalls_holds_nobody_up_and_what_is_lost_is_counted() -> None:
    stream = Stalling()
    writer = LogWriter(stream, most_waiting=5)
    logger = logger_to(writer)
    logger.info("first")
    stream.stalls.wait()
    for number in range(100):
        logger.info("line %d", number)
    stream.go_on.set()
    writer.flush()
    logger.info("afterwards")
    writer.flush()
    kept = [f"line {number}" for number in range(5)]
    assert stream.getvalue().splitlines() == ["first", *kept, "95 lines of the log were lost", "afterwards"]


def test_a_line_that_cannot_be_made_does_not_stop_the_others() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    logger = logger_to(writer)
    logger.info("expected a number, found %d", "a word")
    logger.info("afterwards")
    writer.flush()
    assert stream.getvalue().splitlines() == ["afterwards"]


def test_a_stream_that_is_gone_is_no_trouble() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    stream.close()
    logger_to(writer).info("nobody reads this")
    writer.flush()


PROGRAM = """
import logging
from serving.config import LogSettings
from serving.logs import configure

configure(LogSettings())
for number in range(20000):
    logging.info("a line of some length, number %d", number)
print("done", flush=True)
"""


def test_a_process_whose_log_nobody_reads_goes_on_and_ends() -> None:
    reading, writing = os.pipe()  # holds some 64 KB and is never read
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=writing, cwd=Path(__file__).parent.parent
    )
    os.close(reading)
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert time.monotonic() - started < 60


def test_what_was_logged_last_is_written_before_the_process_ends() -> None:
    program = PROGRAM.replace("20000", "500")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert "number 499" in done.stderr
