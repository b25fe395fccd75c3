"""Messages of the contract to plain values and back. Used on both sides, so that neither can drift from the other."""

from collections.abc import Iterable

from rewriter.conversation import Conversation, Origin, Span
from serving.answer import Alternative, Answer, Model, Outcome, PassthroughReason
from serving.pb import rewriter_pb2 as pb

_OUTCOMES = {outcome: pb.Outcome.Value(f"OUTCOME_{outcome.name}") for outcome in Outcome}
_REASONS = {reason: pb.PassthroughReason.Value(f"PASSTHROUGH_REASON_{reason.name}") for reason in PassthroughReason}
_ORIGINS = {origin: pb.Origin.Value(f"ORIGIN_{origin.name}") for origin in Origin}
_OUTCOME_OF = {number: outcome for outcome, number in _OUTCOMES.items()}
_REASON_OF = {number: reason for reason, number in _REASONS.items()}
_ORIGIN_OF = {number: origin for origin, number in _ORIGINS.items()}


def to_conversation(request: pb.RewriteRequest) -> Conversation:
    return Conversation(tuple(request.history), request.utterance, request.conversation_id)


def to_request(
    conversation: Conversation,
    *,
    max_alternatives: int = 0,
    failure_as_error: bool = False,
    request_id: str = "",
) -> pb.RewriteRequest:
    """Raises UnicodeEncodeError (a ValueError) for text that no UTF-8 can spell, such as a lone surrogate."""
    return pb.RewriteRequest(
        history=conversation.history,
        utterance=conversation.utterance,
        max_alternatives=max_alternatives,
        failure_mode=pb.FAILURE_MODE_ERROR if failure_as_error else pb.FAILURE_MODE_UNSPECIFIED,
        request_id=request_id,
        conversation_id=conversation.conversation_id,
    )


def to_response(answer: Answer, request_id: str) -> pb.RewriteResponse:
    return pb.RewriteResponse(
        text=answer.text,
        outcome=_OUTCOMES[answer.outcome],
        passthrough_reason=_REASONS[answer.reason] if answer.reason else pb.PASSTHROUGH_REASON_UNSPECIFIED,
        confidence=answer.confidence,
        spans=_to_messages(answer.spans),
        alternatives=[
            pb.Alternative(text=a.text, spans=_to_messages(a.spans), confidence=a.confidence, score=a.score)
            for a in answer.alternatives
        ],
        history_truncated=answer.history_truncated,
        model=to_model_message(answer.model),
        request_id=request_id,
    )


def to_answer(response: pb.RewriteResponse) -> Answer:
    """Raises LookupError for an outcome or origin that this side does not know."""
    return Answer(
        text=response.text,
        outcome=_OUTCOME_OF[response.outcome],
        reason=_REASON_OF.get(response.passthrough_reason),
        confidence=response.confidence,
        spans=_to_spans(response.spans),
        alternatives=tuple(
            Alternative(a.text, _to_spans(a.spans), a.confidence, a.score) for a in response.alternatives
        ),
        history_truncated=response.history_truncated,
        model=to_model(response.model),
    )


def to_model_message(model: Model) -> pb.Model:
    return pb.Model(name=model.name, version=model.version, vocabulary_fingerprint=model.vocabulary_fingerprint)


def to_model(message: pb.Model) -> Model:
    return Model(message.name, message.version, message.vocabulary_fingerprint)


def _to_messages(spans: Iterable[Span]) -> list[pb.Span]:
    return [
        pb.Span(
            start=span.start,
            end=span.end,
            origin=_ORIGINS[span.origin],
            turn=span.turn,
            source_start=span.source_start,
            source_end=span.source_end,
        )
        for span in spans
    ]


def _to_spans(messages: Iterable[pb.Span]) -> tuple[Span, ...]:
    return tuple(
        Span(
            start=message.start,
            end=message.end,
            origin=_ORIGIN_OF[message.origin],
            turn=message.turn,
            source_start=message.source_start,
            source_end=message.source_end,
        )
        for message in messages
    )
