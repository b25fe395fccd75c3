from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from rewriter.alignment import place
from rewriter.features import UTTERANCE_TURN, Source
from rewriter.inference import rewrite_greedily, rewrite_with_beams
from rewriter.model import RewriterModel
from rewriter.objectives import CopyLoss
from rewriter.vocabulary import UNK

VARIANTS = (
    {},
    {"copy_state": False},
    {"occurrence": False},
    {"copy_state": False, "occurrence": False},
    {"relations": True},
    {"embedding_dim": 8},
)
PLAIN_RECURRENT = {"architecture": "lstm", "output": "ptr_gen", "copy_state": False, "occurrence": False}


@pytest.fixture(scope="module")
def model() -> RewriterModel:
    return tiny.model()


@pytest.fixture
def mixed_precision() -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


def _log_probs(model: RewriterModel, arrays: dict[str, np.ndarray], positions: np.ndarray) -> np.ndarray:
    return np.array(model.decode(model.encode(arrays), positions.astype(np.int32)))


def _words(source: Source, count: int, seed: int) -> list[int]:
    """Copy ids of random words of the source, as a rewrite might have them."""
    rng = np.random.default_rng(seed)
    written = [i for i, surface in enumerate(source.surfaces) if surface and source.turn_ids[i]]
    return [int(source.copy_ids[i]) for i in rng.choice(written, count)]


def _placed(source: Source, tokens: list[int]) -> list[int]:
    return place(source.copy_ids, source.turn_ids == UTTERANCE_TURN, tokens)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_no_output_depends_on_later_targets(changes: dict[str, Any]) -> None:
    model, arrays = tiny.model(**changes), tiny.arrays()
    positions = tiny.targets()[:, :4]
    changed = positions.copy()
    changed[:, 2:] = 3
    before, after = _log_probs(model, arrays, positions), _log_probs(model, arrays, changed)
    # The output at 2 has read the targets 0 and 1; the one at 3 has read the first that differs.
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (np.abs(before - after)[:, 3].max(axis=-1) > 1e-3).all()


def test_call_is_encode_and_decode(model: RewriterModel) -> None:
    arrays, positions = tiny.arrays(), tiny.targets()
    called = np.array(model({**arrays, "positions": positions}))
    np.testing.assert_array_equal(called, _log_probs(model, arrays, positions))


