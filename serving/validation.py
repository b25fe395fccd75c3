"""What a request may hold: names each field beyond a limit, with the limit and what arrived, never the text."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from serving.config import ServerSettings
from serving.pb import rewriter_pb2 as pb

MAX_REQUEST_ID_CHARACTERS = 128
MAX_CONVERSATION_ID_CHARACTERS = 128
# Violations travel in the trailing metadata, which is limited to some 8 KB.
_MAX_VIOLATIONS = 8
_FAILURE_MODES = frozenset(pb.FailureMode.values())


@dataclass(frozen=True)
class Violation:
    """``field`` is a path into the request; ``description`` says what was expected and what was found."""

    field: str
    description: str


class InvalidRequest(ValueError):
    """The caller's mistake; never empty."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__("; ".join(f"{violation.field}: {violation.description}" for violation in violations))
        self.violations = violations


def check_request(request: pb.RewriteRequest, settings: ServerSettings) -> None:
    """Raises InvalidRequest."""
    _raise_any(_violations(request, settings))


def check_batch(request: pb.BatchRewriteRequest, settings: ServerSettings) -> None:
    """Raises InvalidRequest for the batch as a whole; its items are checked one by one."""
    _raise_any(_too_many("requests", len(request.requests), settings.max_batch_items, "requests"))


def _violations(request: pb.RewriteRequest, settings: ServerSettings) -> Iterator[Violation]:
    if not request.utterance:
        yield Violation("utterance", "expected a turn, found nothing")
    yield from _too_many("utterance", len(request.utterance), settings.max_utterance_characters, "characters")
    yield from _too_many("history", len(request.history), settings.max_history_turns, "turns")
    # Turns beyond the limit are refused together: a message has room for a hundred thousand empty ones.
    for index, turn in enumerate(islice(request.history, settings.max_history_turns)):
        yield from _too_many(f"history[{index}]", len(turn), settings.max_turn_characters, "characters")
    if not 0 <= request.max_alternatives <= settings.max_alternatives:
        yield Violation(
            "max_alternatives", f"expected 0 to {settings.max_alternatives}, found {request.max_alternatives}"
        )
    if request.failure_mode not in _FAILURE_MODES:
        yield Violation("failure_mode", f"expected a known FailureMode, found {request.failure_mode}")
    yield from _too_many("request_id", len(request.request_id), MAX_REQUEST_ID_CHARACTERS, "characters")
    found = len(request.conversation_id)
    yield from _too_many("conversation_id", found, MAX_CONVERSATION_ID_CHARACTERS, "characters")


def _too_many(field: str, found: int, limit: int, unit: str) -> Iterator[Violation]:
    if found > limit:
        yield Violation(field, f"expected at most {limit} {unit}, found {found}")


def _raise_any(violations: Iterator[Violation]) -> None:
    found = tuple(islice(violations, _MAX_VIOLATIONS))
    if found:
        raise InvalidRequest(found)
