"""Configuration is checked where it is born."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rewriter.config import Calibration, DataShare, FeaturesConfig, ModelConfig, Recipe, TrainingConfig
from rewriter.tokenizer import Granularity


def locations(error: ValidationError) -> list[tuple[int | str, ...]]:
    return [detail["loc"] for detail in error.errors()]


@pytest.mark.parametrize("name", ["features.json", "features.toml"])
def test_every_unknown_key_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(
        '{"maximum": 3, "granularty": "word"}' if path.suffix == ".json" else 'maximum = 3\ngranularty = "word"'
    )
    with pytest.raises(ValidationError) as refused:
        FeaturesConfig.load(path)
    assert sorted(locations(refused.value)) == [("granularty",), ("maximum",)]
    assert "maximum" in str(refused.value)
    assert "granularty" in str(refused.value)


def test_an_unknown_key_in_a_stage_is_named_with_its_stage(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[stages.first]\ndata = [{ path = "train", part = 1 }]\nvalidation = "v"\nepochs = 1\nbatchsize = 2\n'
    )
    with pytest.raises(ValidationError) as refused:
        Recipe.load(path)
    assert sorted(locations(refused.value), key=len) == [
        ("stages", "first", "batchsize"),
        ("stages", "first", "data", 0, "part"),
    ]


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"granularity": "character", "function_words": ["的"], "max_history_turns": 2}')
    (tmp_path / "a.toml").write_text(
        'granularity = "character"\nfunction_words = ["的"]\nmax_history_turns = 2\n', encoding="utf-8"
    )
    expected = FeaturesConfig(granularity=Granularity.CHARACTER, function_words=("的",), max_history_turns=2)
    assert FeaturesConfig.load(tmp_path / "a.json") == FeaturesConfig.load(tmp_path / "a.toml") == expected


CONFIGS = [
    FeaturesConfig(),
    FeaturesConfig(granularity=Granularity.CHARACTER, function_words=(), max_source_tokens=64),
    FeaturesConfig(granularity=Granularity.DICTIONARY, calibration=Calibration(slope=0.5, min_confidence=0.25)),
    ModelConfig(num_words=100, num_characters=50, dropout=0.0, copy_state=False, edits=True),
    TrainingConfig(data=(DataShare(path="train", share=0.5),), validation="validation", epochs=2),
    Recipe(model={"hidden_dim": 32}, stages={}),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_what_is_saved_is_loaded(tmp_path: Path, config: Any) -> None:
    config.save(tmp_path / "config.json")
    assert type(config).load(tmp_path / "config.json") == config


def test_a_saved_configuration_is_readable(tmp_path: Path) -> None:
    FeaturesConfig(function_words=("的",)).save(tmp_path / "features.json")
    assert '"的"' in (tmp_path / "features.json").read_text(encoding="utf-8")


PREPARED = {
    *("train", "train_untouched", "train_topic_changes", "train_variants", "train_swapped", "train_lengthened"),
    *("extra", "extra_untouched", "extra_swapped", *(f"extra_{number}" for number in range(1, 8))),
    *("excerpts", "incomplete", "validation", "validation_untouched"),
}


@pytest.mark.parametrize(
    ("name", "layers", "stages"),
    [("zh", 6, ["words", "phrases", "four_layers", "rewriting"]), ("further", 8, ["rewriting"])],
)
def test_the_recipes_of_the_shipped_model_read_what_is_prepared(name: str, layers: int, stages: list[str]) -> None:
    with as_file(files("rewriter") / "recipes" / f"{name}.toml") as path:
        recipe = Recipe.load(path)
    with as_file(files("rewriter") / "pretrained" / "zh" / "config.json") as path:
        shipped = ModelConfig.load(path)
    sizes = {"num_words": shipped.num_words, "num_characters": shipped.num_characters}
    made = ModelConfig.model_validate({**sizes, **recipe.model})
    assert made.num_encoder_layers == layers <= shipped.num_encoder_layers
    # How much is dropped in training is nothing of the trained model's; the second recipe deepens the first one's.
    of_training = {"dropout": shipped.dropout, "num_encoder_layers": shipped.num_encoder_layers}
    assert made.model_copy(update=of_training) == shipped
    assert list(recipe.stages) == stages
    for stage in recipe.stages.values():
        assert PREPARED.issuperset(stage.parts)
        assert stage.final_learning_rate < stage.learning_rate


def test_the_recipe_for_conversations_alone_reads_nothing_that_is_made_of_annotated_ones() -> None:
    with as_file(files("rewriter") / "recipes" / "unannotated.toml") as path:
        recipe = Recipe.load(path)
    read = {part for stage in recipe.stages.values() for part in stage.parts}
    assert read == {"excerpts", "incomplete", "validation", "validation_untouched"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"checkpoint_every_steps": 0}, "checkpoint_every_steps"),
        ({"objective": "masked_words", "runs": 2}, "expected one run of masked_words, found 2"),
        ({"epochs": 4, "falling_share": 0.5}, "expected patience for all 4 epochs .*, found 3"),
    ],
    ids=str,
)
def test_a_stage_that_cannot_run_is_refused(changes: dict[str, Any], message: str) -> None:
    stage = {"data": [{"path": "train"}], "validation": "validation", "epochs": 1}
    with pytest.raises(ValueError, match=message):
        TrainingConfig.model_validate(stage | changes)


def test_heads_share_the_units_evenly() -> None:
    with pytest.raises(ValueError, match="expected hidden_dim to be a multiple of num_heads, found 30, 4"):
        ModelConfig(num_words=10, num_characters=10, hidden_dim=30, num_heads=4)


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (FeaturesConfig, {"max_history_turns": -1}),
        (FeaturesConfig, {"max_utterance_tokens": 0}),
        (FeaturesConfig, {"characters_per_token": 0}),
        (FeaturesConfig, {"max_source_tokens": 7}),
        (FeaturesConfig, {"granularity": "byte"}),
        (Calibration, {"min_confidence": -0.1}),
        (Calibration, {"min_confidence": 1.1}),
        (ModelConfig, {"num_words": 5, "num_characters": 2, "dropout": 1.0}),
        (DataShare, {"path": "train", "share": 0}),
        (TrainingConfig, {"data": [], "validation": "v", "epochs": 0}),
        (TrainingConfig, {"data": [], "validation": "v", "epochs": 1, "precision": "float64"}),
    ],
)
def test_values_out_of_range_are_refused_by_name(config: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        config.model_validate(values)
    assert locations(refused.value) == [(list(values)[-1],)]


@pytest.mark.parametrize("word", ["", " ", "OK", "ＯＫ", "of the", "的\u200b"])
def test_a_function_word_that_no_token_can_equal_is_refused(word: str) -> None:
    with pytest.raises(ValidationError, match="expected words in lower case without white space"):
        FeaturesConfig(function_words=("的", word))


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        FeaturesConfig().max_history_turns = 3  # type: ignore[misc]


def test_the_bank_has_a_turn_id_beyond_the_oldest_turn() -> None:
    assert FeaturesConfig(max_history_turns=0).max_turn_id == 2
    assert FeaturesConfig(max_history_turns=10).max_turn_id == 12
