import asyncio
import signal

import pytest
from clock import Clock

from serving.processes.restarts import Restarts
from serving.processes.supervisor import UNUSABLE, Supervisor

pytestmark = pytest.mark.asyncio


class FakeProcess:
    """Ends when a test says so, or when told to, unless it is ``deaf``."""

    def __init__(self, pid: int, *, deaf: bool = False) -> None:
        self.pid = pid
        self.deaf = deaf
        self.signals: list[int] = []
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if self.ended.done():
            raise ProcessLookupError
        if number == signal.SIGKILL:
            self.end(-9)
        elif number == signal.SIGTERM and not self.deaf:
            self.end(0)

    def end(self, status: int) -> None:
        if not self.ended.done():
            self.ended.set_result(status)

    async def wait(self) -> int:
        return await asyncio.shield(self.ended)


class Fleet:
    """Starts fake processes and notes them; also the observer."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.processes: list[FakeProcess] = []
        self.numbers: list[int] = []
        self.running: set[int] = set()

    async def start(self, number: int) -> FakeProcess:
        self.processes.append(FakeProcess(100 + len(self.processes), deaf=self.deaf))
        self.numbers.append(number)
        return self.processes[-1]

    def started(self, pid: int) -> None:
        self.running.add(pid)

    def ended(self, pid: int) -> None:
        self.running.remove(pid)

    async def until(self, count: int) -> None:
        while len(self.running) < count:
            await asyncio.sleep(0)


def supervisor(fleet: Fleet, clock: Clock, *, workers: int = 2, stop_seconds: float = 30) -> Supervisor:
    return Supervisor(workers, fleet.start, fleet, stop_seconds=stop_seconds, clock=clock, sleep=clock.sleep)


async def test_it_starts_as_many_as_there_should_be_and_ends_them_when_told() -> None:
    fleet = Fleet()
    under_test = supervisor(fleet, Clock(), workers=3)
    running = asyncio.create_task(under_test.run())
    await fleet.until(3)
    under_test.stop()
    assert await running == 0
    assert [process.signals for process in fleet.processes] == [[signal.SIGTERM]] * 3
    assert not fleet.running


async def test_a_worker_that_ends_is_started_anew_under_its_number() -> None:
    fleet, clock = Fleet(), Clock()
    under_test = supervisor(fleet, clock)
    running = asyncio.create_task(under_test.run())
    await fleet.until(2)
    fleet.processes[1].end(-9)
    while len(fleet.processes) < 3:
        await asyncio.sleep(0)
    assert (fleet.numbers, clock.slept) == ([0, 1, 1], [0.5])
    under_test.stop()
    assert await running == 0


async def test_a_signal_is_passed_on_to_every_worker() -> None:
    fleet = Fleet()
    under_test = supervisor(fleet, Clock())
    running = asyncio.create_task(under_test.run())
    await fleet.until(2)
    under_test.tell(signal.SIGHUP)
    assert [process.signals for process in fleet.processes] == [[signal.SIGHUP]] * 2
    under_test.stop()
    await running


async def test_a_worker_that_does_not_end_is_killed() -> None:
    fleet = Fleet(deaf=True)
    under_test = supervisor(fleet, Clock(), stop_seconds=0.01)
    running = asyncio.create_task(under_test.run())
    await fleet.until(2)
    under_test.stop()
    assert await running == 0
    assert [process.signals for process in fleet.processes] == [[signal.SIGTERM, signal.SIGKILL]] * 2


async def test_a_worker_that_ends_just_before_it_is_killed_does_not_spare_the_others() -> None:
    fleet = Fleet(deaf=True)
    under_test = supervisor(fleet, Clock(), stop_seconds=0)
    running = asyncio.create_task(under_test.run())
    await fleet.until(2)

    def end_before_a_kill(number: int) -> None:
        if number == signal.SIGKILL:
            fleet.processes[0].end(0)
            raise ProcessLookupError

    fleet.processes[0].send_signal = end_before_a_kill  # type: ignore[method-assign]
    under_test.stop()
    assert await running == 0
    assert fleet.processes[1].signals == [signal.SIGTERM, signal.SIGKILL]


async def test_settings_that_no_worker_can_use_end_everything() -> None:
    fleet = Fleet()
    under_test = supervisor(fleet, Clock())
    running = asyncio.create_task(under_test.run())
    await fleet.until(2)
    fleet.processes[0].end(UNUSABLE)
    assert await running == UNUSABLE
    assert not fleet.running


async def test_settings_that_were_good_for_a_while_are_tried_again() -> None:
    fleet, clock = Fleet(), Clock()
    under_test = supervisor(fleet, clock, workers=1)
    running = asyncio.create_task(under_test.run())
    await fleet.until(1)
    clock.advance(61)
    for lives in (2, 3):
        fleet.processes[-1].end(1 if lives == 2 else UNUSABLE)
        while len(fleet.processes) < lives:
            await asyncio.sleep(0)
    under_test.stop()
    assert await running == 0


async def test_a_pause_ends_when_everything_does() -> None:
    fleet = Fleet()

    async def for_ever(seconds: float) -> None:
        await asyncio.Event().wait()

    under_test = Supervisor(1, fleet.start, fleet, stop_seconds=30, clock=Clock(), sleep=for_ever)
    running = asyncio.create_task(under_test.run())
    await fleet.until(1)
    fleet.processes[0].end(1)
    while fleet.running:
        await asyncio.sleep(0)
    under_test.stop()
    assert await running == 0
    assert len(fleet.processes) == 1


async def test_pauses_grow_while_lives_are_short_and_a_long_life_is_forgiveness() -> None:
    restarts = Restarts()
    assert [restarts.pause_seconds(1) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert restarts.pause_seconds(61) == 0.5
    assert restarts.pause_seconds(1) == 1
