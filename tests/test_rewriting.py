import math
import threading
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from front import MANIFEST, FakeBackend, failing_with, first_word_and_utterance, hypothesis, rewriting
from saved_models import FEATURES, FINGERPRINT, VOCABULARY

from rewriter.config import Calibration
from rewriter.conversation import Conversation, Origin, Span
from rewriter.features import Features, Source
from serving.answer import Outcome, PassthroughReason
from serving.backend import BackendError, BackendUnavailable, BrokenAnswer, Prediction, ServedModel
from serving.conversion import to_answer, to_response
from serving.errors import CODES
from serving.rewriting import REASONS, CannotRewrite, Rewriting
from serving.signatures import read_predictions

WEATHER = Conversation(("西安今天的天气怎么样",), "明天有雨吗")
WEATHER_END_OF_TURN = 16 + 5  # the bank, then 西安 今天 的 天气 怎么样


async def reason_for(backend: FakeBackend, conversation: Conversation = WEATHER) -> PassthroughReason | None:
    """Asks for both: an error must mean a passthrough for the same reason."""
    service = rewriting(backend)
    with pytest.raises(CannotRewrite) as raised:
        await service.rewrite(conversation)
    answer = await service.rewrite_or_pass_through(conversation)
    assert (answer.text, answer.outcome) == (conversation.utterance, Outcome.PASSTHROUGH)
    assert answer.reason == raised.value.reason
    assert not any(turn in str(raised.value) for turn in (*conversation.history, conversation.utterance))
    return answer.reason


def answering(*positions: int, log_prob: float = -0.5, finished: bool = True) -> FakeBackend:
    prediction = Prediction((hypothesis(positions, log_prob=log_prob, finished=finished),))
    return FakeBackend(lambda source: prediction)


def outputs(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """What a model answers to two sources."""
    good = {
        "positions": np.array([[3, 4, -1], [5, -1, -1]], np.int32),
        "log_prob": np.array([-0.5, -1.0], np.float32),
        "finished": np.array([True, False]),
        "fingerprint": np.full(2, FINGERPRINT),
    }
    return good | changes


@pytest.mark.asyncio
async def test_a_rewrite_says_where_every_piece_came_from() -> None:
    answer = await rewriting(FakeBackend()).rewrite(WEATHER)
    assert (answer.text, answer.outcome, answer.reason) == ("西安明天有雨吗", Outcome.REWRITTEN, None)
    assert answer.spans == (Span(0, 2, Origin.HISTORY, 0, 0, 2), Span(2, 7, Origin.UTTERANCE, 1, 0, 5))
    assert answer.confidence == pytest.approx(math.exp(-0.5))
    assert answer.model.name == "fake"


@pytest.mark.asyncio
async def test_a_turn_that_the_model_repeats_is_unchanged() -> None:
    backend = FakeBackend(lambda source: Prediction((hypothesis(source.utterance_positions),)))
    answer = await rewriting(backend).rewrite(WEATHER)
    assert (answer.text, answer.outcome, answer.alternatives) == ("明天有雨吗", Outcome.UNCHANGED, ())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "conversation",
    [Conversation((), "明天有雨吗"), Conversation(("", "  "), "明天有雨吗"), Conversation(("西安",), " \n")],
)
async def test_the_model_is_not_asked_where_there_is_nothing_to_do(conversation: Conversation) -> None:
    backend = FakeBackend()
    answer = await rewriting(backend).rewrite(conversation)
    assert (answer.text, answer.outcome, answer.confidence) == (conversation.utterance, Outcome.UNCHANGED, 1.0)
    assert backend.asked == []


