"""Who runs the model: the protocol, what it answers, and everything that may go wrong behind it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rewriter.conversation import Conversation
from rewriter.features import Features, Source
from serving.answer import Model

# A turn of our own, to see whether a model answers.
PROBE = Conversation(("今天西安的天气怎么样",), "明天呢")


@dataclass(frozen=True)
class Hypothesis:
    """One way to rewrite a source: the source positions to copy (-1 after the end)."""

    positions: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool


@dataclass(frozen=True)
class Prediction:
    """The model's answer for one source, best hypothesis first; never empty.

    ``answered_by`` is for a model other than the one that was asked, which reads the same arrays and took its place.
    """

    hypotheses: tuple[Hypothesis, ...]
    answered_by: "ServedModel | None" = None


class BackendError(Exception):
    """Trouble of ours with the model. Messages never hold text of the conversation."""


class BackendUnavailable(BackendError):
    """The model is not loaded, cannot be reached, or failed."""


class BackendUnreachable(BackendUnavailable):
    """The model was not reached, or the connection broke: asking once more may help, and does no harm."""


class BackendOverloaded(BackendError):
    """Too many turns are waiting for the model."""


class ModelChanged(BackendError):
    """Another model took the place of the one that was asked: choose again, and make the sources anew."""


class BackendTimeout(BackendError):
    """There was no answer in time."""


class BrokenAnswer(BackendError):
    """The model answered, and the answer cannot be right."""


class UnfinishedAnswer(BrokenAnswer):
    """The model did not end its answer within the length it may write."""


class Predict(Protocol):
    """``Backend.predict``, of one model."""

    async def __call__(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]: ...


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model in charge: what makes its sources, what it calls itself, and how to ask it.

    ``check`` raises the BackendError that asking would end with at once, whatever is asked: sources need not be made.
    """

    features: Features
    model: Model
    predict: Predict
    check: Callable[[], None] = lambda: None


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


async def all_of(answers: Sequence[Awaitable[Prediction]]) -> list[Prediction]:
    """Awaits them at once; one by itself, as nearly always, without the cost of a task of its own."""
    return [await answers[0]] if len(answers) == 1 else list(await asyncio.gather(*answers))
