"""The share of a trial, which an operator may change while the front runs (SIGHUP)."""

import pytest
from fronts import SECONDS, settings
from target import Target

from rewriter.conversation import Conversation
from serving.rewriting import Rewriting
from serving.tf_serving.backend import address_backends

pytestmark = pytest.mark.asyncio

TURN = Conversation(("西安今天的天气怎么样",), "明天有雨吗", conversation_id="c")


async def test_a_trial_begins_and_ends_when_it_is_told_to(target: Target) -> None:
    old = max(target.on_disk())
    new = target.add_version()
    target.configure(stable=old, canary=new)
    labels = {"version_label": "stable", "canary_label": "canary", "poll_seconds": 0.01}
    [backend] = address_backends(settings(target, **labels), target.model_dir)
    rewriting = Rewriting(backend.serving, default_deadline_seconds=SECONDS, deadline_margin_seconds=0.01)

    async def version() -> str:
        return (await rewriting.rewrite(TURN, time_left_seconds=SECONDS)).model.version

    try:
        await backend.start()
        assert await version() == str(old)
        backend.try_canary_on(100)
        while (found := await version()) == str(old):
            pass
        assert found == str(new)
        backend.try_canary_on(0)
        assert await version() == str(old)
    finally:
        await backend.close()
