import asyncio
from collections.abc import Sequence

import pytest
from clock import Clock

from serving.batching import Batcher, BatcherClosed, DeadlinePassed, QueueFull

pytestmark = pytest.mark.asyncio

LONG = 30.0


class Doubling:
    """A model that doubles numbers, while ``open``; notes every batch when it starts."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.started = asyncio.Event()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.started.set()
        await self.open.wait()
        if 13 in items:
            raise RuntimeError("unlucky")
        return [2 * item for item in items]

    def batcher(
        self, *, max_batch_size: int = 8, max_queue_size: int = 100, clock: Clock | None = None
    ) -> Batcher[int, int]:
        """Even and odd numbers are of different kinds."""
        sizes = {"max_batch_size": max_batch_size, "max_queue_size": max_queue_size}
        return Batcher(self, lambda item: item % 2, **sizes, **({"clock": clock} if clock else {}))


async def busy(model: Doubling, batcher: Batcher[int, int]) -> asyncio.Task[int]:
    """Returns once the model works on a first item and will not finish before it is opened."""
    model.open.clear()
    first = asyncio.create_task(batcher.submit(0, LONG))
    await model.started.wait()
    return first


async def submitted(batcher: Batcher[int, int], *items: int, timeout_seconds: float = LONG) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(batcher.submit(item, timeout_seconds)) for item in items]
    await asyncio.sleep(0)  # every task takes its first step, in order
    return tasks


async def test_an_item_runs_at_once_when_nothing_is_running() -> None:
    model = Doubling()
    assert await model.batcher().submit(4, LONG) == 8
    assert model.batches == [[4]]


async def test_items_submitted_together_run_together() -> None:
    model = Doubling()
    batcher = model.batcher()
    assert await asyncio.gather(*(batcher.submit(item, LONG) for item in (2, 4, 6))) == [4, 8, 12]
    assert model.batches == [[2, 4, 6]]


async def test_items_that_arrive_while_the_model_is_busy_run_together_next() -> None:
    model = Doubling()
    batcher = model.batcher()
    first = await busy(model, batcher)
    later = await submitted(batcher, 2, 4, 6)
    model.open.set()
    assert await asyncio.gather(first, *later) == [0, 4, 8, 12]
    assert model.batches == [[0], [2, 4, 6]]


async def test_kinds_never_share_a_batch_and_the_oldest_item_goes_first() -> None:
    model = Doubling()
    batcher = model.batcher()
    first = await busy(model, batcher)
    later = await submitted(batcher, 1, 2, 3, 4)
    model.open.set()
    await asyncio.gather(first, *later)
    assert model.batches == [[0], [1, 3], [2, 4]]


async def test_a_batch_never_grows_beyond_its_limit() -> None:
    model = Doubling()
    batcher = model.batcher(max_batch_size=2)
    first = await busy(model, batcher)
    later = await submitted(batcher, 2, 4, 6)
    model.open.set()
    assert await asyncio.gather(first, *later) == [0, 4, 8, 12]
    assert model.batches == [[0], [2, 4], [6]]


async def test_an_item_fails_at_its_deadline_even_if_the_model_hangs_and_is_never_run() -> None:
    model = Doubling()
    batcher = model.batcher()
    first = await busy(model, batcher)
    with pytest.raises(DeadlinePassed):
        await batcher.submit(2, 0.01)
    [later] = await submitted(batcher, 4)
    model.open.set()
    await asyncio.gather(first, later)
    assert model.batches == [[0], [4]]


async def test_an_item_with_no_time_left_is_not_run() -> None:
    model = Doubling()
    batcher = model.batcher()
    with pytest.raises(DeadlinePassed):
        await batcher.submit(2, -1.0)
    assert await batcher.submit(4, LONG) == 8
    assert model.batches == [[4]]


async def test_an_item_whose_caller_is_gone_is_not_run_and_frees_its_place() -> None:
    model = Doubling()
    batcher = model.batcher(max_queue_size=1)
    first = await busy(model, batcher)
    [abandoned] = await submitted(batcher, 2)
    abandoned.cancel()
    await asyncio.wait([abandoned])
    [later] = await submitted(batcher, 4)
    model.open.set()
    assert (await first, await later) == (0, 8)
    assert model.batches == [[0], [4]]


async def test_a_full_queue_refuses_at_once_and_accepts_again_when_there_is_room() -> None:
    model = Doubling()
    batcher = model.batcher(max_queue_size=2)
    first = await busy(model, batcher)
    waiting = await submitted(batcher, 2, 4)
    with pytest.raises(QueueFull):
        await batcher.submit(6, LONG)
    model.open.set()
    await asyncio.gather(first, *waiting)
    assert await batcher.submit(6, LONG) == 12


async def test_an_error_reaches_every_caller_of_the_batch_and_no_other() -> None:
    model = Doubling()
    batcher = model.batcher()
    first = await busy(model, batcher)
    later = await submitted(batcher, 13, 15, 2)
    model.open.set()
    results = await asyncio.gather(first, *later, return_exceptions=True)
    assert [str(result) for result in results] == ["0", "unlucky", "unlucky", "4"]


async def test_a_model_that_loses_results_fails_the_whole_batch() -> None:
    async def forgetful(items: Sequence[int]) -> list[int]:
        return list(items)[:-1]

    batcher = Batcher(forgetful, lambda item: 0, max_batch_size=4, max_queue_size=4)
    results = await asyncio.gather(batcher.submit(1, LONG), batcher.submit(2, LONG), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]


async def test_closing_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    model = Doubling()
    batcher = model.batcher()
    first = await busy(model, batcher)
    [accepted] = await submitted(batcher, 2)
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    with pytest.raises(BatcherClosed):
        await batcher.submit(4, LONG)
    assert not closing.done()
    model.open.set()
    await closing
    assert (await first, await accepted) == (0, 4)


class Timed(Doubling):
    """Takes as long as it is told, by the clock alone."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = 1.0

    async def __call__(self, items: Sequence[int]) -> list[int]:
        results = await super().__call__(items)
        self.clock.advance(self.seconds)
        return results


