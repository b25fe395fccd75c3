"""What can go wrong around a front with the model in it: too many calls, a restart, time, and hostile callers."""

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import grpc

from benchmarks.chaos.callers import capacity, flood, steady
from benchmarks.chaos.processes import fronts
from benchmarks.chaos.report import NO_CALLS_AT_SOME_TIME, Figures, Result, result
from serving.pb import rewriter_pb2 as pb
from serving.pb.rewriter_pb2_grpc import RewriterServiceStub

_TIMES_CAPACITY = 3.0
# Of the capacity, while three times as much is asked for.
_MIN_GOODPUT = 0.6
_MAX_REFUSAL_MS = 20.0
_MAX_MB_PER_MINUTE = 2.0
_SAMPLE_SECONDS = 2.0


async def three_times_capacity(model_dir: Path, seconds: float, flood_seconds: float) -> Result:
    async with fronts(model_dir, {}) as [front]:
        usual = await capacity(front.address, max(2.0, seconds / 2))
        async with steady(front.address) as records:
            await asyncio.sleep(seconds)
            memory = front.resident_mb()
            began = time.monotonic()
            flooded = await flood(front.address, _TIMES_CAPACITY * usual, flood_seconds)
            ended = time.monotonic()
            memory = front.resident_mb() - memory
            await asyncio.sleep(seconds)
    found = result(f"three times capacity for {flood_seconds:.0f} s", [*records, *flooded], began, ended)
    good = [each for each in (*records, *flooded) if began <= each.at < ended and each.usable]
    rewritten = [each for each in good if not each.passed_through]
    refused = Figures.of([each for each in good if each.result == "OVERLOADED"])
    rate = len(rewritten) / (ended - began)
    found.more = {
        "capacity per second": round(usual, 1),
        "rewrites per second": round(rate, 1),
        "p99 ms of a rewrite": Figures.of(rewritten).p99,
        "p50 ms of a refusal": refused.p50,
        "p99 ms of a refusal": refused.p99,
        "MB more": round(memory, 1),
    }
    found.expect(rate >= _MIN_GOODPUT * usual, f"expected {_MIN_GOODPUT:.0%} of the capacity to be rewritten")
    found.expect(refused.p50 <= _MAX_REFUSAL_MS, f"expected half of the refusals within {_MAX_REFUSAL_MS:.0f} ms")
    return found


async def restart_under_load(model_dir: Path, seconds: float) -> Result:
    """Two fronts share a port, and one of them is told to stop: callers go on with the other."""
    async with fronts(model_dir, {}, count=2) as [first, second], steady(second.address) as records:
        await asyncio.sleep(seconds)
        began = time.monotonic()
        status = await first.stop()
        ended = time.monotonic()
        await asyncio.sleep(seconds)
    found = result("SIGTERM under load", records, began, ended, may_pass_through=False)
    found.more = {"seconds to end": round(ended - began, 2)}
    found.expect(status == 0, f"expected it to end with status 0, found {status}")
    # It may be over before a call begins.
    found.faults = [fault for fault in found.faults if fault != NO_CALLS_AT_SOME_TIME]
    return found


async def soak(model_dir: Path, seconds: float) -> Result:
    """The slope of the memory over the second half: by then, caches and pools are full."""
    async with fronts(model_dir, {}) as [front], steady(front.address) as records:
        began = time.monotonic()
        samples: list[tuple[float, float]] = []
        while (passed := time.monotonic() - began) < seconds:
            samples.append((passed / 60, front.resident_mb()))
            await asyncio.sleep(_SAMPLE_SECONDS)
    third = seconds / 3
    found = result(f"soak for {seconds:.0f} s", records, began + third, began + 2 * third, may_pass_through=False)
    late = samples[len(samples) // 2 :]
    slope = statistics.linear_regression(*zip(*late, strict=True)).slope if len(late) > 1 else 0.0
    found.more = {"MB at the end": round(samples[-1][1], 1), "MB per minute": round(slope, 2)}
    found.expect(
        len(late) < 30 or slope <= _MAX_MB_PER_MINUTE, f"expected at most {_MAX_MB_PER_MINUTE} MB more a minute"
    )
    return found


async def hostile_calls_beside(model_dir: Path, seconds: float) -> Result:
    """Steady callers, while others send what no message should be (``benchmarks.hostile_calls``)."""
    async with fronts(model_dir, {}) as [front], steady(front.address) as records:
        await asyncio.sleep(seconds)
        began = time.monotonic()
        sent = await asyncio.to_thread(_send_hostile, front.address, began + seconds)
        ended = time.monotonic()
        await asyncio.sleep(seconds)
    found = result("hostile calls beside the good ones", records, began, ended)
    found.more = {"hostile calls": float(sent)}
    return found


def _send_hostile(target: str, until: float) -> int:
    """One after the other, so that the good callers suffer from what is in them and not from how many they are."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from hostile_calls import hostile_calls

    sent = 0
    with grpc.insecure_channel(target) as channel:
        info = RewriterServiceStub(channel).GetModelInfo(pb.GetModelInfoRequest())
        for call in hostile_calls(10_000, 1, info):
            if time.monotonic() >= until:
                break
            _send(channel, call)
            sent += 1
    return sent


def _send(channel: grpc.Channel, call: Any) -> None:
    path = f"/rewriter.v1.RewriterService/{call.method}"
    timeout = min(call.timeout_seconds, 2.0)
    try:
        if call.on_stream:
            for _ in channel.stream_stream(path)(iter(call.messages), timeout=timeout):
                pass
        else:
            channel.unary_unary(path)(call.messages[0], timeout=timeout)
    except grpc.RpcError:
        pass  # whatever it is: the callers beside it are looked at
