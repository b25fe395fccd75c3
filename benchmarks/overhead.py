"""What the front costs beside the model: ``python -m benchmarks.overhead build/models`` from the root; prints JSON.

The same conversations, in turns, over the same kind of connection: ``direct`` makes the arrays and asks a stand-in for
TF Serving (``tests.stand_in``) by a plain ``Predict``; ``rewrite`` asks a front before that stand-in, with tokens, a
rate limit, metrics, JSON logs and everything that guards the model; ``rewrite_cached`` asks another one, with a warm
cache.
"""

import argparse
import hashlib
import json
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc

from benchmarks.chaos.processes import start_front
from rewriter.conversation import Conversation
from rewriter.features import collate
from rewriter.samples import conversations
from serving.artefact import load_features, newest_version
from serving.client import Rewriter
from serving.pb import tf_serving_pb2
from serving.signatures import GREEDY
from serving.tf_serving.tensors import to_arrays, to_message
from tests.stand_in.process import running_stand_in

ROUNDS = 40
WARM_UP_ROUNDS = 5
# A conversation without history never reaches the model.
ASKED = [conversation for conversation in conversations() if conversation.history]
_MODEL_NAME = "rewriter"

Call = Callable[[Conversation], object]


def main(model_dir: Path) -> None:
    with ExitStack() as stack:
        stand_in = stack.enter_context(running_stand_in(model_dir, model_name=_MODEL_NAME))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rewriter-overhead-")))
        settings, token = _everything_on(stand_in.address, folder)
        calls = {
            "direct": _direct(stack, stand_in.address, model_dir),
            "rewrite": _through_front(stack, model_dir, settings, token),
            "rewrite_cached": _through_front(
                stack, model_dir, {**settings, "resilience.cache.max_entries": 10_000}, token
            ),
        }
        seconds = _interleaved(calls)
    found = {name: _percentiles(each) for name, each in seconds.items()}
    ratio = found["rewrite"]["p50_ms"] / found["direct"]["p50_ms"]
    print(json.dumps({**found, "p50_rewrite_by_direct": round(ratio, 3)}, indent=2))


def _interleaved(calls: dict[str, Call]) -> dict[str, list[float]]:
    """Seconds of each call; whatever else the machine does meets all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for conversation in ASKED:
            for name, call in calls.items():
                began = time.perf_counter()
                call(conversation)
                if number >= WARM_UP_ROUNDS:
                    seconds[name].append(time.perf_counter() - began)
    return seconds


def _everything_on(address: str, folder: Path) -> tuple[dict[str, Any], str]:
    token = secrets.token_urlsafe(32)
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[bench]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n', encoding="utf-8")
    settings = {
        "backend": "tf_serving",
        "tf_serving.addresses": [address],
        "tf_serving.model_name": _MODEL_NAME,
        "auth.tokens_file": str(tokens),
        "rate_limit.turns_per_second": 100_000,
        "log.format": "json",
    }
    return settings, token


def _through_front(stack: ExitStack, model_dir: Path, settings: dict[str, Any], token: str) -> Call:
    front = start_front(model_dir, settings)
    stack.callback(front.process.wait)
    stack.callback(front.process.kill)
    rewriter = stack.enter_context(Rewriter(front.address, timeout_seconds=30, token=token))
    rewriter.wait_until_healthy()

    def call(conversation: Conversation) -> object:
        answer = rewriter.rewrite(conversation.history, conversation.utterance)
        if answer.reason is not None:
            raise RuntimeError(f"expected an answer of the model, found {answer.reason.name}")
        return answer

    return call


def _direct(stack: ExitStack, address: str, model_dir: Path) -> Call:
    features = load_features(newest_version(model_dir))
    channel = stack.enter_context(grpc.insecure_channel(address))
    predict = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict",
        tf_serving_pb2.PredictRequest.SerializeToString,
        tf_serving_pb2.PredictResponse.FromString,
    )

    def call(conversation: Conversation) -> object:
        arrays = collate([features.encode(conversation)])
        spec = tf_serving_pb2.ModelSpec(name=_MODEL_NAME, signature_name=GREEDY)
        inputs = {name: to_message(array) for name, array in arrays.items()}
        response = predict(tf_serving_pb2.PredictRequest(model_spec=spec, inputs=inputs), timeout=30)
        return to_arrays(response.outputs)

    return call


def _percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": round(1e3 * cuts[49], 2), "p99_ms": round(1e3 * cuts[98], 2)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path, help="what `rewriter export` wrote")
    main(parser.parse_args().model_dir)
