"""What a caller waits for: ``python benchmarks/latency.py build/models``; prints JSON.

Latency of Rewrite for one caller and for eight, the model's share of it, start-up time and memory of the server. One
run, warmed up; server and callers share the machine's cores, so compare the figures with each other, not with others'.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rewriter.conversation import Conversation
from rewriter.features import collate
from rewriter.samples import conversations
from serving.artefact import load_features, newest_version
from serving.client import Rewriter
from serving.local import running_service

CALLS_PER_CALLER = 300
CALLERS = 8
# A conversation without history never reaches the model.
ASKED = [conversation for conversation in conversations() if conversation.history]


def main(model_dir: Path) -> None:
    report: dict[str, object] = {}
    started = time.perf_counter()
    with running_service(model_dir) as service, Rewriter(service.address, timeout_seconds=30) as rewriter:
        rewriter.wait_until_healthy()
        report["start_up_seconds"] = round(time.perf_counter() - started, 2)
        _time_calls(_call(rewriter), 100)
        report["one_caller"] = _percentiles(_time_calls(_call(rewriter), CALLS_PER_CALLER))
        report["eight_callers"] = _eight_callers(service.address)
        report["server_memory_mb"] = _resident_mb(service.pid)
    report["model_alone"], report["preprocessing_alone"] = _model_alone(newest_version(model_dir))
    print(json.dumps(report, indent=2))


def _call(rewriter: Rewriter) -> Callable[[Conversation], object]:
    return lambda conversation: rewriter.rewrite(conversation.history, conversation.utterance)


def _eight_callers(address: str) -> dict[str, float]:
    def call_many(_: int) -> list[float]:
        with Rewriter(address, timeout_seconds=30) as rewriter:
            return _time_calls(_call(rewriter), CALLS_PER_CALLER)

    started = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as pool:
        seconds = [each for caller in pool.map(call_many, range(CALLERS)) for each in caller]
    rate = len(seconds) / (time.perf_counter() - started)
    return {**_percentiles(seconds), "requests_per_second": round(rate, 1)}


def _model_alone(version_dir: Path) -> tuple[dict[str, float], dict[str, float]]:
    """The SavedModel called directly, batch 1, on the arrays of the same conversations; and making those arrays."""
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # as the server does
    import tensorflow as tf

    features = load_features(version_dir)
    signature = tf.saved_model.load(str(version_dir)).signatures["serving_default"]
    arrays = [{k: tf.constant(v) for k, v in collate([features.encode(c)]).items()} for c in ASKED]
    by_conversation = dict(zip(ASKED, arrays, strict=True))

    def call(conversation: Conversation) -> object:
        return signature(**by_conversation[conversation])["positions"].numpy()

    _time_calls(call, 100)
    model = _percentiles(_time_calls(call, CALLS_PER_CALLER))
    return model, _percentiles(_time_calls(features.encode, CALLS_PER_CALLER))


def _time_calls(action: Callable[[Conversation], object], calls: int) -> list[float]:
    seconds = []
    for index in range(calls):
        started = time.perf_counter()
        action(ASKED[index % len(ASKED)])
        seconds.append(time.perf_counter() - started)
    return seconds


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": round(1e3 * cuts[49], 2), "p95_ms": round(1e3 * cuts[94], 2), "p99_ms": round(1e3 * cuts[98], 2)}


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return round(kilobytes / 1024, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path, help="what `rewriter export` wrote")
    main(parser.parse_args().model_dir)
