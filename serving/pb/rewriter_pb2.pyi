from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FailureMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_MODE_UNSPECIFIED: _ClassVar[FailureMode]
    FAILURE_MODE_PASSTHROUGH: _ClassVar[FailureMode]
    FAILURE_MODE_ERROR: _ClassVar[FailureMode]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_REWRITTEN: _ClassVar[Outcome]
    OUTCOME_UNCHANGED: _ClassVar[Outcome]
    OUTCOME_PASSTHROUGH: _ClassVar[Outcome]

class PassthroughReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PASSTHROUGH_REASON_UNSPECIFIED: _ClassVar[PassthroughReason]
    PASSTHROUGH_REASON_MODEL_UNAVAILABLE: _ClassVar[PassthroughReason]
    PASSTHROUGH_REASON_DEADLINE: _ClassVar[PassthroughReason]
    PASSTHROUGH_REASON_OVERLOADED: _ClassVar[PassthroughReason]
    PASSTHROUGH_REASON_BROKEN_ANSWER: _ClassVar[PassthroughReason]
    PASSTHROUGH_REASON_UNFINISHED: _ClassVar[PassthroughReason]
    PASSTHROUGH_REASON_UTTERANCE_TOO_LONG: _ClassVar[PassthroughReason]

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    ORIGIN_HISTORY: _ClassVar[Origin]
    ORIGIN_UTTERANCE: _ClassVar[Origin]
    ORIGIN_FUNCTION_WORD: _ClassVar[Origin]
FAILURE_MODE_UNSPECIFIED: FailureMode
FAILURE_MODE_PASSTHROUGH: FailureMode
FAILURE_MODE_ERROR: FailureMode
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_REWRITTEN: Outcome
OUTCOME_UNCHANGED: Outcome
OUTCOME_PASSTHROUGH: Outcome
PASSTHROUGH_REASON_UNSPECIFIED: PassthroughReason
PASSTHROUGH_REASON_MODEL_UNAVAILABLE: PassthroughReason
PASSTHROUGH_REASON_DEADLINE: PassthroughReason
PASSTHROUGH_REASON_OVERLOADED: PassthroughReason
PASSTHROUGH_REASON_BROKEN_ANSWER: PassthroughReason
PASSTHROUGH_REASON_UNFINISHED: PassthroughReason
PASSTHROUGH_REASON_UTTERANCE_TOO_LONG: PassthroughReason
ORIGIN_UNSPECIFIED: Origin
ORIGIN_HISTORY: Origin
ORIGIN_UTTERANCE: Origin
ORIGIN_FUNCTION_WORD: Origin

class RewriteRequest(_message.Message):
    __slots__ = ("history", "utterance", "max_alternatives", "failure_mode", "request_id", "conversation_id")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    UTTERANCE_FIELD_NUMBER: _ClassVar[int]
    MAX_ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_MODE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    history: _containers.RepeatedScalarFieldContainer[str]
    utterance: str
    max_alternatives: int
    failure_mode: FailureMode
    request_id: str
    conversation_id: str
    def __init__(self, history: _Optional[_Iterable[str]] = ..., utterance: _Optional[str] = ..., max_alternatives: _Optional[int] = ..., failure_mode: _Optional[_Union[FailureMode, str]] = ..., request_id: _Optional[str] = ..., conversation_id: _Optional[str] = ...) -> None: ...

class RewriteResponse(_message.Message):
    __slots__ = ("text", "outcome", "passthrough_reason", "confidence", "spans", "alternatives", "history_truncated", "model", "request_id")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PASSTHROUGH_REASON_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    HISTORY_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    text: str
    outcome: Outcome
    passthrough_reason: PassthroughReason
    confidence: float
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    alternatives: _containers.RepeatedCompositeFieldContainer[Alternative]
    history_truncated: bool
    model: Model
    request_id: str
    def __init__(self, text: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., passthrough_reason: _Optional[_Union[PassthroughReason, str]] = ..., confidence: _Optional[float] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., alternatives: _Optional[_Iterable[_Union[Alternative, _Mapping]]] = ..., history_truncated: _Optional[bool] = ..., model: _Optional[_Union[Model, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("start", "end", "origin", "turn", "source_start", "source_end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_START_FIELD_NUMBER: _ClassVar[int]
    SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    origin: Origin
    turn: int
    source_start: int
    source_end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., origin: _Optional[_Union[Origin, str]] = ..., turn: _Optional[int] = ..., source_start: _Optional[int] = ..., source_end: _Optional[int] = ...) -> None: ...

class Alternative(_message.Message):
    __slots__ = ("text", "spans", "confidence", "score")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    text: str
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    confidence: float
    score: float
    def __init__(self, text: _Optional[str] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., confidence: _Optional[float] = ..., score: _Optional[float] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "version", "vocabulary_fingerprint")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    vocabulary_fingerprint: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., vocabulary_fingerprint: _Optional[str] = ...) -> None: ...

class BatchRewriteRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RewriteRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[RewriteRequest, _Mapping]]] = ...) -> None: ...

class BatchRewriteResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchRewriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[BatchRewriteResult, _Mapping]]] = ...) -> None: ...

class BatchRewriteResult(_message.Message):
    __slots__ = ("response", "error")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    response: RewriteResponse
    error: RewriteError
    def __init__(self, response: _Optional[_Union[RewriteResponse, _Mapping]] = ..., error: _Optional[_Union[RewriteError, _Mapping]] = ...) -> None: ...

class RewriteError(_message.Message):
    __slots__ = ("code", "message", "request_id")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    request_id: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class StreamRewriteRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: RewriteRequest
    def __init__(self, request: _Optional[_Union[RewriteRequest, _Mapping]] = ...) -> None: ...

class StreamRewriteResponse(_message.Message):
    __slots__ = ("request_id", "response", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    response: RewriteResponse
    error: RewriteError
    def __init__(self, request_id: _Optional[str] = ..., response: _Optional[_Union[RewriteResponse, _Mapping]] = ..., error: _Optional[_Union[RewriteError, _Mapping]] = ...) -> None: ...

class GetModelInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelInfoResponse(_message.Message):
    __slots__ = ("model", "max_source_tokens", "max_utterance_tokens", "max_history_turns_read", "max_history_turns", "max_turn_characters", "max_utterance_characters", "max_alternatives", "max_batch_items", "max_message_bytes", "max_stream_requests", "max_answer_milliseconds", "server_version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_UTTERANCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_HISTORY_TURNS_READ_FIELD_NUMBER: _ClassVar[int]
    MAX_HISTORY_TURNS_FIELD_NUMBER: _ClassVar[int]
    MAX_TURN_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    MAX_UTTERANCE_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    MAX_ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ANSWER_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    model: Model
    max_source_tokens: int
    max_utterance_tokens: int
    max_history_turns_read: int
    max_history_turns: int
    max_turn_characters: int
    max_utterance_characters: int
    max_alternatives: int
    max_batch_items: int
    max_message_bytes: int
    max_stream_requests: int
    max_answer_milliseconds: int
    server_version: str
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ..., max_source_tokens: _Optional[int] = ..., max_utterance_tokens: _Optional[int] = ..., max_history_turns_read: _Optional[int] = ..., max_history_turns: _Optional[int] = ..., max_turn_characters: _Optional[int] = ..., max_utterance_characters: _Optional[int] = ..., max_alternatives: _Optional[int] = ..., max_batch_items: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_stream_requests: _Optional[int] = ..., max_answer_milliseconds: _Optional[int] = ..., server_version: _Optional[str] = ...) -> None: ...
