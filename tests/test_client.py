import asyncio
import contextlib
import itertools
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from front import FakeBackend, first_word_and_utterance, front
from saved_models import FINGERPRINT, write_model

from rewriter.conversation import Conversation
from rewriter.features import Source
from serving.answer import Answer, Outcome, PassthroughReason
from serving.backend import BackendOverloaded, BackendUnavailable, Prediction
from serving.client import AsyncRewriter, Failure, Rewriter
from serving.conversion import to_answer
from serving.pb import rewriter_pb2 as pb

HISTORY = ["西安今天的天气怎么样"]
UTTERANCE = "明天有雨吗"
REWRITE = "西安明天有雨吗"


def failing_first(error: Exception, times: int = 1) -> FakeBackend:
    """A backend that fails so many times and then works."""
    left = times

    def answer(source: Source) -> Prediction:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return first_word_and_utterance(source)

    return FakeBackend(answer)


async def in_thread(target: str, use: Callable[[Rewriter], Any], **options: Any) -> Any:
    """Runs the blocking client beside the server's event loop."""

    def work() -> Any:
        with Rewriter(target, **options) as rewriter:
            return use(rewriter)

    return await asyncio.to_thread(work)


@pytest.fixture
def nobody(tmp_path: Path) -> str:
    """An address where no server listens."""
    return f"unix:{tmp_path / 'nobody'}"


@pytest.mark.asyncio
async def test_both_clients_rewrite_and_agree() -> None:
    async with front(FakeBackend()) as served:
        blocking = await in_thread(served.target, lambda r: r.rewrite(HISTORY, UTTERANCE, max_alternatives=1))
        async with AsyncRewriter(served.target) as rewriter:
            assert await rewriter.rewrite(HISTORY, UTTERANCE, max_alternatives=1) == blocking
            assert await rewriter.model_info() == blocking.model
        assert await in_thread(served.target, Rewriter.model_info) == blocking.model
    assert (blocking.text, blocking.outcome) == (REWRITE, Outcome.REWRITTEN)
    assert [alternative.text for alternative in blocking.alternatives] == [UTTERANCE]


@pytest.mark.asyncio
async def test_a_batch_gives_answers_and_failures_in_order() -> None:
    conversations = [Conversation(tuple(HISTORY), UTTERANCE), Conversation((), "")]
    async with front(FakeBackend()) as served:
        blocking = await in_thread(served.target, lambda r: r.rewrite_batch(conversations))
        async with AsyncRewriter(served.target) as rewriter:
            assert await rewriter.rewrite_batch(conversations) == blocking
    first, second = blocking
    assert isinstance(first, Answer) and first.text == REWRITE
    assert second == Failure(grpc.StatusCode.INVALID_ARGUMENT, "utterance: expected a turn, found nothing")


@pytest.mark.asyncio
async def test_a_stream_answers_every_conversation_under_its_index() -> None:
    conversations = [Conversation(("西安",), f"第{number}天") for number in range(100)]

    async def spoken() -> AsyncIterator[Conversation]:
        for conversation in conversations:
            yield conversation

    async with front(FakeBackend(), max_stream_requests=3) as served:
        blocking = await in_thread(served.target, lambda r: dict(r.rewrite_stream(conversations)))
        async with AsyncRewriter(served.target) as rewriter:
            awaited = {index: result async for index, result in rewriter.rewrite_stream(spoken())}
    assert blocking == awaited
    assert [blocking[index].text for index in range(100)] == [f"西安第{number}天" for number in range(100)]


