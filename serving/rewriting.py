"""The use case: a conversation becomes an answer, in time. Knows nothing of gRPC.

A chatbot must not go silent over a preprocessing step: whatever goes wrong with the model, there is an answer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from rewriter.conversation import Conversation, Rewrite
from rewriter.features import Features, Source, UtteranceTooLongError
from serving.answer import Alternative, Answer, Model, Outcome, PassthroughReason
from serving.backend import (
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    BrokenAnswer,
    Hypothesis,
    ModelChanged,
    Prediction,
    ServedModel,
    UnfinishedAnswer,
)
from serving.call import stage
from serving.logs import log_unexpected

_LOGGER = logging.getLogger(__name__)

REASONS: dict[type[Exception], PassthroughReason] = {
    BackendUnavailable: PassthroughReason.MODEL_UNAVAILABLE,
    ModelChanged: PassthroughReason.MODEL_UNAVAILABLE,
    BackendTimeout: PassthroughReason.DEADLINE,
    BackendOverloaded: PassthroughReason.OVERLOADED,
    BrokenAnswer: PassthroughReason.BROKEN_ANSWER,
    UnfinishedAnswer: PassthroughReason.UNFINISHED,
    UtteranceTooLongError: PassthroughReason.UTTERANCE_TOO_LONG,
}

# Ordinary conversations take 0.1 to 0.8 ms to encode, this many characters some 2 ms; longer ones leave the loop.
_MAX_CHARACTERS_ON_LOOP = 500

# Signs of a fault in the model, unlike load or long turns. Of a model that is not there, whoever watches it says so
# once: with each turn, it would fill the log.
_WORTH_A_LOOK = (PassthroughReason.BROKEN_ANSWER, PassthroughReason.UNFINISHED)

# Of the time, kept back for the way of the answer: with much of it, a busy machine need not be what makes it late.
_MARGIN_SHARE = 0.1

# A model is replaced now and then; replaced again and again during one request, something is wrong.
_MAX_MODELS_ASKED = 4

_WARM_UP_TURN = "今天西安的天气怎么样？"
_WARM_UP_REPEATS = (1, 4, 16, 32, 64)


class CannotRewrite(Exception):
    """There is no rewrite for this conversation, for the reason given."""

    def __init__(self, reason: PassthroughReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Rewriting:
    """Rewrites conversations, each with the model that ``choose`` names for its id.

    ``choose`` never raises; asked for "", it names the model in charge of everything that takes part in no trial.
    """

    def __init__(
        self,
        choose: Callable[[str], ServedModel],
        *,
        default_deadline_seconds: float,
        deadline_margin_seconds: float,
    ) -> None:
        self._choose = choose
        self._default_deadline_seconds = default_deadline_seconds
        self._deadline_margin_seconds = deadline_margin_seconds

    @property
    def features(self) -> Features:
        return self._choose("").features

    @property
    def model(self) -> Model:
        return self._choose("").model

    async def rewrite(
        self,
        conversation: Conversation,
        *,
        max_alternatives: int = 0,
        time_left_seconds: float | None = None,
    ) -> Answer:
        """Raises CannotRewrite, before the caller's time is up."""
        seconds = self._default_deadline_seconds
        if time_left_seconds is not None:
            seconds = min(time_left_seconds, seconds)
        try:
            # The backend is asked to keep to its timeout; this one holds even if it does not.
            async with asyncio.timeout(seconds - max(self._deadline_margin_seconds, _MARGIN_SHARE * seconds)) as limit:
                deadline = limit.when() or 0.0
                for _ in range(_MAX_MODELS_ASKED):
                    with contextlib.suppress(ModelChanged):
                        return await self._ask(conversation, max_alternatives, deadline)
                raise ModelChanged(f"expected a model to stay in charge, found {_MAX_MODELS_ASKED} changes")
        except TimeoutError:
            raise CannotRewrite(PassthroughReason.DEADLINE, "there was no rewrite in time") from None
        except (BackendError, UtteranceTooLongError) as error:
            raise CannotRewrite(_reason(error), str(error)) from error

    async def rewrite_or_pass_through(
        self,
        conversation: Conversation,
        *,
        max_alternatives: int = 0,
        time_left_seconds: float | None = None,
    ) -> Answer:
        """Answers with the original turn and the reason where ``rewrite`` would raise, also for a fault of ours."""
        try:
            return await self.rewrite(
                conversation,
                max_alternatives=max_alternatives,
                time_left_seconds=time_left_seconds,
            )
        except CannotRewrite as error:
            if error.reason in _WORTH_A_LOOK:
                _LOGGER.warning("passed a turn through: %s", error)
            return self._passed_through(conversation, error.reason)
        except Exception as error:
            log_unexpected(error)
            return self._passed_through(conversation, PassthroughReason.MODEL_UNAVAILABLE)

    async def warm_up(self, timeout_seconds: float) -> None:
        """Has the model answer conversations of every length, greedily and by beam search; raises BackendError.

        What it answers does not matter: the first answers of a model take long, and no caller should wait for them.
        The second ones tell the guards how long it really takes.
        """
        for repeats in _WARM_UP_REPEATS:
            served = self._choose("")
            source = served.features.encode(Conversation((_WARM_UP_TURN * repeats,), "明天呢？"))
            for beam in (False, False, True, True):
                with contextlib.suppress(ModelChanged):
                    await served.predict([source], beam=beam, timeout_seconds=timeout_seconds)

    def _passed_through(self, conversation: Conversation, reason: PassthroughReason) -> Answer:
        original = Rewrite.unchanged(conversation, confidence=0.0)
        return Answer(
            original.text,
            Outcome.PASSTHROUGH,
            reason,
            original.confidence,
            original.spans,
            (),
            False,
            self._choose(conversation.conversation_id).model,
        )

    async def _ask(self, conversation: Conversation, max_alternatives: int, deadline: float) -> Answer:
        """Asks the model in charge once. ``deadline`` is by the loop's clock."""
        served = self._choose(conversation.conversation_id)
        if conversation.history:
            served.check()
        with stage("tokenise"):
            source = await _encode(served.features, conversation)
        if source.nothing_to_do:
            return _answer(served, source, Rewrite.unchanged(conversation, confidence=1.0))
        timeout_seconds = deadline - asyncio.get_running_loop().time()
        [prediction] = await served.predict([source], beam=max_alternatives > 0, timeout_seconds=timeout_seconds)
        return _read(prediction.answered_by or served, source, prediction, max_alternatives)