def test_padding_does_not_change_the_log_probabilities(model: RewriterModel) -> None:
    """Of the target's own steps, that is: what comes after its end is nothing that anyone reads."""
    positions = tiny.targets()
    tight = _log_probs(model, tiny.arrays(), positions)
    padded_positions = np.pad(positions, ((0, 0), (0, 3)), constant_values=-1)
    padded = _log_probs(model, tiny.arrays(length=17 + 5), padded_positions)
    real = positions >= 0
    np.testing.assert_allclose(padded[:, : positions.shape[1], :17][real], tight[real], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(padded[:, :, 17:], np.log(1e-9), rtol=1e-5)


def test_a_batch_of_three_is_three_batches_of_one(model: RewriterModel) -> None:
    sources, positions = tiny.sources()[:3], tiny.targets()[:3]
    together = _log_probs(model, tiny.arrays(*sources), positions)
    for row, source in enumerate(sources):
        target = positions[row : row + 1, : int((positions[row] >= 0).sum())]
        alone = _log_probs(model, tiny.arrays(source), target)[0]
        np.testing.assert_allclose(together[row, : len(alone), : len(source)], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rewrite", [rewrite_greedily, rewrite_with_beams], ids=["greedy", "beams"])
def test_padding_does_not_change_the_rewrite(rewrite: Any) -> None:
    """The first row is the longest: once it has ended, its last position is the last of the arrays."""
    model = tiny.model(seed=4)
    outputs = rewrite(model, tiny.arrays())
    finished = np.array(outputs["finished"])
    assert finished.reshape(4, -1)[:, 0].all() and (np.array(outputs["positions"]).reshape(4, -1)[:, 0] >= 0).all()
    together = np.array(outputs["positions"])
    for row, source in enumerate(tiny.sources()):
        alone = rewrite(model, tiny.arrays(source))
        width = len(source) if rewrite is rewrite_greedily else 4  # the best beams end early, the others at the limit
        first = (row, 0) if together.ndim == 3 else (row,)
        np.testing.assert_array_equal(together[first][:width], np.array(alone["positions"])[(0, *first[1:])][:width])
        np.testing.assert_allclose(
            np.array(outputs["log_prob"])[first], np.array(alone["log_prob"])[(0, *first[1:])], rtol=1e-4
        )


def test_a_row_that_has_ended_lets_the_others_go_on() -> None:
    """Neither row has padding: once one has ended, its frontier has nowhere to go."""
    model = tiny.model(seed=4)
    sources = [tiny.sources()[0], tiny.source("你在喝茶", "我看过北京 是 谁 吗 很冷 呢")]
    assert len(sources[0]) == len(sources[1])
    found = rewrite_greedily(model, tiny.arrays(*sources))
    lengths = (np.array(found["positions"]) >= 0).sum(axis=1)
    assert lengths.min() < lengths.max(), "this seed no longer ends one row before the other: take another"
    assert np.array(found["finished"])[int(np.argmin(lengths))]


@pytest.mark.parametrize(
    "changes", [*tiny.FAMILY, {"copy_state": False}, {"edits": True}, {"embedding_dim": 8}, PLAIN_RECURRENT], ids=str
)
def test_one_step_at_a_time_is_the_whole_prefix_at_once(changes: dict[str, Any]) -> None:
    """Cached = uncached, over rows of different lengths; the frontier is the one counted here by hand."""
    model, sources = tiny.model(**changes), tiny.sources()
    steps = 6
    placed = np.array([_placed(s, _words(s, steps, seed=i)) for i, s in enumerate(sources)], np.int32)
    arrays = tiny.arrays()
    memory = model.encode(arrays)
    at_once = np.array(model.decode(memory, placed))
    state = model.start(memory, steps + 2)
    last = np.full(len(sources), -1, np.int32)
    for index in range(steps):
        log_probs, state = model.step(memory, state, last, np.int32(index))
        found = np.array(log_probs)
        offered = found > -1e8
        assert offered.any(axis=1).all()
        np.testing.assert_allclose(found[offered], at_once[:, index][offered], rtol=1e-4, atol=1e-5)
        frontiers = [_frontier(s, placed[row, :index]) for row, s in enumerate(sources)]
        np.testing.assert_array_equal(np.array(state.frontier), frontiers)
        last = placed[:, index]


def _frontier(source: Source, written: np.ndarray) -> int:
    first = int(np.flatnonzero(source.turn_ids == UTTERANCE_TURN)[0])
    return max([first, *(int(p) + 1 for p in written if source.turn_ids[p] == UTTERANCE_TURN)])


def test_each_word_is_offered_at_the_place_where_training_puts_it(model: RewriterModel) -> None:
    """Over random prefixes of a conversation whose words stand in bank, history and utterance at once."""
    source = tiny.source("你是在北京吗 是", "是 我在北京 看 北京", "北京是你的吗 在 北京 看 你")
    in_utterance = source.turn_ids == UTTERANCE_TURN
    words = sorted({int(source.copy_ids[i]) for i, surface in enumerate(source.surfaces) if surface} | {source.end})
    arrays = tiny.arrays(source, length=len(source) + 4)
    memory = model.encode(arrays)
    for seed in range(3):
        tokens = _words(source, 8, seed=seed)
        state, last = model.start(memory, len(tokens)), -1
        for index in range(len(tokens)):
            log_probs, state = model.step(memory, state, np.array([last], np.int32), np.int32(index))
            offered = set(np.flatnonzero(np.array(log_probs)[0] > -1e8))
            assert offered == {place(source.copy_ids, in_utterance, [*tokens[:index], word])[-1] for word in words}
            last = _placed(source, tokens[: index + 1])[-1]


def _gradients(model: RewriterModel) -> dict[str, float]:
    batch = {**tiny.arrays(), "positions": tiny.targets()}
    with tf.GradientTape() as tape:
        loss = CopyLoss()(batch["positions"], model(batch, training=True))
    found = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    dense = [tf.convert_to_tensor(gradient) for gradient in found]
    return {w.path.split("/", 1)[1]: float(tf.norm(g)) for w, g in zip(model.trainable_variables, dense, strict=True)}


@pytest.mark.parametrize(
    "changes", [{"dropout": 0.1}, {"copy_state": False, "occurrence": False}, {"relations": True}], ids=str
)
def test_every_weight_learns(changes: dict[str, Any]) -> None:
    """All but two: a bias of a key adds the same to each logit of a row, which the softmax takes away again."""
    gradients = _gradients(tiny.model(**changes))
    idle = {name for name, norm in gradients.items() if not norm > 1e-5}
    assert idle == {"pointer/history_key/bias", "pointer/utterance_key/bias"}


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_member_of_the_family_gives_a_distribution(changes: dict[str, Any]) -> None:
    model, source = tiny.model(**changes), tiny.sources()[2]
    names = " ".join(weight.path for weight in model.trainable_variables)
    assert ("read_frontier" in names and "bonuses" in names) == changes.get("copy_state", True)
    assert ("occurrence" in names) == changes.get("occurrence", True)
    probabilities = np.exp(_log_probs(model, tiny.arrays(source), tiny.targets()[2:3]))[0]
    np.testing.assert_allclose(probabilities[:, np.unique(source.copy_ids)].sum(-1), 1.0, atol=1e-5)


def test_a_plain_model_does_not_know_where_a_word_was_copied_from() -> None:
    """The two 喜欢 of the first example are one word to it; with the copy state they are two places."""
    source = tiny.sources()[0]
    places = [i for i, surface in enumerate(source.surfaces) if surface == "喜欢"]
    prefixes = np.array([[place, 0] for place in places], np.int32)
    differences = []
    for copy_state in (False, True):
        found = _log_probs(tiny.model(copy_state=copy_state), tiny.arrays(source, source), prefixes)
        differences.append(np.abs(found[0, 1] - found[1, 1]).max())
    assert differences[0] < 1e-5 and differences[1] > 1e-3


@pytest.mark.parametrize(
    ("one", "other", "position"),
    [
        (("北京今天冷吗", "北京 冷吗"), ("北京今天冷吗", "明天 冷吗"), 3),  # 北京 in the history: said again, or not
        (("北京今天冷吗", "北京 冷吗"), ("明天今天冷吗", "北京 冷吗"), 8),  # 北京 in the utterance: said before, or not
    ],
    ids=["history", "utterance"],
)
def test_occurrence_marks_what_stands_on_both_sides(
    one: tuple[str, str], other: tuple[str, str], position: int
) -> None:
    """Without encoder layers a state knows its own word, place and turn, and whether the other side has it too."""
    changes = []
    for occurrence in (False, True):
        model = tiny.model(occurrence=occurrence, num_encoder_layers=0)
        sources = tiny.source(*one), tiny.source(*other)
        assert {source.surfaces[position] for source in sources} == {"北京"}
        states = [np.array(model.encode(tiny.arrays(source)).states)[0, position] for source in sources]
        changes.append(np.abs(states[0] - states[1]).max())
    assert changes[0] == 0.0 and changes[1] > 1e-3


def test_the_bank_means_the_same_in_every_conversation(model: RewriterModel) -> None:
    plain = tiny.model(occurrence=False)
    banks = [np.array(plain.encode(tiny.arrays(source)).states)[0, :3] for source in tiny.sources()[:2]]
    np.testing.assert_array_equal(*banks)


@pytest.mark.usefixtures("mixed_precision")
def test_mixed_precision_gives_nearly_the_same_probabilities(model: RewriterModel) -> None:
    mixed = tiny.model()
    assert mixed.compute_dtype == "bfloat16"
    arrays = tiny.arrays(*tiny.sources()[:2], tiny.source("今天 冷吗"))
    positions = tiny.targets()[:3]
    log_probs = mixed.decode(mixed.encode(arrays), positions)
    assert keras.backend.standardize_dtype(log_probs.dtype) == "float32"
    found = np.array(log_probs)
    assert np.isfinite(found).all()
    exact = _log_probs(model, arrays, positions)
    np.testing.assert_allclose(np.exp(found), np.exp(exact), atol=0.15)
    rewritten = rewrite_greedily(mixed, tiny.arrays(tiny.sources()[3]))
    assert np.isfinite(np.array(rewritten["log_prob"])).all()


def test_unknown_words_are_told_apart_by_their_characters(model: RewriterModel) -> None:
    source = tiny.source("梅西 红楼梦 梅西 西梅", "我")
    arrays = tiny.arrays(source)
    first, other, same, reversed_name = range(3, 7)
    assert (arrays["word_ids"][0, 3:7] == UNK).all()
    embedded = np.array(model.encode(arrays).embedded)[0]
    np.testing.assert_array_equal(embedded[first], embedded[same])
    assert np.abs(embedded[first] - embedded[other]).max() > 1e-2
    assert np.abs(embedded[first] - embedded[reversed_name]).max() > 1e-2
