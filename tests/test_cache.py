import asyncio
import math
from collections.abc import Callable

import pytest
from clock import Clock
from front import features, hypothesis
from members import CONVERSATION, FakeReplica, Told

from rewriter.conversation import Conversation
from rewriter.features import Source
from serving.answer import Model
from serving.backend import BackendTimeout, BackendUnavailable, Prediction, ServedModel
from serving.resilience.cache import PredictionCache
from serving.resilience.settings import CacheSettings
from serving.rewriting import Rewriting

pytestmark = pytest.mark.asyncio

OTHER = Conversation(("西安今天的天气怎么样",), "今天呢")
WEATHER = "西安明天有雨吗"


def cached(replica: FakeReplica, told: Told | None = None, *, max_entries: int = 10) -> PredictionCache:
    return PredictionCache(CacheSettings(max_entries=max_entries, ttl_seconds=60), told, clock=replica.clock)


def rewriting(replica: FakeReplica, cache: PredictionCache) -> Rewriting:
    return Rewriting(
        lambda conversation_id: cache.around(replica.serving(conversation_id)),
        default_deadline_seconds=10,
        deadline_margin_seconds=0,
    )


async def ask(cache: PredictionCache, served: ServedModel, seconds: float = 2.0, *, beam: bool = False) -> Prediction:
    source = features().encode(CONVERSATION)
    [found] = await cache.around(served).predict([source], beam=beam, timeout_seconds=seconds)
    return found


async def test_the_same_turn_of_the_same_conversation_is_asked_once() -> None:
    replica, told = FakeReplica("there", Clock()), Told()
    service = rewriting(replica, cached(replica, told))
    answers = [await service.rewrite(CONVERSATION) for _ in range(3)]
    assert {answer.text for answer in answers} == {WEATHER}
    assert len(replica.asked) == 1
    assert told.events == [("miss",), ("hit",), ("hit",)]


async def test_what_the_tokenizer_straightens_makes_no_difference_and_texts_stay_the_callers() -> None:
    replica = FakeReplica("there", Clock())
    service = rewriting(replica, cached(replica))
    first = await service.rewrite(CONVERSATION)
    second = await service.rewrite(Conversation(("", *CONVERSATION.history, " "), CONVERSATION.utterance))
    assert len(replica.asked) == 1
    assert (second.text, second.spans[0].turn) == (first.text, 1)


@pytest.mark.parametrize("change", ["utterance", "history", "version", "alternatives"])
async def test_another_turn_model_or_option_is_another_question(change: str) -> None:
    replica = FakeReplica("there", Clock())
    service = rewriting(replica, cached(replica))
    await service.rewrite(CONVERSATION)
    conversation, alternatives = CONVERSATION, 0
    if change == "utterance":
        conversation = OTHER
    elif change == "history":
        conversation = Conversation((*CONVERSATION.history, "西安"), CONVERSATION.utterance)
    elif change == "version":
        replica.model = Model("fake", "8", replica.model.vocabulary_fingerprint)
    else:
        alternatives = 2
    await service.rewrite(conversation, max_alternatives=alternatives)
    assert len(replica.asked) == 2


async def test_an_answer_is_forgotten_after_its_time() -> None:
    replica = FakeReplica("there", Clock())
    cache = cached(replica)
    await ask(cache, replica.serving(""))
    replica.clock.advance(59)
    await ask(cache, replica.serving(""))
    replica.clock.advance(2)
    await ask(cache, replica.serving(""))
    assert len(replica.asked) == 2


async def test_the_answer_longest_not_used_goes_first() -> None:
    replica = FakeReplica("there", Clock())
    service = rewriting(replica, cached(replica, max_entries=2))
    third = Conversation(("西安今天的天气怎么样",), "明天呢")
    for conversation in (CONVERSATION, OTHER, CONVERSATION, third, CONVERSATION, OTHER):
        await service.rewrite(conversation)
    assert len(replica.asked) == 4


@pytest.mark.parametrize(
    "answer",
    [
        lambda source: Prediction((hypothesis([17], log_prob=math.nan),)),
        lambda source: Prediction((hypothesis([9999]),)),
        lambda source: Prediction((hypothesis([17], finished=False),)),
    ],
)
async def test_a_passthrough_is_never_kept(answer: Callable[..., Prediction]) -> None:
    replica = FakeReplica("there", Clock())
    service = rewriting(replica, cached(replica))
    good, replica.answer = replica.answer, answer
    assert (await service.rewrite_or_pass_through(CONVERSATION)).reason is not None
    replica.trouble = BackendUnavailable("down")
    assert (await service.rewrite_or_pass_through(CONVERSATION)).reason is not None
    replica.answer, replica.trouble = good, None
    assert (await service.rewrite_or_pass_through(CONVERSATION)).text == WEATHER


async def test_an_answer_of_another_model_than_the_one_asked_is_not_kept() -> None:
    replica = FakeReplica("there", Clock())
    cache = cached(replica)
    good = replica.answer
    replica.answer = lambda source: Prediction(good(source).hypotheses, replica.serving(""))
    await ask(cache, replica.serving(""))
    await ask(cache, replica.serving(""))
    assert len(replica.asked) == 2


async def several(cache: PredictionCache, replica: FakeReplica, *seconds: float) -> list[asyncio.Task[Prediction]]:
    """Asks the same at once, each with so much time; returns once the first is on its way."""
    replica.open.clear()
    tasks = [asyncio.create_task(ask(cache, replica.serving(""), each)) for each in seconds]
    await replica.wait_until_asked(1)
    return tasks


async def test_the_same_turn_asked_at_once_is_asked_once() -> None:
    replica, told = FakeReplica("there", Clock()), Told()
    asking = await several(cached(replica, told), replica, 2, 2, 2)
    replica.open.set()
    assert len({(await task).hypotheses for task in asking}) == 1
    assert len(replica.asked) == 1
    assert told.events == [("miss",), ("joined",), ("joined",)]


async def test_trouble_of_the_first_is_everybodys() -> None:
    replica = FakeReplica("there", Clock())
    asking = await several(cached(replica), replica, 2, 2, 2)
    replica.trouble = BackendUnavailable("down")
    replica.open.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(result) for result in results} == {BackendUnavailable}
    assert len(replica.asked) == 1


async def test_a_first_caller_who_leaves_takes_nobody_with_him() -> None:
    replica = FakeReplica("there", Clock())
    first, second, third = await several(cached(replica), replica, 2, 2, 2)
    first.cancel()
    await asyncio.wait([first])
    replica.open.set()
    await asyncio.gather(second, third)
    assert len(replica.asked) == 2


async def test_a_first_caller_in_a_hurry_fails_alone() -> None:
    replica = FakeReplica("there", Clock())
    good = replica.answer

    def late_once(source: Source) -> Prediction:
        if len(replica.asked) == 1:
            raise BackendTimeout("late")
        return good(source)

    replica.answer = late_once
    first, second, third = await several(cached(replica), replica, 2, 2, 2)
    replica.open.set()
    with pytest.raises(BackendTimeout):
        await first
    assert (await second).hypotheses == (await third).hypotheses
    assert len(replica.asked) == 2


async def test_whoever_joins_keeps_to_his_own_time() -> None:
    replica = FakeReplica("there", Clock())
    first, second = await several(cached(replica), replica, 30, 0.01)
    with pytest.raises(BackendTimeout):
        await second
    replica.open.set()
    await first
