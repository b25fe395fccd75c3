"""What the service answers, as plain values, filled in by the server and handed out by the client."""

from dataclasses import dataclass
from enum import Enum

from rewriter.conversation import Span


class Outcome(Enum):
    """What happened to a turn."""

    REWRITTEN = "rewritten"
    UNCHANGED = "unchanged"
    PASSTHROUGH = "passthrough"


class PassthroughReason(Enum):
    """Why the original turn was passed through."""

    MODEL_UNAVAILABLE = "model unavailable"
    DEADLINE = "deadline"
    OVERLOADED = "overloaded"
    BROKEN_ANSWER = "broken answer"
    UNFINISHED = "unfinished"
    UTTERANCE_TOO_LONG = "utterance too long"


@dataclass(frozen=True)
class Model:
    """Which model answered; the fingerprint is the SHA-256 of its vocabulary in hexadecimal."""

    name: str
    version: str
    vocabulary_fingerprint: str


@dataclass(frozen=True)
class Alternative:
    """Another rewrite of the same turn; they are ranked by ``score``, the length-normalised log-probability."""

    text: str
    spans: tuple[Span, ...]
    confidence: float
    score: float


@dataclass(frozen=True)
class Answer:
    """The turn to use from here on. ``reason`` is for passthroughs; None there if newer than this client.

    ``confidence`` says how likely exactly this text is right, as the model was calibrated: 1 where there was nothing to
    rewrite, 0 for a passthrough; for a turn left alone because its rewrite was not trusted, 1 less that rewrite's.
    """

    text: str
    outcome: Outcome
    reason: PassthroughReason | None
    confidence: float
    spans: tuple[Span, ...]
    alternatives: tuple[Alternative, ...]
    history_truncated: bool
    model: Model
