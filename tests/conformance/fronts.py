"""The use case over our backend without its guards, for the tests of the backend."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from target import Target

from rewriter.conversation import Conversation
from serving.answer import Answer, Outcome
from serving.backend import ServedModel
from serving.rewriting import Rewriting
from serving.tf_serving.address import AddressBackend
from serving.tf_serving.backend import address_backends
from serving.tf_serving.settings import TFServingSettings

CONVERSATION = Conversation(("西安今天的天气怎么样",), "明天有雨吗")
# From the shortest to the longest bucket.
CONVERSATIONS = tuple(Conversation(("西安今天的天气怎么样" * times,), "明天有雨吗") for times in (1, 8, 16, 40))
SECONDS = 30


@dataclass(frozen=True)
class Front:
    backends: list[AddressBackend]
    rewriting: Rewriting

    @property
    def backend(self) -> AddressBackend:
        return self.backends[0]

    async def ask(
        self, conversation: Conversation = CONVERSATION, *, conversation_id: str = "", **changes: Any
    ) -> Answer:
        named = replace(conversation, conversation_id=conversation_id)
        return await self.rewriting.rewrite_or_pass_through(named, **{"time_left_seconds": SECONDS, **changes})


def settings(*targets: Target, **changes: Any) -> TFServingSettings:
    """Polls so seldom that nothing is found out by chance, unless a test wants it."""
    addresses = tuple(target.address for target in targets)
    return TFServingSettings(
        **{"addresses": addresses, "model_name": targets[0].model_name, "poll_seconds": 3600, **changes}
    )


@asynccontextmanager
async def front(*targets: Target, start: bool = True, **changes: Any) -> AsyncIterator[Front]:
    backends = address_backends(settings(*targets, **changes), targets[0].model_dir)
    turns = count()

    def choose(conversation_id: str) -> ServedModel:
        candidates = [backend for backend in backends if backend.ready] or backends
        return candidates[next(turns) % len(candidates)].serving(conversation_id)

    rewriting = Rewriting(choose, default_deadline_seconds=SECONDS, deadline_margin_seconds=0.01)
    try:
        if start:
            await asyncio.gather(*(backend.start() for backend in backends))
        yield Front(backends, rewriting)
    finally:
        await asyncio.gather(*(backend.close() for backend in backends))


@asynccontextmanager
async def load(front: Front, callers: int = 4) -> AsyncIterator[list[Answer]]:
    """Callers that ask one conversation after the other; the answers so far.

    Raises what any of them raises.
    """
    answers: list[Answer] = []
    stopped = asyncio.Event()

    async def call(number: int) -> None:
        while not stopped.is_set():
            turn = CONVERSATIONS[(number + len(answers)) % len(CONVERSATIONS)]
            conversation_id = f"conversation {number}"
            answers.append(await front.ask(turn, conversation_id=conversation_id))

    tasks = [asyncio.create_task(call(number)) for number in range(callers)]
    yield answers
    stopped.set()
    await asyncio.gather(*tasks)


async def until(answers: list[Answer], more: int) -> None:
    """Until there are so many more answers."""
    target = len(answers) + more
    while len(answers) < target:
        await asyncio.sleep(0.01)


def is_an_answer(answer: Answer) -> bool:
    return answer.outcome is not Outcome.PASSTHROUGH


def lost(answers: Iterable[Answer]) -> list[Answer]:
    """Those that passed the turn through: shown where a test expects none, they say why."""
    return [answer for answer in answers if not is_an_answer(answer)]
