"""What holds for all eight models of the paper. Step by step = at once, for all of them, is in test_model."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from rewriter.artefact import load_model, save_artefact
from rewriter.config import ModelConfig, TrainingConfig
from rewriter.conversation import Conversation, Example
from rewriter.features import collate
from rewriter.inference import Rewriter, rewrite_greedily, rewrite_with_beams
from rewriter.model import RewriterModel
from rewriter.objectives import CopyLoss
from rewriter.recurrent import LSTMEncoderLayer
from rewriter.training import compile_model
from rewriter.vocabulary import UNK

FLOOR = np.log(1e-9)
PLAIN = {"copy_state": False, "occurrence": False, "edits": False}
ALL_PARTS = {"copy_state": True, "occurrence": True, "edits": True}
# No word of these rewrites is unknown: a model that only generates can learn them too.
EXAMPLES = (
    Example(Conversation(("北京今天冷吗", "今天很冷"), "明天呢"), "北京明天冷吗"),
    Example(Conversation(("你在干嘛", "我在喝茶"), "早上好"), "早上好"),
    Example(Conversation(("你喜欢踢球吗", "我很喜欢"), "他呢"), "他喜欢踢球吗"),
)

family = pytest.mark.parametrize(
    "member", tiny.FAMILY, ids=lambda member: f"{member['architecture']}-{member['output']}"
)


def _log_probs(model: RewriterModel, arrays: dict[str, np.ndarray], positions: np.ndarray) -> np.ndarray:
    return np.array(model.decode(model.encode(arrays), positions.astype(np.int32)))


def _names(model: RewriterModel) -> set[str]:
    return {part for weight in model.trainable_variables for part in weight.path.split("/")}


def test_todays_model_is_the_default() -> None:
    config = ModelConfig(num_words=10, num_characters=10)
    assert (config.architecture, config.output) == ("transformer", "ptr_lambda")


@family
def test_a_member_has_the_parts_of_its_name_and_no_others(member: dict[str, Any]) -> None:
    names = _names(tiny.model(**member))
    assert ("lstm_cell" in names) == (member["architecture"] == "lstm")
    assert ("self_attention" in names) == (member["architecture"] == "transformer")
    assert {"history_attention", "utterance_attention"} <= names
    assert ("vocabulary" in names) == (member["output"] in ("gen", "ptr_gen"))
    assert ("generation_gate" in names) == (member["output"] == "ptr_gen")
    assert ("history_gate" in names) == (member["output"] == "ptr_lambda")
    assert ("pointer" in names) == (member["output"] != "gen")


@family
def test_three_examples_are_learnt_by_heart_and_rewritten_exactly(member: dict[str, Any]) -> None:
    keras.utils.set_random_seed(7)
    sizes = {"hidden_dim": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = RewriterModel(tiny.model_config(**sizes, **member, **PLAIN), tiny.FEATURES)
    steps = 70
    settings = TrainingConfig(data=(), validation="", epochs=1, learning_rate=1e-2, warmup_steps=10)
    compile_model(model, settings, steps)
    sources = [tiny.features().encode(example.conversation) for example in EXAMPLES]
    targets = [tiny.features().target(s, e.reference) or [] for s, e in zip(sources, EXAMPLES, strict=True)]
    assert all(source.word_ids[i] != UNK for source, target in zip(sources, targets, strict=True) for i in target)
    longest = max(map(len, targets))
    positions = np.array([target + [-1] * (longest - len(target)) for target in targets], np.int32)
    batch = {**collate(sources), "positions": positions}
    losses = [float(model.train_on_batch(batch, positions)) for _ in range(steps)]
    assert losses[-1] < 0.1 < losses[0]
    rewrites = Rewriter(model, tiny.features()).rewrite([example.conversation for example in EXAMPLES])
    assert [rewrite.text for rewrite in rewrites] == [example.reference for example in EXAMPLES]


@family
@pytest.mark.parametrize("parts", [PLAIN, ALL_PARTS], ids=["plain", "all parts"])
def test_probabilities_of_a_member_with_and_without_the_optional_parts(
    member: dict[str, Any], parts: dict[str, bool]
) -> None:
    """Pointers share 1 among the words of the source; what writes from a vocabulary wastes some on other words."""
    source = tiny.sources()[2]
    model = tiny.model(**member, **parts)
    probabilities = np.exp(_log_probs(model, tiny.arrays(source), tiny.targets()[2:3]))[0]
    sums = probabilities[:, np.unique(source.copy_ids)].sum(-1)
    if member["output"] in ("ptr_net", "ptr_lambda"):
        np.testing.assert_allclose(sums, 1.0, atol=1e-5)
    else:
        assert (sums > 1e-3).all() and (sums < 1.0 - 1e-6).all()


@family
def test_what_is_searched_is_what_is_trained(member: dict[str, Any]) -> None:
    """The log-probability of each rewrite found is that of the whole prefix at once, the end counted."""
    model = tiny.model(seed=30, num_encoder_layers=1, num_decoder_layers=1, **member)
    sources = [tiny.source("今天 冷", "明天 呢"), tiny.source("早上好", "他 很 冷 吗")]
    arrays = tiny.arrays(*sources)
    greedy, beams = rewrite_greedily(model, arrays), rewrite_with_beams(model, arrays, beam_size=2)
    for found in (greedy, {name: output[:, 0] for name, output in beams.items()}):
        positions, finished = np.array(found["positions"]), np.array(found["finished"])
        steps = [
            [*row[row >= 0], *([source.end] if done else [])]
            for row, source, done in zip(positions, sources, finished, strict=True)
        ]
        padded = np.full((2, max(map(len, steps))), -1, np.int32)
        for row, taken in enumerate(steps):
            padded[row, : len(taken)] = taken
        at_once = _log_probs(model, arrays, padded)
        for row, taken in enumerate(steps):
            total = at_once[row, np.arange(len(taken)), taken].sum()
            assert np.array(found["log_prob"])[row] == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("member", [tiny.FAMILY[0], tiny.FAMILY[6]], ids=str)
def test_padding_and_neighbours_change_nothing(member: dict[str, Any]) -> None:
    model, sources, positions = tiny.model(**member), tiny.sources(), tiny.targets()
    together = _log_probs(model, tiny.arrays(length=22), np.pad(positions, ((0, 0), (0, 2)), constant_values=-1))
    for row, source in enumerate(sources):
        target = positions[row : row + 1, : int((positions[row] >= 0).sum())]
        alone = _log_probs(model, tiny.arrays(source), target)[0]
        np.testing.assert_allclose(together[row, : len(alone), : len(source)], alone, rtol=1e-4, atol=1e-5)


def test_each_half_of_an_lstm_encoder_has_read_everything_where_its_direction_ends() -> None:
    """The first half at the last word before the padding, the second half at the first word."""
    layer = LSTMEncoderLayer(8, dropout=0.0)
    layer.build((None, None, 8))
    mask = np.array([[[True, True, True, False]]])
    x = np.random.default_rng(1).normal(size=(1, 4, 8)).astype(np.float32)

    def is_moved(changed: int, at: int) -> list[bool]:
        """Whether changing one position moves the two halves at another one."""
        other = x.copy()
        other[0, changed] *= -1
        moved = np.abs(np.array(layer(x, mask)) - np.array(layer(other, mask)))[0, at] > 1e-6
        return [bool(half.any()) for half in np.split(moved, 2)]

    assert is_moved(changed=0, at=2) == [True, False]
    assert is_moved(changed=2, at=0) == [False, True]
    assert is_moved(changed=3, at=0) == [False, False]


def test_an_lstm_decoder_begins_with_the_ends_of_both_directions_and_nothing_else() -> None:
    model, arrays = tiny.model(architecture="lstm"), tiny.arrays()
    states = np.full((*arrays["word_ids"].shape, 16), np.nan, np.float32)
    for row, source in enumerate(tiny.sources()):
        states[row, source.end, :8] = row
        states[row, len(tiny.FEATURES.function_words), 8:] = row
    start = np.array(model._start(states, arrays["word_ids"]))
    assert np.isfinite(start).all() and start.shape == (4, 1, 16)
    kernel, _ = model.read_end.get_weights()
    np.testing.assert_allclose(start[1:, 0] - start[:1, 0], np.outer([1, 2, 3], kernel.sum(0)), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("output", ["gen", "ptr_gen"])
def test_a_vocabulary_does_not_write_unknown_words(output: str) -> None:
    model, source = tiny.model(output=output), tiny.sources()[0]
    unknown = source.surfaces.index("梅西")
    assert source.word_ids[unknown] == UNK
    written = model.write(model.encode(tiny.arrays(source)), tiny.targets()[:1])
    assert (np.array(written.generated)[0, :, unknown] == 0).all()
    assert (np.array(written.generated)[0, :, source.surfaces.index("几岁")] > 0).all()
    log_probs = _log_probs(model, tiny.arrays(source), tiny.targets()[:1])[0, :, unknown]
    if output == "gen":
        np.testing.assert_allclose(log_probs, FLOOR, rtol=1e-6)
    else:
        assert (log_probs > FLOOR + 1).all()


def test_a_word_that_dropout_made_unknown_in_one_place_is_written_alike_in_all() -> None:
    model, source = tiny.model(output="gen"), tiny.sources()[0]
    first, second = [i for i, surface in enumerate(source.surfaces) if surface == "喜欢"]
    arrays = tiny.arrays(source)
    arrays["word_ids"][0, second] = UNK
    found = _log_probs(model, arrays, tiny.targets()[:1])[0]
    np.testing.assert_array_equal(found[:, first], found[:, second])
    assert (found[:, first] > FLOOR + 1).all()


def test_the_generation_gate_chooses_between_vocabulary_and_source() -> None:
    """All but nothing of it left, a pointer-generator is a pointer, and the other way round."""
    source = tiny.sources()[1]
    for bias, generates in ((50.0, True), (-50.0, False)):
        model = tiny.model(output="ptr_gen")
        kernel, _ = model.pointer.gate.get_weights()
        model.pointer.gate.set_weights([np.zeros_like(kernel), np.array([bias])])
        written = model.write(model.encode(tiny.arrays(source)), tiny.targets()[1:2])
        copied, generated = np.array(written.copied).sum(-1), np.array(written.generated).sum(-1)
        assert (generated > 1e-3).all() == generates
        np.testing.assert_allclose(copied, 0.0 if generates else 1.0, atol=1e-5)


@pytest.mark.parametrize("output", ["ptr_net", "ptr_gen"])
def test_the_history_gate_of_one_attention_is_its_share_on_the_history(output: str) -> None:
    source = tiny.sources()[1]
    model = tiny.model(output=output)
    written = model.write(model.encode(tiny.arrays(source)), tiny.targets()[1:2])
    copied = np.array(written.copied)[0]
    share = copied[:, source.turn_ids > 1].sum(-1) / copied.sum(-1)
    np.testing.assert_allclose(np.array(written.history_gate)[0], share, rtol=1e-4)
    assert (share > 0.01).all() and (share < 0.99).all()


@pytest.mark.parametrize("member", [tiny.FAMILY[2], *tiny.FAMILY[4:]], ids=str)
def test_every_weight_learns(member: dict[str, Any]) -> None:
    """All but the bias of a key, which adds the same to each logit of a row."""
    model = tiny.model(**member, edits=True)
    model.edit_loss_weight = 0.3
    batch = {**tiny.arrays(), "positions": tiny.targets()}
    with tf.GradientTape() as tape:
        loss = CopyLoss()(batch["positions"], model(batch, training=True)) + sum(model.losses)
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    idle = {
        weight.path.split("/", 1)[1]
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True)
        if gradient is None or not float(tf.norm(tf.convert_to_tensor(gradient))) > 1e-6
    }
    assert all(name.endswith("key/bias") for name in idle), idle


@family
def test_what_is_saved_is_loaded(member: dict[str, Any], tmp_path: Path) -> None:
    model = tiny.model(**member, **ALL_PARTS)
    save_artefact(tmp_path, model, tiny.FEATURES, tiny.VOCABULARY)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    for before, after in zip(model.trainable_variables, loaded.trainable_variables, strict=True):
        np.testing.assert_array_equal(np.array(after.value), np.array(before.value).astype(np.float16))


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_rewrite_without_words_is_none(beam_size: int) -> None:
    """Untrained generators come upon it: the turn goes back as it is, or the next best rewrite is taken."""
    rewriter = Rewriter(tiny.model(), tiny.features(), beam_size)
    none, some = np.full(16, -1, np.int32), np.full(16, -1, np.int32)
    some[0] = 4
    empty_first = {
        "positions": np.array([none] if beam_size == 1 else [[none, some]]),
        "log_prob": np.array([-0.1] if beam_size == 1 else [[-0.1, -2.0]]),
        "finished": np.array([True] if beam_size == 1 else [[True, True]]),
        "history_gate": np.zeros((1, 16)),
    }
    rewriter._predict = lambda source: empty_first
    [candidates] = rewriter.candidates([EXAMPLES[0].conversation])
    expected = [("明天呢", 0.0)] if beam_size == 1 else [("今天", pytest.approx(np.exp(-2.0)))]
    assert [(candidate.text, candidate.confidence) for candidate in candidates] == expected
