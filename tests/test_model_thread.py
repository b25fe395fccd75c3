import asyncio
import os
import subprocess
import sys
import threading

import pytest
from clock import Clock

from serving.model_thread import ModelThread

pytestmark = pytest.mark.asyncio


async def test_functions_run_one_after_the_other_on_one_thread_that_is_not_the_loops() -> None:
    thread = ModelThread()
    names = await asyncio.gather(*(thread.run(threading.get_ident) for _ in range(5)))
    assert len(set(names)) == 1
    assert threading.get_ident() not in names
    thread.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
async def test_the_event_loop_comes_before_the_model_and_what_it_starts() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def of_a_thread_it_starts() -> int:
        found: list[int] = []
        started = threading.Thread(target=lambda: found.append(niceness()))
        started.start()
        started.join()
        return found[0]

    thread = ModelThread()
    here = niceness()
    lower = min(here + 5, 19)
    assert await thread.run(niceness) == lower
    assert await thread.run(of_a_thread_it_starts) == lower
    assert niceness() == here
    thread.close()


async def test_what_a_function_raises_reaches_its_caller_and_the_thread_goes_on() -> None:
    thread = ModelThread()
    with pytest.raises(ZeroDivisionError):
        await thread.run(divmod, 1, 0)
    assert await thread.run(divmod, 7, 2) == (3, 1)
    thread.close()


async def test_it_says_how_long_a_function_has_been_running() -> None:
    clock = Clock()
    thread = ModelThread(clock=clock)
    started, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        go_on.wait()

    hanging = asyncio.ensure_future(thread.run(hang))
    await asyncio.to_thread(started.wait)
    clock.advance(70)
    assert thread.busy_seconds == 70
    go_on.set()
    await hanging
    await thread.run(lambda: None)
    thread.close()
    await asyncio.to_thread(thread._thread.join)
    assert thread.busy_seconds == 0


async def test_a_caller_who_leaves_harms_nobody() -> None:
    thread = ModelThread()
    started, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        go_on.wait()

    hanging = asyncio.ensure_future(thread.run(hang))
    await asyncio.to_thread(started.wait)
    hanging.cancel()
    go_on.set()
    assert await thread.run(lambda: "next") == "next"
    thread.close()


async def test_a_process_ends_although_its_model_hangs() -> None:
    program = """
import asyncio, threading
from serving.model_thread import ModelThread

async def main():
    thread, started = ModelThread(), threading.Event()
    hanging = asyncio.ensure_future(thread.run(lambda: (started.set(), threading.Event().wait())))
    await asyncio.to_thread(started.wait)
    hanging.cancel()
    thread.close()

asyncio.run(main())
"""
    finished = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False
    )
    assert (finished.returncode, finished.stderr) == (0, "")
