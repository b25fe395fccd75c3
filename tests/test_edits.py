"""Foretelling which words are copied and where others go in: the loss against a loop, and a model that learns it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny

from rewriter import training
from rewriter.config import DataShare, TrainingConfig
from rewriter.edits import edit_loss
from rewriter.features import UTTERANCE_TURN, Source
from rewriter.model import RewriterModel
from rewriter.objectives import CopyLoss
from rewriter.training import compile_model, train_stage

BANK = len(tiny.FEATURES.function_words)
SETTINGS = TrainingConfig(data=(DataShare(path="train"),), validation="validation", epochs=1, warmup_steps=2)


def loop(logits: np.ndarray, positions: np.ndarray, in_utterance: np.ndarray, counts: np.ndarray) -> float:
    """The same, one position after the other."""
    total = 0.0
    for row in range(len(logits)):
        target = [int(position) for position in positions[row]]
        for position in range(logits.shape[1]):
            steps = [step for step, written in enumerate(target) if written == position]
            elsewhere = [step for step in steps if step > 0 and not in_utterance[row, target[step - 1]]]
            wanted = (bool(steps), bool(elsewhere) and in_utterance[row, position])
            for logit, is_wanted in zip(logits[row, position], wanted, strict=True):
                probability = 1 / (1 + np.exp(-logit))
                total -= np.log(probability if is_wanted else 1 - probability) * counts[row, position]
    return total / max(1, np.count_nonzero(positions >= 0))


def masks(*sources: Source, length: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Which positions are the utterance's, and which are learnt: all but bank and padding."""
    turn_ids = tiny.arrays(*sources, length=length)["turn_ids"]
    said = (turn_ids > 0) & (np.arange(turn_ids.shape[1]) >= BANK)
    return turn_ids == UTTERANCE_TURN, said


