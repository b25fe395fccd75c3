"""What is written to standard error: one line an event, for people or as JSON. Never the text of a conversation.

Facts of a line travel in ``extra={"facts": {...}}``. Of exceptions only the type and the stack are written: their
messages may quote whatever was being worked on.
"""

import asyncio
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from serving.config import LogSettings
from serving.log_writer import LogWriter

_LOGGER = logging.getLogger(__name__)

_GRPC = "grpc._cython.cygrpc"


def configure(settings: LogSettings) -> None:
    """Replaces what logs so far. Exceptions that nobody catches are logged too, instead of printed."""
    handler = LogWriter(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    logging.basicConfig(level=settings.level, handlers=[handler], force=True)
    logging.getLogger(_GRPC).addFilter(_is_news)
    threading.excepthook = lambda found: _log_uncaught("a thread", found.exc_type)
    sys.unraisablehook = lambda found: _log_uncaught("a finalizer", found.exc_type)


def log_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """What asyncio says about forgotten exceptions quotes them; this says the type."""

    def log(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        _LOGGER.error("event loop: %s: %s", context["message"], type(error).__name__ if error else "no exception")

    loop.set_exception_handler(log)


class TextFormatter(logging.Formatter):
    """``2026-11-20 14:51:09,123 INFO serving.requests Rewrite OK code="OK" milliseconds=12.3``, stacks below."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        facts = _facts(record)
        stack = facts.pop("stack", "")
        said = "".join(f" {name}={json.dumps(value)}" for name, value in facts.items() if value)
        line = (
            f"{moment},{int(record.msecs):03d} {record.levelname} {record.name} {_one_line(record.getMessage())}{said}"
        )
        return f"{line}\n{stack}".rstrip("\n")


class JsonFormatter(logging.Formatter):
    """One object a line; ``time`` is UTC in ISO 8601."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps({**line, **_facts(record)})


def stack_of(error: BaseException) -> str:
    """Where it was raised and its type, without its message."""
    return "".join(traceback.format_list(traceback.extract_tb(error.__traceback__))) + type(error).__name__


def log_unexpected(error: BaseException) -> None:
    """A fault of ours, where it does not go any further."""
    # Stack without values: messages of foreign exceptions may quote the conversation.
    _LOGGER.error("unexpected %s", type(error).__name__, extra={"facts": {"stack": stack_of(error)}})


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = dict(getattr(record, "facts", {}))
    if record.exc_info and record.exc_info[1] is not None:
        facts["stack"] = stack_of(record.exc_info[1])
    return facts


def _is_news(record: logging.LogRecord) -> bool:
    """False where gRPC found a caller gone before its answer was sent: that is no error, and the call has its line."""
    return record.exc_info is None or getattr(record.exc_info[0], "__name__", "") != "ExecuteBatchError"


def _one_line(message: str) -> str:
    """A caller who names a request cannot add lines to the log."""
    return message.replace("\r", "\\r").replace("\n", "\\n")


def _log_uncaught(where: str, kind: type[BaseException] | None) -> None:
    _LOGGER.error("uncaught %s in %s", kind.__name__ if kind else "exception", where)
