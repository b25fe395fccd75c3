"""Callers as chatbots are: each turn has a second, and whatever comes back is used."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc

from rewriter.samples import conversations
from serving.answer import Outcome
from serving.client import AsyncRewriter

CALLERS = 8
TIMEOUT_SECONDS = 1.0
_PAUSE_SECONDS = 0.02
_CONVERSATIONS = [conversation for conversation in conversations() if conversation.history]
_NO_REASON = "newer than this client"


@dataclass(frozen=True)
class Record:
    """One call: when it began (``time.monotonic``), how long it took, and its outcome, reason or gRPC code.

    ``usable``: there was a turn to go on with, rewritten or not.
    """

    at: float
    seconds: float
    result: str
    usable: bool
    passed_through: bool = False
    version: str = ""


async def ask(rewriter: AsyncRewriter, number: int) -> Record:
    conversation = _CONVERSATIONS[number % len(_CONVERSATIONS)]
    began = time.monotonic()
    try:
        answer = await rewriter.rewrite(
            conversation.history, conversation.utterance, conversation_id=f"conversation {number % 50}"
        )
    except (grpc.RpcError, ValueError, LookupError) as error:
        code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
        return Record(began, time.monotonic() - began, code, usable=False)
    seconds = time.monotonic() - began
    if answer.outcome is Outcome.PASSTHROUGH:
        reason = answer.reason.name if answer.reason else _NO_REASON
        return Record(began, seconds, reason, bool(answer.text), True, answer.model.version)
    return Record(began, seconds, answer.outcome.name, bool(answer.text), version=answer.model.version)


@asynccontextmanager
async def steady(target: str, callers: int = CALLERS) -> AsyncIterator[list[Record]]:
    """Callers with a connection each who ask one turn after the other; the records so far."""
    records: list[Record] = []
    stopped = asyncio.Event()

    async def call(first: int) -> None:
        rewriter = AsyncRewriter(target, timeout_seconds=TIMEOUT_SECONDS)
        number = first
        while not stopped.is_set():
            records.append(await ask(rewriter, number))
            number += callers
            await asyncio.sleep(random.uniform(0, 2 * _PAUSE_SECONDS))
        await rewriter.close()

    tasks = [asyncio.create_task(call(number)) for number in range(callers)]
    try:
        yield records
    finally:
        stopped.set()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)


async def flood(target: str, calls_per_second: float, seconds: float, connections: int = CALLERS) -> list[Record]:
    """Calls that begin when they should, however long the others take: load that does not wait for the server."""
    rewriters = [AsyncRewriter(target, timeout_seconds=TIMEOUT_SECONDS) for _ in range(connections)]
    began, asked = time.monotonic(), []
    for number in range(int(calls_per_second * seconds)):
        await asyncio.sleep(max(0.0, began + number / calls_per_second - time.monotonic()))
        asked.append(asyncio.create_task(ask(rewriters[number % connections], number)))
    records = await asyncio.gather(*asked)
    for rewriter in rewriters:
        await rewriter.close()
    return list(records)


async def capacity(target: str, seconds: float, callers: int = 16) -> float:
    """Rewrites a second when so many callers ask without a pause: fewer than are refused, which would cost time."""
    rewriters = [AsyncRewriter(target, timeout_seconds=10) for _ in range(callers)]
    end = time.monotonic() + seconds

    async def call(first: int) -> int:
        count, number = 0, first
        while time.monotonic() < end:
            record = await ask(rewriters[first], number)
            rewritten = record.usable and not record.passed_through
            count += rewritten
            number += callers
            if not rewritten:
                # Asking again at once would take the processor from the model, and measure that.
                await asyncio.sleep(_PAUSE_SECONDS)
        return count

    counts = await asyncio.gather(*(call(number) for number in range(callers)))
    for rewriter in rewriters:
        await rewriter.close()
    return sum(counts) / seconds


def percentile(records: Sequence[Record], share: float) -> float:
    """Seconds; 0 without records."""
    times = sorted(record.seconds for record in records)
    return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0