@pytest.mark.asyncio
async def test_alternatives_differ_from_the_answer_and_from_each_other() -> None:
    def answer(source: Source) -> Prediction:
        best, second = first_word_and_utterance(source).hypotheses
        unfinished = hypothesis([0], finished=False)
        third = hypothesis(source.utterance_positions[:1])
        return Prediction((best, best, unfinished, second, second, hypothesis([]), third))

    service = rewriting(FakeBackend(answer))
    everything = await service.rewrite(WEATHER, max_alternatives=5)
    assert [alternative.text for alternative in everything.alternatives] == ["明天有雨吗", "明天"]
    assert [alternative.score for alternative in everything.alternatives] == [-0.5, -0.5]
    one = await service.rewrite(WEATHER, max_alternatives=1)
    assert [alternative.text for alternative in one.alternatives] == ["明天有雨吗"]


def withholding(backend: FakeBackend, **calibration: float) -> Rewriting:
    """As ``rewriting``, with a model that was calibrated."""
    features = Features(FEATURES.model_copy(update={"calibration": Calibration(**calibration)}), VOCABULARY)
    served = ServedModel(features, MANIFEST.model, backend.predict)
    return Rewriting(lambda conversation_id: served, default_deadline_seconds=10, deadline_margin_seconds=0)


@pytest.mark.asyncio
async def test_a_rewrite_that_the_model_is_not_sure_of_is_withheld() -> None:
    """The turn comes back as it was: no passthrough, for nothing went wrong."""
    service = withholding(FakeBackend(), min_confidence=0.7)
    answer = await service.rewrite(WEATHER, max_alternatives=5)
    assert (answer.text, answer.outcome, answer.reason) == ("明天有雨吗", Outcome.UNCHANGED, None)
    assert answer.spans == (Span(0, 5, Origin.UTTERANCE, 1, 0, 5),)
    assert answer.confidence == pytest.approx(1 - math.exp(-0.5))
    assert answer.alternatives == ()  # of which the model gives one, the turn itself
    assert await service.rewrite_or_pass_through(WEATHER, max_alternatives=5) == answer


@pytest.mark.asyncio
async def test_a_rewrite_that_the_model_is_sure_enough_of_is_given_with_the_calibrated_confidence() -> None:
    answer = await withholding(FakeBackend(), intercept=1.0, min_confidence=0.7).rewrite(WEATHER)
    assert (answer.text, answer.outcome) == ("西安明天有雨吗", Outcome.REWRITTEN)
    odds = math.e * math.exp(-0.5) / (1 - math.exp(-0.5))
    assert answer.confidence == pytest.approx(odds / (1 + odds))


@pytest.mark.asyncio
async def test_a_turn_that_the_model_repeats_keeps_its_confidence_however_low() -> None:
    backend = FakeBackend(lambda source: Prediction((hypothesis(source.utterance_positions, log_prob=-5.0),)))
    answer = await withholding(backend, min_confidence=1.0).rewrite(WEATHER)
    assert (answer.text, answer.outcome) == ("明天有雨吗", Outcome.UNCHANGED)
    assert answer.confidence == pytest.approx(math.exp(-5.0))


@pytest.mark.asyncio
@pytest.mark.parametrize(("error", "reason"), [(e, r) for e, r in REASONS.items() if issubclass(e, BackendError)])
async def test_trouble_with_the_model_passes_the_turn_through(
    error: type[BackendError], reason: PassthroughReason
) -> None:
    assert await reason_for(failing_with(error("trouble"))) is reason


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(lambda: answering(9999), id="beyond the source"),
        pytest.param(lambda: answering(WEATHER_END_OF_TURN), id="an end of turn"),
        pytest.param(lambda: answering(), id="nothing"),
        pytest.param(lambda: answering(-1, -1), id="only padding"),
        pytest.param(lambda: answering(17, log_prob=math.nan), id="not a number"),
        pytest.param(lambda: answering(17, log_prob=0.5), id="more than certain"),
    ],
)
async def test_an_answer_that_makes_no_sense_passes_the_turn_through(backend: object) -> None:
    assert await reason_for(backend()) is PassthroughReason.BROKEN_ANSWER  # type: ignore[operator]


