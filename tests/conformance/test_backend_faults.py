"""Our backend against a server that misbehaves on demand."""

import asyncio
import logging

import pytest
from fronts import CONVERSATION, CONVERSATIONS, SECONDS, front, is_an_answer, load, lost, settings, until
from stand_in.process import running_stand_in
from target import Target
from test_backend import look

from serving.answer import PassthroughReason
from serving.backend import BackendTimeout, ModelChanged
from serving.batch_metrics import BatchMetrics
from serving.metrics import Metrics
from serving.rewriting import CannotRewrite
from serving.tf_serving.backend import address_backends
from serving.tf_serving.catalogue import Catalogue

pytestmark = pytest.mark.asyncio

REASONS = {
    "unavailable": PassthroughReason.MODEL_UNAVAILABLE,
    "queue_full": PassthroughReason.OVERLOADED,
    "quoting_error": PassthroughReason.MODEL_UNAVAILABLE,
    "wrong_shape": PassthroughReason.BROKEN_ANSWER,
    "missing_output": PassthroughReason.BROKEN_ANSWER,
    "nan": PassthroughReason.BROKEN_ANSWER,
    "wrong_fingerprint": PassthroughReason.BROKEN_ANSWER,
    "garbage": PassthroughReason.BROKEN_ANSWER,
    # A version that nobody knows, again and again.
    "wrong_version": PassthroughReason.MODEL_UNAVAILABLE,
}