def _reason(error: Exception) -> PassthroughReason:
    """Of the nearest kind of trouble that has one."""
    return next(REASONS[kind] for kind in type(error).__mro__ if kind in REASONS)


async def _encode(features: Features, conversation: Conversation) -> Source:
    # All of the history counts: turns that are blank are looked at, and then others are read in their place.
    if len(conversation.utterance) + sum(map(len, conversation.history)) <= _MAX_CHARACTERS_ON_LOOP:
        return features.encode(conversation)
    return await asyncio.to_thread(features.encode, conversation)


def _read(served: ServedModel, source: Source, prediction: Prediction, max_alternatives: int) -> Answer:
    best, *others = prediction.hypotheses
    rewrite = _restore(served.features, source, best)
    trusted = served.features.trusted(source, rewrite)
    alternatives: dict[str, Alternative] = {}
    for hypothesis in others:
        # Beams that never came to an end may hold anything; the best answer is good without them.
        with contextlib.suppress(BrokenAnswer):
            other = _restore(served.features, source, hypothesis)
            alternative = Alternative(other.text, other.spans, other.confidence, hypothesis.score)
            if other.text not in (trusted.text, rewrite.text):
                alternatives.setdefault(other.text, alternative)
    return _answer(served, source, trusted, tuple(alternatives.values())[:max_alternatives])


def _restore(features: Features, source: Source, hypothesis: Hypothesis) -> Rewrite:
    if not hypothesis.finished:
        raise UnfinishedAnswer("the model did not end its answer")
    try:
        rewrite = features.rewrite(source, hypothesis.positions, hypothesis.log_prob)
    except ValueError as error:
        raise BrokenAnswer(f"the model's answer cannot be read: {error}") from None
    if not rewrite.text:
        raise BrokenAnswer("the model's answer is empty")
    return rewrite


def _answer(
    served: ServedModel, source: Source, rewrite: Rewrite, alternatives: tuple[Alternative, ...] = ()
) -> Answer:
    return Answer(
        text=rewrite.text,
        outcome=Outcome.UNCHANGED if rewrite.text == source.conversation.utterance else Outcome.REWRITTEN,
        reason=None,
        confidence=rewrite.confidence,
        spans=rewrite.spans,
        alternatives=alternatives,
        history_truncated=source.truncated,
        model=served.model,
    )
