import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from serving.config import LogSettings
from serving.logs import JsonFormatter, TextFormatter, configure, log_loop_errors

TEXT = "它的作者是谁"


def record(
    message: str, *arguments: object, facts: dict[str, Any] | None = None, error: Any = None
) -> logging.LogRecord:
    line = logging.LogRecord("serving.requests", logging.INFO, "here.py", 1, message, arguments, error)
    if facts is not None:
        line.facts = facts
    return line


def raised() -> Any:
    try:
        raise ValueError(TEXT)
    except ValueError:
        return sys.exc_info()


def test_a_line_for_machines_is_one_object_with_its_facts() -> None:
    line = JsonFormatter().format(record("%s %s", "Rewrite", "OK", facts={"code": "OK", "outcomes": {"REWRITTEN": 1}}))
    found = json.loads(line)
    moment = datetime.fromisoformat(found.pop("time"))
    assert moment.utcoffset() is not None and abs(moment.timestamp() - datetime.now().timestamp()) < 60
    assert found == {
        "level": "INFO",
        "logger": "serving.requests",
        "message": "Rewrite OK",
        "code": "OK",
        "outcomes": {"REWRITTEN": 1},
    }


def test_a_line_for_people_names_only_the_facts_there_are() -> None:
    line = TextFormatter().format(record("Rewrite OK", facts={"code": "OK", "trace_id": "", "turns": 2}))
    assert re.fullmatch(r'\d{4}-\d\d-\d\d [\d:]{8},\d{3} INFO serving\.requests Rewrite OK code="OK" turns=2', line)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_an_exception_is_written_as_its_type_and_stack_and_not_as_its_message(formatter: logging.Formatter) -> None:
    line = formatter.format(record("unexpected", error=raised()))
    assert "ValueError" in line and "in raised" in line
    assert TEXT not in line and json.dumps(TEXT)[1:-1] not in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_caller_cannot_add_a_line_to_the_log(formatter: logging.Formatter) -> None:
    name = "r-1\n2026-11-20 00:00:00,000 INFO serving.requests\r\x1b[2J"
    line = formatter.format(record("of %s", name, facts={"request_id": name}))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line.partition("request_id")[2]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was afterwards."""
    logger = logging.getLogger()
    handlers, level, hook = logger.handlers[:], logger.level, sys.unraisablehook
    yield logger
    logger.handlers[:], logger.level, sys.unraisablehook = handlers, level, hook


def test_the_settings_choose_format_and_level(root: logging.Logger) -> None:
    configure(LogSettings(format="json", level="WARNING"))
    [handler] = root.handlers
    assert isinstance(handler.formatter, JsonFormatter)
    assert root.level == logging.WARNING


def test_exceptions_in_threads_and_in_forgotten_tasks_are_told_by_type_alone() -> None:
    program = f"""
import asyncio, threading
from serving.config import LogSettings
from serving.logs import configure, log_loop_errors

async def fail():
    raise ValueError({TEXT!r})

async def forget():
    log_loop_errors(asyncio.get_running_loop())
    task = asyncio.ensure_future(fail())
    await asyncio.wait([task])

def fail_on_thread():
    raise KeyError({TEXT!r})

configure(LogSettings())
thread = threading.Thread(target=fail_on_thread)
thread.start()
thread.join()
asyncio.run(forget())
"""
    root_folder = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root_folder)
    assert "uncaught KeyError in a thread" in done.stderr
    assert "Task exception was never retrieved: ValueError" in done.stderr
    assert TEXT not in done.stderr and done.stdout == ""


@pytest.mark.asyncio
async def test_the_loop_reports_what_has_no_exception_too(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    log_loop_errors(loop)
    loop.call_exception_handler({"message": "odd", "future": TEXT})
    assert "event loop: odd: no exception" in caplog.text
    assert TEXT not in caplog.text


def test_a_caller_who_left_before_the_answer_is_no_error() -> None:
    program = """
import logging
from serving.config import LogSettings
from serving.logs import configure

class ExecuteBatchError(Exception):
    pass

configure(LogSettings())
for error in (ExecuteBatchError(), OSError()):
    try:
        raise error
    except Exception:
        logging.getLogger("grpc._cython.cygrpc").exception("%s raised in core", type(error).__name__)
"""
    root_folder = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root_folder)
    assert "OSError raised in core" in done.stderr
    assert "ExecuteBatchError" not in done.stderr