@pytest.mark.asyncio
async def test_a_stream_raises_what_its_conversations_raise_after_the_results_of_those_before() -> None:
    def broken() -> Iterator[Conversation]:
        yield Conversation(("西安",), "第0天")
        yield Conversation(("西安",), "第1天")
        raise ValueError("line 3 of the log")

    async def spoken() -> AsyncIterator[Conversation]:
        for conversation in broken():
            yield conversation

    def take(rewriter: Rewriter) -> list[int]:
        taken = []
        with pytest.raises(ValueError, match="line 3 of the log"):
            for index, _ in rewriter.rewrite_stream(broken()):
                taken.append(index)
        return sorted(taken)

    async with front(FakeBackend()) as served:
        assert await in_thread(served.target, take) == [0, 1]
        async with AsyncRewriter(served.target) as rewriter:
            taken = []
            with pytest.raises(ValueError, match="line 3 of the log"):
                async for index, _ in rewriter.rewrite_stream(spoken()):
                    taken.append(index)
    assert sorted(taken) == [0, 1]


@pytest.mark.asyncio
async def test_a_chatbots_turn_batches_and_streams_of_both_clients_carry_the_ids_of_conversations() -> None:
    conversation = Conversation(tuple(HISTORY), UTTERANCE, conversation_id="c" * 129)
    refused = Failure(grpc.StatusCode.INVALID_ARGUMENT, "conversation_id: expected at most 128 characters, found 129")

    async def spoken() -> AsyncIterator[Conversation]:
        yield conversation

    async with front(FakeBackend()) as served:
        assert await in_thread(served.target, lambda r: r.rewrite_batch([conversation])) == [refused]
        assert await in_thread(served.target, lambda r: list(r.rewrite_stream([conversation]))) == [(0, refused)]
        too_long = {"conversation_id": conversation.conversation_id}
        assert (
            await in_thread(served.target, lambda r: r.rewrite_or_original(HISTORY, UTTERANCE, **too_long)) == UTTERANCE
        )
        async with AsyncRewriter(served.target) as rewriter:
            assert await rewriter.rewrite_batch([conversation]) == [refused]
            assert [result async for result in rewriter.rewrite_stream(spoken())] == [(0, refused)]
            assert await rewriter.rewrite_or_original(HISTORY, UTTERANCE, **too_long) == UTTERANCE


def stuck_after_one() -> FakeBackend:
    def answer(source: Source) -> Prediction:
        backend.open.clear()
        return first_word_and_utterance(source)

    backend = FakeBackend(answer)
    return backend


@pytest.mark.asyncio
async def test_leaving_a_stream_early_ends_the_work_on_the_server() -> None:
    async def endless() -> AsyncIterator[Conversation]:
        while True:
            yield Conversation(("西安",), "明天呢")

    backend = stuck_after_one()
    async with front(backend) as served, AsyncRewriter(served.target) as rewriter:
        stream = rewriter.rewrite_stream(endless())
        await anext(stream)
        await backend.wait_until_asked(2)
        await stream.aclose()
        await backend.cancelled.wait()


@pytest.mark.asyncio
async def test_leaving_a_blocking_stream_early_ends_the_work_on_the_server() -> None:
    backend, loop = stuck_after_one(), asyncio.get_running_loop()

    def take_one(rewriter: Rewriter) -> None:
        stream = rewriter.rewrite_stream(itertools.repeat(Conversation(("西安",), "明天呢")))
        next(stream)
        asyncio.run_coroutine_threadsafe(backend.wait_until_asked(2), loop).result()
        stream.close()
        asyncio.run_coroutine_threadsafe(backend.cancelled.wait(), loop).result()

    async with front(backend) as served:
        await in_thread(served.target, take_one)


@pytest.mark.asyncio
async def test_waiting_for_health_ends_when_the_model_is_warm() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served, AsyncRewriter(served.target) as rewriter:
        warming_up = asyncio.ensure_future(served.server.warm_up())
        waiting = [
            asyncio.ensure_future(rewriter.wait_until_healthy()),
            asyncio.ensure_future(in_thread(served.target, Rewriter.wait_until_healthy)),
        ]
        with pytest.raises(TimeoutError, match=r"expected a healthy server within 0\.05 seconds, found none"):
            await rewriter.wait_until_healthy(0.05)
        assert not any(task.done() for task in waiting)
        backend.open.set()
        await asyncio.gather(warming_up, *waiting)


