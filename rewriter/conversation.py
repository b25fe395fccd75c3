"""What the rewriter reads (a conversation) and what it gives back (a rewrite with the origin of every piece)."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Conversation:
    """The turns said so far, oldest first, and the incoming turn that is to be made self-contained.

    ``conversation_id`` is any name, the same for all turns of a conversation. No model reads it: a service that tries
    out a new version on a share of the conversations chooses by it.
    """

    history: tuple[str, ...]
    utterance: str
    conversation_id: str = ""


@dataclass(frozen=True)
class Example:
    """A conversation with the rewrite that a person wrote for its utterance, and others as good.

    ``kind`` says what the rewrite is about, where the corpus says so (see ``corpus.KINDS``).
    """

    conversation: Conversation
    reference: str
    alternatives: tuple[str, ...] = ()
    kind: str = ""

    @property
    def references(self) -> tuple[str, ...]:
        """All the right answers, the best one first."""
        return (self.reference, *self.alternatives)


class Origin(Enum):
    """Where a piece of a rewrite was copied from."""

    HISTORY = "history"
    UTTERANCE = "utterance"
    FUNCTION_WORD = "function word"


@dataclass(frozen=True)
class Span:
    """A piece of a rewrite and the place it was copied from; offsets count Unicode code points, ends are exclusive.

    ``turn`` indexes the history, oldest turn first; it is ``len(history)`` for the utterance and -1 for a word of the
    function-word bank, whose ``source_start`` and ``source_end`` are 0.
    """

    start: int
    end: int
    origin: Origin
    turn: int
    source_start: int
    source_end: int


@dataclass(frozen=True)
class Rewrite:
    """The self-contained turn.

    ``confidence`` is the model's probability of exactly this rewrite (0 to 1), calibrated where the model's folder says
    how; of an utterance given back instead, what is left to it. ``history_gates`` holds, for each
    written token, the share of the copy distribution that lay on the history (the paper's lambda).
    """

    text: str
    spans: tuple[Span, ...]
    confidence: float
    history_gates: tuple[float, ...] = ()

    @classmethod
    def unchanged(cls, conversation: Conversation, confidence: float) -> "Rewrite":
        """The utterance exactly as it was typed."""
        text = conversation.utterance
        span = Span(0, len(text), Origin.UTTERANCE, len(conversation.history), 0, len(text))
        return cls(text, (span,) if text else (), confidence)
