"""Guessing hidden words: what is hidden, what is asked, what is trained."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.artefact import load_model, save_artefact
from rewriter.config import DataShare, TrainingConfig
from rewriter.dataset import Batch
from rewriter.inference import Rewriter
from rewriter.masking import RewriterAndGuesser, WordGuesser, guessing_loss, hide_words
from rewriter.objectives import OBJECTIVES, CopyLoss, MaskedWords, RewritingBesideGuessing
from rewriter.preparation import encode_examples
from rewriter.training import compile_model, train_stage
from rewriter.vocabulary import EOT, PAD, UNK

BANK = len(tiny.FEATURES.function_words)
SIZES = tiny.model_config().model_dump(exclude={"num_words", "num_characters"}, exclude_none=True)


def hidden(seed: int, share: float = 0.4) -> tuple[Batch, Batch, np.ndarray]:
    batch = tiny.arrays()
    inputs, words = hide_words(batch, share, BANK, np.random.default_rng(seed))
    return batch, inputs, words


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.99))
def test_only_known_words_that_were_said_are_asked_for_and_the_rest_stays(seed: int, share: float) -> None:
    batch, inputs, words = hidden(seed, share)
    asked = inputs["hidden"][words != PAD]
    assert len(set(asked)) == len(asked)
    rows, places = np.unravel_index(asked, batch["word_ids"].shape)
    np.testing.assert_array_equal(words[words != PAD], batch["word_ids"][rows, places])
    assert np.all(words[words != PAD] > EOT) and np.all(places >= BANK)
    assert np.all(batch["turn_ids"][rows, places] > 0)
    untouched = np.ones_like(batch["word_ids"], bool)
    untouched[rows, places] = False
    for name in ("word_ids", "character_ids", "turn_ids", "copy_ids"):
        np.testing.assert_array_equal(inputs[name][untouched], batch[name][untouched])


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_nothing_tells_a_hidden_word(seed: int) -> None:
    """Neither its characters nor that it is said elsewhere too."""
    batch, inputs, _ = hidden(seed)
    blank = (inputs["word_ids"] == UNK) & (batch["word_ids"] != UNK)
    assert np.all(inputs["character_ids"][blank][:, 0] == UNK)
    assert np.all(inputs["character_ids"][blank][:, 1:] == PAD)
    for row, column in zip(*np.nonzero(blank), strict=True):
        assert np.count_nonzero(inputs["copy_ids"][row] == inputs["copy_ids"][row, column]) == 1


def test_about_the_wanted_share_is_asked_for_and_a_tenth_of_it_stays_visible() -> None:
    known = batch_of_known_words()
    inputs, words = hide_words(known, 0.3, BANK, np.random.default_rng(1))
    said = known["word_ids"][:, BANK:].size
    assert np.count_nonzero(words) / said == pytest.approx(0.3, abs=0.06)
    visible = inputs["word_ids"].ravel()[inputs["hidden"]] == words
    assert np.count_nonzero(visible & (words != PAD)) / np.count_nonzero(words) == pytest.approx(0.1, abs=0.05)


def batch_of_known_words() -> Batch:
    shape = (200, BANK + 20)
    ids = np.full(shape, EOT + 1, np.int32)
    return {"word_ids": ids, "character_ids": np.ones((*shape, 3), np.int32), "turn_ids": ids, "copy_ids": ids}


@pytest.mark.parametrize("sizes", [{}, {"embedding_dim": 8}], ids=str)
def test_guessing_trains_the_layers_that_read_and_no_others(sizes: dict[str, Any]) -> None:
    model = tiny.model(edits=True, relations=True, **sizes)
    guesser = WordGuesser(model)
    reading = {id(variable) for layer in model.readers for variable in layer.trainable_variables}
    others = [variable for variable in model.trainable_variables if id(variable) not in reading]
    assert {"pointer", "foretell"} <= {variable.path.split("/")[1] for variable in others}
    before = [np.array(variable.value) for variable in others]
    read_before = {variable.path: np.array(variable.value) for variable in guesser.trainable_variables}
    fit(guesser, steps=3)
    for variable, value in zip(others, before, strict=True):
        np.testing.assert_array_equal(np.array(variable.value), value)
    still = [v.path for v in guesser.trainable_variables if np.array_equal(np.array(v.value), read_before[v.path])]
    assert still == []


def test_hidden_words_of_four_conversations_are_learnt_by_heart() -> None:
    keras.utils.set_random_seed(3)
    guesser = WordGuesser(tiny.model(hidden_dim=32))
    losses, inputs, words = fit(guesser, steps=150)
    assert losses[-1] < 0.2 < losses[0]
    asked = words != PAD
    guessed = np.argmax(np.array(guesser(inputs, training=False)), axis=-1)
    np.testing.assert_array_equal(guessed[asked], words[asked])


def fit(guesser: WordGuesser, steps: int) -> tuple[list[float], dict[str, Any], np.ndarray]:
    _, inputs, words = hidden(seed=5)
    settings = TrainingConfig(data=(DataShare(path="train"),), validation="validation", epochs=1, learning_rate=1e-2)
    compile_model(guesser, settings, steps, guessing_loss())
    return [float(guesser.train_on_batch(inputs, words)) for _ in range(steps)], inputs, words


def test_beside_rewriting_the_loss_is_the_sum_of_both() -> None:
    both = RewriterAndGuesser(tiny.model(dropout=0.0))
    both.compile(keras.optimizers.SGD(0.0), loss=CopyLoss())
    inputs = posed(seed=5)
    rewriting = CopyLoss()(inputs["turns"]["positions"], both.rewriter(inputs["turns"]))
    guessing = guessing_loss()(inputs["words"], both.guesser(inputs["hidden_words"]))
    found = float(both.train_on_batch(inputs, inputs["turns"]["positions"]))
    assert found == pytest.approx(float(rewriting) + float(guessing), rel=1e-4)


def test_both_are_learnt_by_heart_at_once() -> None:
    keras.utils.set_random_seed(7)
    both = RewriterAndGuesser(tiny.model(dropout=0.0, hidden_dim=32, num_encoder_layers=1, num_decoder_layers=1))
    settings = TrainingConfig(
        data=(DataShare(path="train"),), validation="validation", epochs=1, learning_rate=1e-2, warmup_steps=10
    )
    compile_model(both, settings, 150)
    inputs = posed(seed=5)
    losses = [float(both.train_on_batch(inputs, inputs["turns"]["positions"])) for _ in range(150)]
    assert losses[-1] < 0.3 < losses[0]
    rewrites = Rewriter(both.rewriter, tiny.features()).rewrite([example.conversation for example in tiny.EXAMPLES])
    assert [rewrite.text for rewrite in rewrites] == [example.reference for example in tiny.EXAMPLES]


def posed(seed: int) -> dict[str, Any]:
    batch, inputs, words = hidden(seed)
    return {"turns": {**batch, "positions": tiny.targets()}, "hidden_words": inputs, "words": words}


def test_the_same_random_numbers_pose_the_same_words_of_the_parts_that_stand_beside(tmp_path: Path) -> None:
    for part, examples in (("beside", tiny.EXAMPLES[:2]), ("validation", tiny.EXAMPLES)):
        encode_examples(tiny.features(), examples).save(tmp_path / f"{part}.npz")
    encode_examples(tiny.features(), tiny.EXAMPLES).save(tmp_path / "validation_untouched.npz")
    beside = (DataShare(path="beside"),)
    config = TrainingConfig(data=beside, beside=beside, validation="validation", epochs=1, batch_size=2)
    objective = OBJECTIVES["rewriting"](tiny.model(), config, tmp_path)
    assert isinstance(objective, RewritingBesideGuessing)
    batch = {**tiny.arrays(), "positions": tiny.targets()}
    once, again = (objective.pose(batch, np.random.default_rng(4))[0] for _ in range(2))
    assert once["turns"] is batch
    assert len(once["hidden_words"]["word_ids"]) == 2
    np.testing.assert_array_equal(once["words"], again["words"])
    np.testing.assert_array_equal(once["hidden_words"]["word_ids"], again["hidden_words"]["word_ids"])


def test_the_loss_counts_each_asked_word_once_and_padding_not_at_all(tmp_path: Path) -> None:
    encode_examples(tiny.features(), tiny.EXAMPLES).save(tmp_path / "validation.npz")
    settings = TrainingConfig(data=(DataShare(path="train"),), validation="validation", epochs=1)
    objective = MaskedWords(tiny.model(), settings, tmp_path)
    logits = np.log(np.array([[0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]], np.float32))
    words = np.array([1, 2, PAD, PAD])
    assert float(objective.loss(words, logits)) == pytest.approx(-(np.log(0.5) + np.log(0.3)) / 2, rel=1e-5)


def test_a_stage_of_masked_words_gives_a_model_that_the_next_stage_starts_from(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    tiny.VOCABULARY.save(prepared)
    tiny.FEATURES.save(prepared / "features.json")
    for part in ("train", "validation"):
        encode_examples(tiny.features(), tiny.EXAMPLES).save(prepared / f"{part}.npz")
    first = tiny.model()
    save_artefact(tmp_path / "first", first, tiny.FEATURES, tiny.VOCABULARY)
    config = TrainingConfig(
        objective="masked_words", data=(DataShare(path="train"),), validation="validation", epochs=2, batch_size=2
    )
    progress = train_stage(prepared, tmp_path / "run", config, SIZES, initial=tmp_path / "first")
    assert [set(row) & {"guessed", "exact_match"} for row in progress.history] == [{"guessed"}] * 2
    assert all(0 <= row["guessed"] <= 1 and row["loss"] > 0 for row in progress.history)
    best = load_model(tmp_path / "run" / "best")
    gates = [np.array(model.pointer.gate.kernel.value) for model in (first, best)]
    np.testing.assert_allclose(gates[1], gates[0], rtol=1e-3)
    embeddings = [np.array(model.word_embedding.embeddings.value) for model in (first, best)]
    assert not np.allclose(embeddings[1], embeddings[0], rtol=1e-3)
