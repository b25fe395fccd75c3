"""What the service does under hostile calls: ``python benchmarks/hostile.py build/models --calls 10000 --seed 1``.

Starts the service, sends the calls of ``hostile_calls`` from several callers at once, has ``hostile_judge`` look at
every answer, and then at the service itself: whether it still answers rightly, how much memory it has gained and what
it has logged. Prints JSON; the exit status is 1 if anything is wrong.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hostile_calls import MARK, Call, hostile_calls
from hostile_judge import Reply, faults, outcomes

from serving.client import Rewriter
from serving.local import LocalService, running_service
from serving.pb import rewriter_pb2 as pb
from serving.pb.rewriter_pb2_grpc import RewriterServiceStub

CALLERS = 8
MAX_FAULTS_SHOWN = 20
# Beyond what the service holds after a tenth of the calls, when caches and pools have filled.
MAX_GROWTH_MB = 200.0

_PATH = f"/{pb.DESCRIPTOR.services_by_name['RewriterService'].full_name}/"
# TensorFlow's own, at start.
_NATIVE_LINE = re.compile(
    r"WARNING: All log messages before absl.*|[IW]\d{4} [\d:. ]+ \S+:\d+\] .*|To enable the following.*"
)
_WARM_UP_SECONDS = 120.0


@dataclass
class Report:
    statuses_by_kind: dict[str, Counter[str]] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    memory_mb: dict[str, float] = field(default_factory=dict)

    def note(self, number: int, call: Call, reply: Reply, info: pb.GetModelInfoResponse) -> None:
        self.statuses_by_kind.setdefault(call.kind, Counter())[reply.code.name] += 1
        self.outcomes.update(outcomes(call, reply))
        self.faults += [f"call {number}, {call.kind}, {call.method}: {fault}" for fault in faults(call, reply, info)]

    def summary(self) -> dict[str, Any]:
        statuses: Counter[str] = sum(self.statuses_by_kind.values(), Counter())
        return {
            "calls": statuses.total(),
            "statuses": dict(statuses.most_common()),
            "outcomes": dict(self.outcomes.most_common()),
            "kinds": {kind: dict(counts) for kind, counts in sorted(self.statuses_by_kind.items())},
            "memory_mb": self.memory_mb,
            "faults": len(self.faults),
            "first_faults": self.faults[:MAX_FAULTS_SHOWN],
        }


def main(model_dir: Path, calls: int, seed: int) -> int:
    report = Report()
    started = time.perf_counter()
    with running_service(model_dir, {**os.environ, "REWRITER_LOG__FORMAT": "json"}) as service:
        with Rewriter(service.address) as rewriter:
            rewriter.wait_until_healthy(_WARM_UP_SECONDS)
        _attack(service, calls, seed, report)
    report.faults += _faults_of_log(service.log)
    seconds = round(time.perf_counter() - started, 1)
    print(json.dumps({"seed": seed, "seconds": seconds, **report.summary()}, indent=2, ensure_ascii=False))
    return 1 if report.faults else 0


def _attack(service: LocalService, count: int, seed: int, report: Report) -> None:
    with grpc.insecure_channel(service.address) as channel:
        stub = RewriterServiceStub(channel)
        info = stub.GetModelInfo(pb.GetModelInfoRequest())
        good = pb.RewriteRequest(history=["你去过敦煌吗", "敦煌我去年去过"], utterance="那里冷吗")
        before = stub.Rewrite(good)
        report.memory_mb["at start"] = _resident_mb(service.pid)
        calls = enumerate(hostile_calls(count, seed, info))
        one_at_a_time = threading.Lock()

        def caller(_: int) -> None:
            while True:
                with one_at_a_time:
                    number, call = next(calls, (count, None))
                if call is None:
                    return
                reply = _reply(channel, call)
                with one_at_a_time:
                    report.note(number, call, reply, info)
                if number == count // 10:
                    report.memory_mb["after a tenth"] = _resident_mb(service.pid)

        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(caller, range(CALLERS)))
        report.memory_mb["at end"] = _resident_mb(service.pid)
        growth = report.memory_mb["at end"] - report.memory_mb["after a tenth"]
        if growth > MAX_GROWTH_MB:
            report.faults.append(f"expected at most {MAX_GROWTH_MB} MB more memory, found {growth:.1f}")
        if stub.Rewrite(good) != before:
            report.faults.append("a good call is answered in another way after all this")
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        if health.status != health_pb2.HealthCheckResponse.SERVING:
            report.faults.append("the service is not healthy after all this")


def _reply(channel: grpc.Channel, call: Call) -> Reply:
    """Sends the call's bytes and waits for its end, whatever that is."""
    options = {
        "timeout": call.timeout_seconds,
        "compression": grpc.Compression.Gzip if call.compressed else grpc.Compression.NoCompression,
    }
    over = threading.Event()
    if call.on_stream:
        rpc = channel.stream_stream(_PATH + call.method)(_messages(call, over), **options)
    else:
        rpc = channel.unary_unary(_PATH + call.method).future(call.messages[0], **options)
    if call.cancel_after_seconds is not None:
        threading.Timer(call.cancel_after_seconds, rpc.cancel).start()
    answers: list[bytes] = []
    with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):  # the code says it
        for answer in rpc if call.on_stream else [rpc.result()]:
            answers.append(answer)
    over.set()
    packed = dict(rpc.trailing_metadata() or ()).get("grpc-status-details-bin")
    status = status_pb2.Status.FromString(packed) if packed else None
    return Reply(rpc.code(), rpc.details() or "", status, tuple(answers))


def _messages(call: Call, over: threading.Event) -> Iterator[bytes]:
    yield from call.messages
    if call.left_open:
        over.wait()


def _faults_of_log(log: list[str]) -> Iterator[str]:
    """The log may hold what callers named their requests, in JSON, and nothing else of theirs."""
    for line in log:
        if not line.startswith("{"):
            if not _NATIVE_LINE.fullmatch(line.rstrip("\n")) or MARK in line or not line.isascii():
                yield f"the log holds a line that is not the service's own, or a stack: {line[:200]!r}"
            continue
        found = {**json.loads(line), "request_id": ""}
        text = json.dumps(found)
        if found["level"] not in ("INFO", "WARNING"):
            yield f"the log holds a line of level {found['level']}: {text[:200]!r}"
        if MARK in text or "\\u" in text:
            yield f"the log holds text of a caller: {text[:200]!r}"


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return round(kilobytes / 1024, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(main(arguments.model_dir, arguments.calls, arguments.seed))
