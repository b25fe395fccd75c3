"""Callers of the service under load: ``locust -f loadtest/locustfile.py --host localhost:8600 --headless -u 8 -t 1m``.

A user is a chatbot that waits for each rewrite before it asks for the next: a closed loop, so a stalled server makes
the load lighter, not the latency worse. Passthroughs are counted as an entry of their own.
"""

import time

import grpc.experimental.gevent
from locust import User, constant, events, task

# After locust's own patching and before any gRPC object, or the first call would block all users.
grpc.experimental.gevent.init_gevent()

from rewriter.samples import conversations  # noqa: E402
from serving.answer import Outcome  # noqa: E402
from serving.client import Rewriter  # noqa: E402


class Chatbot(User):  # type: ignore[misc]
    """Rewrites conversation after conversation over a connection of its own."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self.rewriter = Rewriter(self.host)
        self.asked = 0

    def on_stop(self) -> None:
        self.rewriter.close()

    @task  # type: ignore[untyped-decorator]
    def rewrite(self) -> None:
        samples = conversations()
        conversation = samples[self.asked % len(samples)]
        self.asked += 1
        started = time.perf_counter()
        name, error = "Rewrite", None
        try:
            answer = self.rewriter.rewrite(conversation.history, conversation.utterance)
            if answer.outcome is Outcome.PASSTHROUGH:
                name = "Rewrite (passthrough)"
        except grpc.RpcError as failure:
            error = failure
        events.request.fire(
            request_type="gRPC",
            name=name,
            response_time=1e3 * (time.perf_counter() - started),
            response_length=0,
            exception=error,
        )