def drawn(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


def foretold(source: Source, *positions: int) -> tuple[list[str], list[str]]:
    """The words that the loss wants copied, and those before which it wants others: where it falls as logits rise."""
    logits = tf.Variable(np.full((1, len(source), 2), 0.1, np.float32))
    with tf.GradientTape() as tape:
        loss = edit_loss(logits, np.array([positions], np.int32), *masks(source))
    wanted = np.array(tape.gradient(loss, logits))[0] < 0
    surfaces = [surface or ("EOS" if i == source.end else "EOT") for i, surface in enumerate(source.surfaces)]
    copied, before = ([surfaces[i] for i in np.flatnonzero(wanted[:, kind])] for kind in (0, 1))
    return copied, before


def at(source: Source, surface: str, turn: int) -> int:
    """The position of a word in a turn: -1 is the bank, then the turns from the oldest."""
    [place] = [
        i
        for i, (word, where) in enumerate(zip(source.surfaces, source.places, strict=True))
        if word == surface and (where[0] if where else -1) == turn
    ]
    return place


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_that_of_a_loop_over_positions(seed: int) -> None:
    """Over references, and over targets of random positions, in which any word can follow any other."""
    in_utterance, said = masks()
    shape = (*in_utterance.shape, 2)
    rng = np.random.default_rng(seed)
    random = rng.integers(0, shape[1], (4, 6)).astype(np.int32)
    random[np.arange(6) >= rng.integers(1, 7, 4)[:, None]] = -1
    for positions in (tiny.targets(), random):
        logits = drawn(shape, seed)
        expected = loop(logits, positions, in_utterance, said)
        assert float(edit_loss(logits, positions, in_utterance, said)) == pytest.approx(expected, rel=1e-5)


def test_a_word_from_the_history_goes_in_before_the_word_it_precedes() -> None:
    # 北京 | 明天 | 冷 | 吗 EOS: 冷 is the history's, and so is 吗 after it.
    source = tiny.sources()[1]
    target = [at(source, "北京", 0), at(source, "明天", 2), at(source, "冷", 0), at(source, "吗", 0), source.end]
    assert foretold(source, *target) == (["北京", "冷", "吗", "明天", "EOS"], ["明天", "EOS"])


def test_a_word_of_the_bank_goes_in_too_but_is_not_foretold_itself() -> None:
    # 红楼梦 的 | 作者 | 是 (the utterance's) | 谁 EOS
    source = tiny.sources()[2]
    target = [at(source, "红楼梦", 0), at(source, "的", -1), *(at(source, word, 2) for word in ("作者", "是", "谁"))]
    assert foretold(source, *target, source.end) == (["红楼梦", "作者", "是", "谁", "EOS"], ["作者"])


def test_an_utterance_left_alone_is_copied_whole_and_nothing_goes_in() -> None:
    source = tiny.sources()[3]
    assert foretold(source, *source.utterance_positions, source.end) == (["早上好", "EOS"], [])


def test_what_is_left_out_of_the_utterance_is_foretold_as_not_copied() -> None:
    source = tiny.source("你喜欢北京吗", "他 在 北京 吗")
    words = [at(source, word, 1) for word in ("在", "吗")]
    assert foretold(source, at(source, "你", 0), *words) == (["你", "在", "吗"], ["在"])


def test_padding_of_source_and_target_costs_nothing() -> None:
    logits = drawn((4, 17, 2))
    positions = tiny.targets()
    tight = float(edit_loss(logits, positions, *masks()))
    wide = np.concatenate([logits, drawn((4, 5, 2), seed=9)], axis=1)
    longer = np.pad(positions, ((0, 0), (0, 3)), constant_values=-1)
    assert float(edit_loss(wide, longer, *masks(length=22))) == pytest.approx(tight, rel=1e-5)


def test_the_bank_and_the_padding_are_left_out() -> None:
    in_utterance, said = masks()
    logits = drawn((4, 17, 2))
    before = float(edit_loss(logits, tiny.targets(), in_utterance, said))
    assert not said.all()
    logits[~said] += 7.0
    assert float(edit_loss(logits, tiny.targets(), in_utterance, said)) == before
    logits[said] += 7.0
    assert float(edit_loss(logits, tiny.targets(), in_utterance, said)) != before


@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_a_logit_of_any_size_has_a_finite_loss(size: float) -> None:
    source = tiny.sources()[3]
    target = np.array([[*source.utterance_positions, source.end]], np.int32)
    loss = float(edit_loss(np.full((1, len(source), 2), size, np.float32), target, *masks(source)))
    # Of two logits at each position said, those of two words copied are wanted, in a target of two.
    unwanted = 2 * np.count_nonzero(masks(source)[1]) - 2
    assert loss == pytest.approx(1e4 * (unwanted if size > 0 else 2) / 2)


def test_a_target_without_words_has_a_finite_loss() -> None:
    source = tiny.sources()[3]
    loss = edit_loss(drawn((1, len(source), 2)), np.full((1, 4), -1, np.int32), *masks(source))
    assert np.isfinite(float(loss))


# The model


def batch() -> dict[str, np.ndarray]:
    return {**tiny.arrays(), "positions": tiny.targets()}


def edits_of(model: RewriterModel) -> float:
    return float(edit_loss(model.encode(tiny.arrays()).edits, tiny.targets(), *masks()))


def test_only_training_a_model_with_edits_adds_a_loss_and_by_its_weight() -> None:
    for weight in (0.0, 0.3, 2.0):
        model = tiny.model(edits=True)
        model.edit_loss_weight = weight
        model(batch(), training=True)
        assert [float(loss) for loss in model.losses] == [pytest.approx(weight * edits_of(model), rel=1e-5)]
        model(batch(), training=False)
        assert not model.losses
    plain = tiny.model()
    plain(batch(), training=True)
    assert not plain.losses
    assert plain.encode(tiny.arrays()).edits is None


def test_what_is_foretold_reaches_the_decoder() -> None:
    model = tiny.model(edits=True)
    assert tuple(model.encode(tiny.arrays()).edits.shape) == (4, 17, 2)
    before = np.array(model(batch()))
    # The same states, with the opposite foretold of each position.
    model.foretell.classify.set_weights([-weight for weight in model.foretell.classify.get_weights()])
    assert np.abs(np.array(model(batch())) - before).max() > 1e-2


def test_training_lowers_both_losses() -> None:
    """The loss reported is their weighted sum; dropout would blur it."""
    model = tiny.model(edits=True, num_encoder_layers=1, num_decoder_layers=1)
    model.edit_loss_weight = 0.5
    compile_model(model, SETTINGS.model_copy(update={"learning_rate": 1e-2}), 60)
    foretelling, copying = edits_of(model), float(CopyLoss()(tiny.targets(), model(batch())))
    losses = [float(model.train_on_batch(batch(), tiny.targets())) for _ in range(60)]
    assert losses[0] == pytest.approx(copying + 0.5 * foretelling, rel=1e-4)
    assert losses[-1] < losses[0] / 4
    assert edits_of(model) < foretelling / 4


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_a_stage_of_training_says_what_foretelling_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weight: float
) -> None:
    class Compiled(Exception):
        pass

    def stop(model: RewriterModel, config: Any, steps: int, loss: Any) -> None:
        raise Compiled(model.edit_loss_weight)

    from rewriter.preparation import encode_examples

    tiny.VOCABULARY.save(tmp_path)
    tiny.FEATURES.save(tmp_path / "features.json")
    for name in ("train", "validation", "validation_untouched"):
        encode_examples(tiny.features(), tiny.EXAMPLES).save(tmp_path / f"{name}.npz")
    monkeypatch.setattr(training, "compile_model", stop)
    config = SETTINGS.model_copy(update={"edit_loss_weight": weight})
    sizes = tiny.model_config(edits=True).model_dump(exclude={"num_words", "num_characters"}, exclude_none=True)
    with pytest.raises(Compiled) as compiled:
        train_stage(tmp_path, tmp_path / "run", config, sizes)
    assert compiled.value.args == (weight,)