@pytest.mark.asyncio
async def test_an_answer_without_an_end_passes_the_turn_through() -> None:
    assert await reason_for(answering(17, finished=False)) is PassthroughReason.UNFINISHED


@pytest.mark.asyncio
async def test_an_utterance_of_too_many_words_passes_through_and_is_never_cut() -> None:
    backend = FakeBackend()
    conversation = Conversation(("西安",), "明天有雨吗" * 20)
    assert await reason_for(backend, conversation) is PassthroughReason.UTTERANCE_TOO_LONG
    assert backend.asked == []


@pytest.mark.asyncio
async def test_a_fault_of_ours_passes_the_turn_through_and_the_log_does_not_quote_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = rewriting(failing_with(RuntimeError(WEATHER.utterance)))
    answer = await service.rewrite_or_pass_through(WEATHER)
    assert (answer.text, answer.reason) == (WEATHER.utterance, PassthroughReason.MODEL_UNAVAILABLE)
    [line] = caplog.records
    assert (line.levelname, line.message) == ("ERROR", "unexpected RuntimeError")
    assert "in rewrite_or_pass_through" in vars(line)["facts"]["stack"]
    assert WEATHER.utterance not in f"{caplog.text} {vars(line)}"
    with pytest.raises(RuntimeError):
        await service.rewrite(WEATHER)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("backend", "warnings"),
    [
        (lambda: failing_with(BackendUnavailable("down")), 0),
        (lambda: answering(9999), 1),
        (lambda: answering(17, finished=False), 1),
    ],
)
async def test_turns_passed_through_are_logged_where_the_model_is_at_fault_and_not_where_there_is_none(
    backend: Callable[[], FakeBackend], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    await rewriting(backend()).rewrite_or_pass_through(WEATHER)
    assert caplog.text.count("passed a turn through") == warnings


@pytest.mark.asyncio
async def test_a_backend_that_ignores_its_timeout_is_left_behind() -> None:
    backend = FakeBackend()
    backend.open.clear()
    answer = await rewriting(backend).rewrite_or_pass_through(WEATHER, time_left_seconds=0.01)
    assert answer.reason is PassthroughReason.DEADLINE
    assert backend.cancelled.is_set()


@pytest.mark.asyncio
@pytest.mark.parametrize("time_left_seconds", [0.0, 0.2])
async def test_too_little_time_passes_the_turn_through_at_once(time_left_seconds: float) -> None:
    backend = FakeBackend()
    backend.open.clear()
    service = rewriting(backend, deadline_margin_seconds=0.2)
    answer = await service.rewrite_or_pass_through(WEATHER, time_left_seconds=time_left_seconds)
    assert answer.reason is PassthroughReason.DEADLINE


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("time_left_seconds", "margin", "most"),
    [(None, 2.0, 8.0), (100.0, 2.0, 8.0), (5.0, 2.0, 3.0), (None, 0.0, 9.0), (5.0, 0.0, 4.5)],
)
async def test_the_backend_gets_the_time_left_less_the_margin_or_a_tenth_of_it_if_that_is_more(
    time_left_seconds: float | None, margin: float, most: float
) -> None:
    backend = FakeBackend()
    service = rewriting(backend, default_deadline_seconds=10, deadline_margin_seconds=margin)
    await service.rewrite(WEATHER, time_left_seconds=time_left_seconds)
    assert most - 1 < backend.timeouts[0] <= most