@pytest.mark.parametrize(("fault", "reason"), REASONS.items())
async def test_every_fault_has_its_reason_and_quotes_nobody(
    faulty: Target, fault: str, reason: PassthroughReason, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with front(faulty) as served:
        source = served.rewriting.features.encode(CONVERSATION)
        assert faulty.stand_in is not None
        faulty.stand_in.order(fault=fault)
        with pytest.raises(CannotRewrite) as raised:
            await served.rewriting.rewrite(CONVERSATION, time_left_seconds=20)
        answer = await served.ask()
        faulty.stand_in.order(clear=True)
        assert is_an_answer(await served.ask())
    assert raised.value.reason is answer.reason is reason
    assert answer.text == CONVERSATION.utterance
    said = caplog.text + str(raised.value)
    assert not any(text in said for text in (*CONVERSATION.history, CONVERSATION.utterance))
    assert source.word_ids.tobytes().hex()[:64] not in said


@pytest.mark.parametrize("batching", ["front", "server"])
async def test_a_server_that_stalls_costs_no_more_than_the_deadline(faulty: Target, batching: str) -> None:
    async with front(faulty, batching=batching) as served:
        assert faulty.stand_in is not None
        faulty.stand_in.order(fault="stall")
        started = asyncio.get_running_loop().time()
        answer = await served.ask(time_left_seconds=0.5)
        assert asyncio.get_running_loop().time() - started < 5
        assert answer.reason is PassthroughReason.DEADLINE
        faulty.stand_in.order(clear=True)
        assert is_an_answer(await served.ask())


async def test_a_look_that_does_not_end_holds_up_its_batch_no_longer_than_its_time(
    faulty: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with front(faulty) as served:
        assert faulty.stand_in is not None
        source = served.rewriting.features.encode(CONVERSATION)
        monkeypatch.setattr(served.backend._watcher, "look", asyncio.Event().wait)
        faulty.stand_in.order(fault="wrong_version", count=1)
        with pytest.raises((BackendTimeout, ModelChanged)):
            await served.backend.predict([source], beam=False, timeout_seconds=0.5)
        assert await served.backend.predict([source], beam=False, timeout_seconds=5)


async def test_turns_that_the_server_has_count_as_waiting_where_it_makes_the_batches(faulty: Target) -> None:
    metrics = Metrics()
    changes = settings(faulty, batching="server")
    [backend] = address_backends(changes, faulty.model_dir, observe=lambda size: BatchMetrics(metrics, size))
    await backend.start()
    assert faulty.stand_in is not None
    faulty.stand_in.order(fault="stall")
    source = backend.serving("").features.encode(CONVERSATION)
    asked = asyncio.gather(
        *(backend.predict([source], beam=False, timeout_seconds=SECONDS) for _ in range(3)), return_exceptions=True
    )
    while metrics.registry.get_sample_value("rewriter_queue_depth") != 3:
        await asyncio.sleep(0.01)
    faulty.stand_in.order(clear=True)
    await asked
    assert metrics.registry.get_sample_value("rewriter_queue_depth") == 0
    await backend.close()


async def test_the_server_gets_the_time_that_is_left(faulty: Target) -> None:
    async with front(faulty) as served:
        assert faulty.stand_in is not None
        faulty.stand_in.order(requests=True)
        await served.ask(time_left_seconds=7)
        [request] = faulty.stand_in.order(requests=True)
    assert 3 < request["seconds_left"] < 7


async def test_a_call_ends_with_its_caller(faulty: Target) -> None:
    async with front(faulty, batching="server") as served:
        assert faulty.stand_in is not None
        faulty.stand_in.order(fault="stall")
        task = asyncio.create_task(served.ask())
        while not faulty.stand_in.order(stalled=True):
            await asyncio.sleep(0.01)
        task.cancel()
        while faulty.stand_in.order(stalled=True):
            await asyncio.sleep(0.01)
        assert task.cancelled()


async def test_requests_come_in_the_sizes_of_the_buckets_only(faulty: Target) -> None:
    buckets = Catalogue(faulty.model_dir).newest().buckets
    async with front(faulty) as served:
        assert faulty.stand_in is not None
        faulty.stand_in.order(requests=True)
        await asyncio.gather(*(served.ask(turn) for turn in CONVERSATIONS * 5))
        shapes = [request["shapes"]["word_ids"] for request in faulty.stand_in.order(requests=True)]
    assert {length for _, length in shapes} == set(buckets.lengths)
    assert [rows for rows, _ in shapes] == [8] * 4  # five of a length go together
    assert 5 not in buckets.batch_sizes


async def test_a_server_that_comes_up_late_is_waited_for(faulty: Target) -> None:
    assert faulty.stand_in is not None
    faulty.stand_in.order(down=True)
    async with front(faulty, start=False, poll_seconds=0.1) as served:
        starting = asyncio.create_task(served.backend.start())
        await look(served)
        assert not served.backend.ready
        assert not starting.done()
        assert (await served.ask()).reason is PassthroughReason.MODEL_UNAVAILABLE
        faulty.stand_in.order(up=True)
        await starting
        assert served.backend.ready
        assert is_an_answer(await served.ask())


async def test_a_server_that_goes_away_is_missed_at_once_and_found_again(faulty: Target) -> None:
    assert faulty.stand_in is not None
    async with front(faulty, poll_seconds=0.1) as served:
        faulty.stand_in.order(down=True)
        answer = await served.ask()
        assert answer.reason is PassthroughReason.MODEL_UNAVAILABLE
        await look(served)
        assert not served.backend.ready
        faulty.stand_in.order(up=True)
        while not served.backend.ready:
            await look(served)
        assert is_an_answer(await served.ask())


async def test_a_burst_of_errors_is_over_when_it_is_over(faulty: Target) -> None:
    assert faulty.stand_in is not None
    async with front(faulty) as served, load(served) as answers:
        await until(answers, 5)
        faulty.stand_in.order(fault="unavailable", count=7)
        await until(answers, 40)
    failed = lost(answers)
    assert 7 <= len(failed) <= 7 * 4
    assert all(map(is_an_answer, answers[-10:]))


async def test_a_killed_server_leaves_the_work_to_the_other(target: Target) -> None:
    with running_stand_in(target.model_dir, model_name=target.model_name) as mortal:
        other = Target(mortal.address, target.model_name, target.model_dir, str(target.model_dir), mortal)
        async with front(other, target, poll_seconds=0.1) as served:
            await look(served)
            mortal.kill()
            while all(backend.ready for backend in served.backends):
                await asyncio.sleep(0.01)
            answers = [await served.ask() for _ in range(6)]
    assert all(map(is_an_answer, answers))
