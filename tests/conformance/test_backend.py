"""Our backend against TF Serving: versions, labels, lengths, batches. Nothing here needs a server that misbehaves."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fronts import CONVERSATION, CONVERSATIONS, SECONDS, front, load, lost, settings, until
from saved_models import FINGERPRINT, WORDS
from target import Target, write_tiny

from rewriter.vocabulary import SPECIAL_CHARACTERS, SPECIAL_WORDS, Vocabulary
from serving.answer import PassthroughReason
from serving.artefact import manifest_path
from serving.backend import BackendUnavailable
from serving.embedded import EmbeddedBackend
from serving.tf_serving.backend import address_backends
from serving.tf_serving.catalogue import Catalogue
from serving.tf_serving.routes import is_on_trial

pytestmark = pytest.mark.asyncio

OTHER_FINGERPRINT = 77
OTHER_VOCABULARY = Vocabulary(
    SPECIAL_WORDS + WORDS[::-1], SPECIAL_CHARACTERS + tuple(sorted(set("".join(WORDS)), reverse=True))
)


def with_another_vocabulary(folder: Path, number: int) -> None:
    names = {"fingerprint": OTHER_FINGERPRINT, "claimed_fingerprint": OTHER_FINGERPRINT}
    write_tiny(folder, number, vocabulary=OTHER_VOCABULARY, **names)


def with_an_answer_of_another_export(folder: Path, number: int) -> None:
    write_tiny(folder, number, fingerprint=OTHER_FINGERPRINT)


def with_a_manifest_that_cannot_be_read(folder: Path, number: int) -> None:
    write_tiny(folder, number)
    path = manifest_path(folder / str(number))
    path.unlink()
    path.mkdir()


def without_signatures_per_length(folder: Path, number: int) -> None:
    write_tiny(folder, number, length_signatures=False)


@pytest.mark.parametrize("batching", ["front", "server"])
@pytest.mark.parametrize("beam", [False, True])
async def test_it_answers_as_the_embedded_model_does(target: Target, batching: str, beam: bool) -> None:
    newest = Catalogue(target.model_dir).newest()
    sources = [newest.features.encode(conversation) for conversation in CONVERSATIONS]
    embedded = EmbeddedBackend(
        target.model_dir / str(newest.number), newest.manifest.fingerprint, max_batch_size=8, max_queue_size=64
    )
    await embedded.start()
    expected = await embedded.predict(sources, beam=beam, timeout_seconds=SECONDS)
    await embedded.close()
    async with front(target, batching=batching) as served:
        found = await served.backend.predict(sources, beam=beam, timeout_seconds=SECONDS)
    for here, there in zip(expected, found, strict=True):
        assert [each.positions for each in there.hypotheses] == [each.positions for each in here.hypotheses]
        scores = [each.score for each in here.hypotheses]
        assert [each.score for each in there.hypotheses] == pytest.approx(scores, rel=1e-3)


@pytest.mark.parametrize("batching", ["front", "server"])
async def test_turns_of_all_lengths_at_once_are_all_answered(
    target: Target, batching_target: Target, batching: str
) -> None:
    """In the mode for servers with batching, this one makes batches."""
    asked = batching_target if batching == "server" else target
    async with front(asked, batching=batching) as served:
        answers = await asyncio.gather(*(served.ask(turn) for turn in CONVERSATIONS * 10))
    assert lost(answers) == []


async def test_an_answer_names_the_version_that_gave_it(target: Target) -> None:
    new = target.add_version()
    async with front(target) as newest, front(target, version=new - 1) as older:
        assert [(await each.ask()).model.version for each in (newest, older)] == [str(new), str(new - 1)]


@pytest.mark.parametrize("write", [None, with_another_vocabulary])
@pytest.mark.parametrize("batching", ["front", "server"])
async def test_a_version_is_replaced_under_load_without_a_lost_turn(
    target: Target, batching: str, write: Callable[[Path, int], None] | None
) -> None:
    """The new one may read other arrays: turns that were encoded for the old one are encoded anew."""
    async with front(target, batching=batching) as served, load(served) as answers:
        await until(answers, 20)
        new = await asyncio.to_thread(target.add_version, write)
        await until(answers, 20)
        target.model_dir.joinpath(str(new)).rename(target.model_dir.parent / "kept")
        await asyncio.to_thread(target.wait_for, {new - 1})
        await until(answers, 20)
    shutil.rmtree(target.model_dir.parent / "kept")
    assert lost(answers) == []
    versions = [answer.model.version for answer in answers]
    assert {str(new - 1), str(new)} == set(versions)
    assert versions[0] == versions[-1] == str(new - 1)


async def test_the_vocabulary_of_an_answer_is_that_of_its_version(target: Target) -> None:
    new = target.add_version(with_another_vocabulary)
    async with front(target) as newest, front(target, version=new - 1) as older:
        fingerprints = [(await each.ask()).model.vocabulary_fingerprint for each in (newest, older)]
    assert fingerprints[0] == OTHER_VOCABULARY.fingerprint != fingerprints[1]


@pytest.mark.parametrize(
    ("write", "batching", "message"),
    [
        (
            with_an_answer_of_another_export,
            "front",
            rf"version \d+: expected an answer of the model {FINGERPRINT}, found \[{OTHER_FINGERPRINT}\]",
        ),
        (
            without_signatures_per_length,
            "server",
            r"version \d+: expected a signature 'serving_default_48', found \['beam', 'serving_default'\]",
        ),
    ],
)
async def test_a_model_that_does_not_fit_is_refused_at_the_start(
    target: Target, write: Callable[[Path, int], None], batching: str, message: str
) -> None:
    target.add_version(write)
    with pytest.raises(BackendUnavailable, match=message):
        async with front(target, batching=batching):
            pass


async def test_a_version_that_is_not_on_the_fronts_storage_is_refused(target: Target, tmp_path: Path) -> None:
    write_tiny(tmp_path, max(target.on_disk()) + 5)
    [backend] = address_backends(settings(target), tmp_path)
    with pytest.raises(BackendUnavailable, match=r"expected the assets of version \d+, found no model.json"):
        await backend.start()
    await backend.close()


@pytest.mark.parametrize("write", [with_an_answer_of_another_export, with_a_manifest_that_cannot_be_read])
async def test_a_new_version_that_does_not_fit_leaves_the_old_one_in_charge(
    target: Target, write: Callable[[Path, int], None]
) -> None:
    async with front(target) as served:
        old = (await served.ask()).model.version
        new = target.add_version(write)
        answers = [await served.ask() for _ in range(3)]
        assert [answer.model.version for answer in answers] == [old] * 3
        assert lost(answers) == []
        target.remove_version(new)
        fitting = target.add_version()
        await asyncio.gather(*(look(served) for _ in range(2)))
        assert (await served.ask()).model.version == str(fitting)


async def look(served: Any) -> None:
    """As if ``poll_seconds`` had passed."""
    for replica in served.backends:
        await replica._watcher.look()


async def test_a_number_that_is_used_again_is_another_version(target: Target) -> None:
    async with front(target) as served:
        fingerprints = []
        for write in (None, with_another_vocabulary):
            number = target.add_version(write)
            await look(served)
            fingerprints.append((await served.ask()).model.vocabulary_fingerprint)
            target.remove_version(number)
            await look(served)
    assert fingerprints[0] != fingerprints[1] == OTHER_VOCABULARY.fingerprint


async def test_only_a_version_that_does_not_fit_is_no_model_at_all(target: Target) -> None:
    old = max(target.on_disk())
    async with front(target) as served:
        target.add_version(with_an_answer_of_another_export)
        kept = (target.model_dir / str(old)).rename(target.model_dir.parent / "kept")
        try:
            target.wait_for({old + 1})
            answer = await served.ask()
            assert answer.reason is PassthroughReason.MODEL_UNAVAILABLE
            with pytest.raises(BackendUnavailable, match=f"expected an answer of the model {FINGERPRINT}, found"):
                await served.backend.predict([], beam=False, timeout_seconds=SECONDS)
        finally:
            kept.rename(target.model_dir / str(old))


async def test_the_trial_gets_its_conversations_and_no_others(target: Target) -> None:
    old = max(target.on_disk())
    new = target.add_version(with_another_vocabulary)
    target.configure(stable=old, canary=new)
    labels = {"version_label": "stable", "canary_label": "canary", "canary_percent": 30}
    async with front(target, **labels) as served:
        for number in range(20):
            conversation_id = f"conversation {number}"
            expected = new if is_on_trial(conversation_id, 30) else old
            turns = [await served.ask(turn, conversation_id=conversation_id) for turn in CONVERSATIONS[:2]]
            assert [turn.model.version for turn in turns] == [str(expected)] * 2
        assert (await served.ask()).model.version == str(old)


async def test_a_trial_ends_with_its_version_or_label_without_a_lost_turn(target: Target) -> None:
    old = max(target.on_disk())
    new = target.add_version(with_another_vocabulary)
    labels = {"version_label": "stable", "canary_label": "canary", "canary_percent": 100}
    for end in (lambda: target.configure(stable=old), lambda: target.remove_version(new)):
        target.configure(stable=old, canary=new)
        async with front(target, **labels) as served:
            assert (await served.ask(conversation_id="c")).model.version == str(new)
            end()
            assert (await served.ask(conversation_id="c")).model.version == str(old)


async def test_a_trial_can_begin_while_the_front_runs(target: Target) -> None:
    old = max(target.on_disk())
    target.configure(stable=old)
    labels = {"version_label": "stable", "canary_label": "canary", "canary_percent": 100}
    async with front(target, **labels) as served:
        assert (await served.ask(conversation_id="c")).model.version == str(old)
        new = target.add_version()
        target.configure(stable=old, canary=new)
        await look(served)
        assert (await served.ask(conversation_id="c")).model.version == str(new)


async def test_a_label_that_moves_is_followed(target: Target) -> None:
    old = max(target.on_disk())
    new = target.add_version(with_another_vocabulary)
    target.configure(stable=old)
    async with front(target, version_label="stable") as served:
        found = []
        for version in (old, new, old):
            target.configure(stable=version)
            found.append((await served.ask()).model.version)
    assert found == [str(old), str(new), str(old)]


async def test_addresses_take_turns(target: Target, batching_target: Target) -> None:
    """The two are told apart by the versions they serve."""
    new = target.add_version()
    async with front(target, batching_target, batching="server") as served:
        await look(served)
        versions = [(await served.ask(CONVERSATION)).model.version for _ in range(6)]
    assert sorted(set(versions)) == [str(new - 1), str(new)]
    assert versions == versions[:2] * 3


async def test_the_features_before_the_first_contact_are_those_on_storage(target: Target) -> None:
    newest = Catalogue(target.model_dir).newest().features
    async with front(target, start=False) as served:
        found = served.rewriting.features
        assert found.config == newest.config
        assert found.vocabulary.fingerprint == newest.vocabulary.fingerprint
        assert (await served.ask()).reason is PassthroughReason.MODEL_UNAVAILABLE
