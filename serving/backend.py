"""Who runs the model: the protocol, what it answers, and everything that may go wrong behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rewriter.features import Source


@dataclass(frozen=True)
class Hypothesis:
    """One way to rewrite a source: the source positions to copy (-1 after the end)."""

    positions: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool


@dataclass(frozen=True)
class Prediction:
    """The model's answer for one source, best hypothesis first; never empty."""

    hypotheses: tuple[Hypothesis, ...]


class BackendError(Exception):
    """Trouble of ours with the model. Messages never hold text of the conversation."""


class BackendUnavailable(BackendError):
    """The model is not loaded, cannot be reached, or failed."""


class BackendOverloaded(BackendError):
    """Too many turns are waiting for the model."""


class BackendTimeout(BackendError):
    """There was no answer in time."""


class BrokenAnswer(BackendError):
    """The model answered, and the answer cannot be right."""


class UnfinishedAnswer(BrokenAnswer):
    """The model did not end its answer within the length it may write."""


class Backend(Protocol):
    """Runs one version of one model. Foreign exceptions stop here: what it raises is a BackendError."""

    async def start(self) -> None:
        """Returns once the model is loaded; raises BackendUnavailable if it never will be."""

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        """Answers the sources in their order; may be called from many tasks at once.

        With ``beam``, a prediction holds several hypotheses, without, the greedy one.
        """

    async def close(self) -> None:
        """Finishes what was accepted, then lets go of the model."""