async def test_an_item_with_less_time_than_the_fastest_run_is_refused_at_once() -> None:
    clock = Clock()
    model = Timed(clock)
    batcher = model.batcher(clock=clock)
    await batcher.submit(2, LONG)
    with pytest.raises(DeadlinePassed):
        await batcher.submit(4, 0.9)
    assert await batcher.submit(6, 1.1) == 12
    assert await batcher.submit(7, 0.9) == 14  # of another kind, of which nothing is known
    assert model.batches == [[2], [6], [7]]


async def test_an_item_is_refused_when_those_before_it_take_all_of_its_time() -> None:
    clock = Clock()
    model = Timed(clock)
    batcher = model.batcher(max_batch_size=2, clock=clock)
    await batcher.submit(2, LONG)
    model.started.clear()
    first = await busy(model, batcher)
    clock.advance(0.5)
    waiting = await submitted(batcher, 4, 6)
    # Half a second for the rest of what runs, one for the batch that waits, one for its own.
    with pytest.raises(QueueFull):
        await batcher.submit(8, 2.4)
    [last] = await submitted(batcher, 8, timeout_seconds=2.6)
    model.seconds = 0.5
    model.open.set()
    assert await asyncio.gather(first, *waiting, last) == [0, 8, 12, 16]


async def test_an_item_that_has_waited_too_long_is_told_before_the_batch_runs() -> None:
    clock = Clock()
    model = Timed(clock)
    batcher = model.batcher(clock=clock)
    await batcher.submit(2, LONG)
    model.started.clear()
    first = await busy(model, batcher)
    late, in_time = await submitted(batcher, 4, timeout_seconds=2.5) + await submitted(batcher, 6)
    model.seconds = 2.0  # longer than anybody could know
    model.open.set()
    with pytest.raises(DeadlinePassed):
        await late
    assert (await first, await in_time) == (0, 12)
    assert model.batches == [[2], [0], [6]]


async def test_a_slow_minute_is_forgotten_even_if_it_had_everything_refused() -> None:
    clock = Clock()
    model = Timed(clock)
    batcher = model.batcher(clock=clock)
    await batcher.submit(2, LONG)
    with pytest.raises(DeadlinePassed):
        await batcher.submit(4, 0.9)
    clock.advance(10)
    assert await batcher.submit(4, 0.9) == 8


async def test_a_failure_says_nothing_about_how_long_a_run_takes() -> None:
    clock = Clock()
    model = Timed(clock)
    batcher = model.batcher(clock=clock)
    with pytest.raises(RuntimeError):
        await batcher.submit(13, LONG)
    assert await batcher.submit(15, 0.5) == 30


async def test_closing_does_not_wait_for_a_model_that_hangs() -> None:
    model = Doubling()
    batcher = model.batcher()
    first = await busy(model, batcher)
    [second] = await submitted(batcher, 2)
    await batcher.close(0.01)
    for task in (first, second):
        with pytest.raises(BatcherClosed):
            await task