@pytest.mark.asyncio
@pytest.mark.parametrize(("times", "blanks", "on_loop"), [(1, 0, True), (200, 0, False), (200, 100, False)])
async def test_only_a_long_conversation_is_encoded_off_the_loop(
    times: int, blanks: int, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = rewriting(FakeBackend())
    encode, threads = service.features.encode, []

    def noting(conversation: Conversation) -> Source:
        threads.append(threading.current_thread())
        return encode(conversation)

    monkeypatch.setattr(service.features, "encode", noting)
    history = ("西安今天的天气怎么样" * times, *[""] * blanks)
    answer = await service.rewrite(Conversation(history, "明天有雨吗"))
    assert answer.history_truncated is not on_loop
    assert [thread is threading.main_thread() for thread in threads] == [on_loop]


@pytest.mark.asyncio
async def test_warming_up_asks_for_sources_of_every_length_and_fails_with_the_model() -> None:
    backend = FakeBackend()
    await rewriting(backend).warm_up(10)
    lengths = [len(source) for source in backend.asked]
    assert max(lengths) >= 256
    assert {length.bit_length() for length in lengths} == {5, 6, 7, 8, 9}
    # Each greedily and by beam search, twice: the first answer does not say how long the others will take.
    assert set(Counter(lengths).values()) == {4}
    with pytest.raises(BackendUnavailable):
        await rewriting(failing_with(BackendUnavailable("down"))).warm_up(10)


@pytest.mark.asyncio
async def test_answers_survive_the_way_over_the_wire() -> None:
    service = rewriting(FakeBackend())
    for answer in (
        await service.rewrite(WEATHER, max_alternatives=1),
        await service.rewrite(Conversation((), "明天有雨吗")),
        await rewriting(failing_with(BackendUnavailable("down"))).rewrite_or_pass_through(WEATHER),
    ):
        assert to_answer(to_response(answer, "id")) == answer


def test_every_kind_of_trouble_has_a_reason_and_every_reason_a_status() -> None:
    kinds = set(BackendError.__subclasses__()) | set(BrokenAnswer.__subclasses__())
    assert kinds <= set(REASONS)
    assert set(REASONS.values()) == set(PassthroughReason) == set(CODES)


def test_the_arrays_of_an_answer_become_one_prediction_per_source() -> None:
    first, second = read_predictions(outputs(), beam=False, batch_size=2, fingerprint=FINGERPRINT)
    assert first.hypotheses[0].positions == (3, 4, -1)
    assert (first.hypotheses[0].log_prob, first.hypotheses[0].finished) == (-0.5, True)
    assert (second.hypotheses[0].log_prob, second.hypotheses[0].finished) == (-1.0, False)


def test_the_arrays_of_a_beam_become_hypotheses_in_their_order() -> None:
    arrays = outputs(
        positions=np.array([[[3, -1], [4, -1]]] * 2, np.int32),
        log_prob=np.array([[-0.5, -1.0]] * 2, np.float32),
        score=np.array([[-0.25, -0.5]] * 2, np.float32),
        finished=np.array([[True, False]] * 2),
    )
    predictions = read_predictions(arrays, beam=True, batch_size=2, fingerprint=FINGERPRINT)
    assert [h.positions for h in predictions[1].hypotheses] == [(3, -1), (4, -1)]
    assert [h.score for h in predictions[1].hypotheses] == [-0.25, -0.5]


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": np.array([FINGERPRINT, 1])},
        {"fingerprint": np.array([1, 1])},
        {"log_prob": np.zeros(3, np.float32)},
        {"log_prob": np.float32(0)},
        {"finished": np.array([True])},
        {"positions": np.zeros(2, np.int32)},
    ],
)
def test_arrays_of_another_model_or_shape_are_refused(changes: dict[str, np.ndarray]) -> None:
    with pytest.raises(BrokenAnswer, match=r"expected .*, found"):
        read_predictions(outputs(**changes), beam=False, batch_size=2, fingerprint=FINGERPRINT)


@pytest.mark.parametrize("name", ["positions", "log_prob", "finished", "fingerprint"])
def test_an_answer_without_one_of_its_arrays_is_refused(name: str) -> None:
    arrays = outputs()
    del arrays[name]
    with pytest.raises(BrokenAnswer, match="expected the outputs"):
        read_predictions(arrays, beam=False, batch_size=2, fingerprint=FINGERPRINT)