@pytest.mark.asyncio
async def test_waiting_for_health_gives_up_where_nobody_listens(nobody: str) -> None:
    async with AsyncRewriter(nobody) as rewriter:
        with pytest.raises(TimeoutError):
            await rewriter.wait_until_healthy(0.05)
    with pytest.raises(TimeoutError):
        await in_thread(nobody, lambda r: r.wait_until_healthy(0.05))


@pytest.mark.asyncio
async def test_an_unavailable_model_is_tried_once_more_and_no_oftener() -> None:
    once, twice = (failing_first(BackendUnavailable("down"), times) for times in (1, 2))
    async with front(once) as served, AsyncRewriter(served.target) as rewriter:
        assert (await rewriter.rewrite(HISTORY, UTTERANCE, failure_as_error=True)).text == REWRITE
    async with front(twice) as served, AsyncRewriter(served.target) as rewriter:
        with pytest.raises(grpc.RpcError):
            await rewriter.rewrite(HISTORY, UTTERANCE, failure_as_error=True)
    assert (len(once.asked), len(twice.asked)) == (2, 2)


@pytest.mark.asyncio
async def test_an_overloaded_server_is_not_asked_again() -> None:
    backend = failing_first(BackendOverloaded("too many"))
    async with front(backend) as served, AsyncRewriter(served.target) as rewriter:
        with pytest.raises(grpc.RpcError) as raised:
            await rewriter.rewrite(HISTORY, UTTERANCE, failure_as_error=True)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(backend.asked) == 1


@pytest.mark.asyncio
async def test_stopping_one_of_two_servers_under_load_loses_no_call() -> None:
    answered, stopped = 0, asyncio.Event()

    async with front(FakeBackend()) as first, front(FakeBackend()) as second:
        target = f"ipv4:{first.target},{second.target}"
        async with AsyncRewriter(target, timeout_seconds=10) as rewriter:

            async def talk() -> None:
                nonlocal answered
                while not stopped.is_set():
                    await rewriter.rewrite(HISTORY, UTTERANCE, failure_as_error=True)
                    answered += 1
                    if answered == 100:
                        stopping.set()

            stopping = asyncio.Event()
            users = [asyncio.create_task(talk()) for _ in range(20)]
            await stopping.wait()
            await first.server.stop()
            stopped.set()
            await asyncio.gather(*users)


@pytest.mark.asyncio
async def test_every_call_has_a_deadline_and_a_longer_one_can_be_asked_for() -> None:
    backend = FakeBackend()
    async with front(backend) as served, AsyncRewriter(served.target, timeout_seconds=3) as rewriter:
        await rewriter.rewrite(HISTORY, UTTERANCE)
        await rewriter.rewrite(HISTORY, UTTERANCE, timeout_seconds=8)
        await in_thread(served.target, lambda r: r.rewrite(HISTORY, UTTERANCE), timeout_seconds=3)
        await in_thread(served.target, lambda r: r.rewrite(HISTORY, UTTERANCE, timeout_seconds=8), timeout_seconds=3)
    for found, asked in zip(backend.timeouts, (3, 8, 3, 8), strict=True):
        assert asked - 2 < found <= asked


@pytest.mark.asyncio
async def test_a_chatbot_that_has_no_time_left_does_not_get_the_usual_time() -> None:
    """gRPC may end such a call or let it through, if the answer is there first."""
    conversations = [Conversation(tuple(HISTORY), UTTERANCE)]

    def ask(rewriter: Rewriter) -> None:
        with contextlib.suppress(grpc.RpcError):
            rewriter.rewrite(HISTORY, UTTERANCE, timeout_seconds=0)
        with contextlib.suppress(grpc.RpcError):
            rewriter.rewrite_batch(conversations, timeout_seconds=0)

    backend = FakeBackend()
    async with front(backend) as served, AsyncRewriter(served.target, timeout_seconds=3) as rewriter:
        with contextlib.suppress(grpc.RpcError):
            await rewriter.rewrite(HISTORY, UTTERANCE, timeout_seconds=0)
        with contextlib.suppress(grpc.RpcError):
            await rewriter.rewrite_batch(conversations, timeout_seconds=0)
        await in_thread(served.target, ask, timeout_seconds=3)
    assert all(seconds < 1 for seconds in backend.timeouts)


