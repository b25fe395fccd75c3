from collections import Counter
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tiny

from rewriter.artefact import begin_with, load_model, save_artefact
from rewriter.config import Recipe, TrainingConfig
from rewriter.features import Features, collate
from rewriter.growth import deepened, doubled, doubled_sizes
from rewriter.model import RewriterModel
from rewriter.objectives import CopyLoss
from rewriter.vocabulary import Vocabulary


def _log_probs(model: RewriterModel) -> np.ndarray:
    return np.array(model({**tiny.arrays(), "positions": tiny.targets()}))


@pytest.fixture
def shallow(tmp_path: Path) -> Path:
    model = tiny.model(num_encoder_layers=2, relations=True)
    for layer in model.encoder:  # as after training, where biases are not zero
        for weight in layer.trainable_variables:
            weight.assign(np.random.default_rng(1).normal(0.0, 0.3, weight.shape))
    save_artefact(tmp_path / "shallow", model, tiny.FEATURES, tiny.VOCABULARY)
    return tmp_path / "shallow"


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_a_deepened_model_is_the_same_function(shallow: Path, layers: int) -> None:
    model = tiny.model(num_encoder_layers=layers, relations=True)
    before = _log_probs(model)
    begin_with(shallow, model)
    expected = _log_probs(load_model(shallow))
    assert not np.allclose(before, expected, atol=1e-2)
    np.testing.assert_allclose(_log_probs(model), expected, atol=1e-5)


def test_a_further_layer_is_a_copy_that_says_nothing_yet(shallow: Path) -> None:
    model = tiny.model(num_encoder_layers=4, relations=True)
    begin_with(shallow, model)
    second, fourth = model.encoder[1], model.encoder[3]
    np.testing.assert_array_equal(fourth.attention.query.kernel, second.attention.query.kernel)
    np.testing.assert_array_equal(fourth.feed_forward.expand.kernel, second.feed_forward.expand.kernel)
    np.testing.assert_array_equal(fourth.feed_forward_norm.gamma, second.feed_forward_norm.gamma)
    for output in (fourth.attention.output_projection, fourth.feed_forward.contract):
        assert not np.any(output.kernel) and not np.any(output.bias)


@pytest.mark.parametrize("parts", [{}, {"edits": True, "relations": True}, {"embedding_dim": 8}], ids=str)
def test_a_doubled_model_is_the_same_function(tmp_path: Path, parts: dict[str, Any]) -> None:
    model = tiny.model(num_encoder_layers=2, **parts)
    save_artefact(tmp_path / "narrow", model, tiny.FEATURES, tiny.VOCABULARY)
    wide = RewriterModel(doubled_sizes(model.config), tiny.FEATURES)
    begin_with(tmp_path / "narrow", wide)
    assert wide.count_params() > 1.5 * model.count_params()
    np.testing.assert_allclose(_log_probs(wide), _log_probs(load_model(tmp_path / "narrow")), atol=1e-4)


def test_a_doubled_model_can_be_deeper_too(shallow: Path) -> None:
    sizes = doubled_sizes(load_model(shallow).config).model_copy(update={"num_encoder_layers": 4})
    model = RewriterModel(sizes, tiny.FEATURES)
    begin_with(shallow, model)
    np.testing.assert_allclose(_log_probs(model), _log_probs(load_model(shallow)), atol=1e-4)


def test_the_two_that_were_one_unit_learn_to_differ(shallow: Path) -> None:
    model = RewriterModel(doubled_sizes(load_model(shallow).config), tiny.FEATURES)
    begin_with(shallow, model)
    query = model.encoder[0].attention.query

    def twins_differ() -> bool:
        return not np.allclose(*np.split(query(np.tile(np.eye(16), 2)).numpy(), 2, axis=1), atol=1e-4)

    assert not twins_differ()
    model.compile(keras.optimizers.SGD(1.0), loss=CopyLoss())
    model.train_on_batch({**tiny.arrays(), "positions": tiny.targets()}, tiny.targets())
    assert twins_differ()