@pytest.mark.asyncio
async def test_a_chatbot_gets_the_original_turn_whatever_happens(nobody: str, caplog: pytest.LogCaptureFixture) -> None:
    def always_original(rewriter: Rewriter) -> bool:
        turns = (UTTERANCE, "", "字" * 100_000, "\ud800")
        return all(rewriter.rewrite_or_original(HISTORY, turn) == turn for turn in turns)

    with caplog.at_level(logging.WARNING):
        assert await in_thread(nobody, always_original)
        async with front(failing_first(RuntimeError(UTTERANCE), times=2)) as served:
            assert await in_thread(served.target, always_original)
            async with AsyncRewriter(served.target) as rewriter:
                assert await rewriter.rewrite_or_original(HISTORY, UTTERANCE) == UTTERANCE
                assert await rewriter.rewrite_or_original(HISTORY, UTTERANCE) == REWRITE
        async with AsyncRewriter(nobody) as rewriter:
            assert await rewriter.rewrite_or_original(HISTORY, UTTERANCE) == UTTERANCE
    for code in ("UNAVAILABLE", "INVALID_ARGUMENT", "UnicodeEncodeError"):
        assert f"going on with the original turn: {code}" in caplog.text
    assert UTTERANCE not in caplog.text


@pytest.mark.asyncio
async def test_a_client_that_is_closed_gives_the_original_turn_also_to_whoever_waits() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served:
        rewriter = AsyncRewriter(served.target, timeout_seconds=10)
        waiting = asyncio.create_task(rewriter.rewrite_or_original(HISTORY, UTTERANCE))
        await backend.wait_until_asked(1)
        await rewriter.close()
        assert await waiting == UTTERANCE
        assert await rewriter.rewrite_or_original(HISTORY, UTTERANCE) == UTTERANCE


@pytest.mark.asyncio
async def test_a_chatbot_that_changes_its_mind_is_left_alone() -> None:
    backend = FakeBackend()
    backend.open.clear()
    async with front(backend) as served, AsyncRewriter(served.target, timeout_seconds=10) as rewriter:
        waiting = asyncio.create_task(rewriter.rewrite_or_original(HISTORY, UTTERANCE))
        await backend.wait_until_asked(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await rewriter.rewrite_or_original(HISTORY, UTTERANCE)


def test_a_reason_newer_than_the_client_is_still_a_passthrough() -> None:
    outcome_passthrough_reason_999 = b"\x10\x03\x18\xe7\x07"
    answer = to_answer(pb.RewriteResponse.FromString(outcome_passthrough_reason_999))
    assert (answer.outcome, answer.reason) == (Outcome.PASSTHROUGH, None)
    known = pb.RewriteResponse(outcome=pb.OUTCOME_PASSTHROUGH, passthrough_reason=pb.PASSTHROUGH_REASON_OVERLOADED)
    assert to_answer(known).reason is PassthroughReason.OVERLOADED


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_client_is_light() -> None:
    heavy = {"tensorflow", "keras", "jieba", "numpy", "pydantic"}
    program = f"import sys, serving.client; print(*sorted({heavy} & set(sys.modules)))"
    assert run_python(program) == ""


def test_the_server_needs_no_keras(tmp_path: Path) -> None:
    program = f"""
import asyncio, importlib.abc, sys
from pathlib import Path

class NoKeras(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "keras":
            raise ModuleNotFoundError(name)

import serving.server
print(*sorted({{"tensorflow", "keras"}} & set(sys.modules)))
sys.modules["keras"] = None  # an import of it fails from here on
from serving.embedded import EmbeddedBackend
backend = EmbeddedBackend(Path({str(write_model(tmp_path) / "1")!r}), {FINGERPRINT}, max_batch_size=1, max_queue_size=1)
asyncio.run(backend.start())
"""
    assert run_python(program) == ""