def test_only_the_model_of_the_paper_is_doubled() -> None:
    with pytest.raises(ValueError, match="expected the weights of a T-Ptr-lambda Transformer to double, found others"):
        doubled({"encoder_0/attention/query/kernel": np.ones((2, 2)), "pointer/query/kernel": np.ones((2, 2))})


def test_encoders_do_not_shrink(shallow: Path) -> None:
    with pytest.raises(ValueError, match="expected 1 encoder layers or fewer to begin with, found 2"):
        begin_with(shallow, tiny.model(num_encoder_layers=1, relations=True))


def test_only_transformers_are_deepened() -> None:
    with pytest.raises(ValueError, match="expected the layers of a Transformer to deepen, found others"):
        deepened({"encoder_0/forwards/kernel": np.ones((2, 2))}, 2)


def test_a_model_of_other_sizes_is_named(shallow: Path) -> None:
    with pytest.raises(ValueError, match=r"expected word_embedding/embeddings of shape \(\d+, 32\), found \(\d+, 16\)"):
        begin_with(shallow, tiny.model(num_encoder_layers=2, relations=True, hidden_dim=32))


@pytest.fixture
def more_words() -> Vocabulary:
    """With words and characters of the examples, 梅西, 球 and 红楼梦 among them, that are on no list of ``tiny``."""
    unknown = Counter({"梅西": 3, "红楼梦": 2, "球": 1, "他看": 1, "踢球": 9, "…": 9})
    return tiny.VOCABULARY.extended(unknown, max_words=len(tiny.VOCABULARY.words) + 3)


def _arrays(features: Features) -> dict[str, np.ndarray]:
    sources = [features.encode(example.conversation) for example in tiny.EXAMPLES]
    return {**collate(sources), "positions": tiny.targets()}


def test_a_model_with_more_words_is_the_same_function_until_it_learns_them(
    shallow: Path, more_words: Vocabulary
) -> None:
    sizes = {"num_words": len(more_words.words), "num_characters": len(more_words.characters)}
    model = tiny.model(num_encoder_layers=3, relations=True, **sizes)
    begin_with(shallow, model)
    arrays = _arrays(Features(tiny.FEATURES, more_words))
    assert np.any(arrays["word_ids"] != tiny.arrays()["word_ids"])
    found = np.array(model(arrays))
    np.testing.assert_allclose(found, _log_probs(load_model(shallow)), atol=1e-5)
    table = np.array(model.word_embedding.embeddings)
    table[more_words.word_id("梅西")] += np.linspace(-1.0, 1.0, table.shape[1])
    model.word_embedding.embeddings.assign(table)
    assert not np.allclose(np.array(model(arrays)), found, atol=1e-2)


def test_words_are_not_forgotten(shallow: Path) -> None:
    with pytest.raises(ValueError, match="expected word_embedding/embeddings of shape"):
        begin_with(shallow, tiny.model(num_encoder_layers=2, relations=True, num_words=7))


def _recipe(*layers: int | None, architecture: str = "transformer") -> Recipe:
    stage = TrainingConfig.model_validate({"data": [{"path": "train"}], "validation": "validation", "epochs": 1})
    stages = {f"s{i}": stage.model_copy(update={"encoder_layers": each}) for i, each in enumerate(layers)}
    return Recipe(model={"num_encoder_layers": 4, "architecture": architecture}, stages=stages)


def test_the_stages_of_a_recipe_may_grow() -> None:
    assert [stage.encoder_layers for stage in _recipe(1, 2, 2, None).stages.values()] == [1, 2, 2, None]


@pytest.mark.parametrize(
    ("layers", "message"),
    [((2, 1), "expected 2 to 4 encoder layers in the stage s1, found 1"), ((5,), "0 to 4 .* s0, found 5")],
)
def test_the_stages_of_a_recipe_do_not_shrink_or_outgrow_the_model(layers: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _recipe(*layers)


def test_the_layers_of_an_lstm_do_not_grow() -> None:
    _recipe(4, None, architecture="lstm")
    with pytest.raises(ValueError, match="expected 2 LSTM layers in the stage s1, as before, found 4"):
        _recipe(2, None, architecture="lstm")
