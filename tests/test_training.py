import csv
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from rewriter import objectives, training
from rewriter.artefact import average_artefacts, file_fingerprint, load_model, save_artefact
from rewriter.config import DataShare, Recipe, TrainingConfig
from rewriter.growth import doubled_sizes
from rewriter.inference import Rewriter
from rewriter.model import RewriterModel
from rewriter.objectives import CopyLoss
from rewriter.preparation import encode_examples
from rewriter.training import (
    Progress,
    compile_model,
    load_checkpoint,
    save_checkpoint,
    train_recipe,
    train_stage,
)

LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
SIZES = tiny.model_config(dropout=0.1, **LAYERS).model_dump(exclude={"num_words", "num_characters"}, exclude_none=True)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("prepared")
    tiny.VOCABULARY.save(directory)
    tiny.FEATURES.save(directory / "features.json")
    (directory / "report.json").write_text("{}", encoding="utf-8")
    examples = encode_examples(tiny.features(), tiny.EXAMPLES)
    for name in ("train", "validation"):
        examples.save(directory / f"{name}.npz")
    # As where a reference is too long for an utterance.
    encode_examples(tiny.features(), tiny.EXAMPLES[:3]).save(directory / "validation_untouched.npz")
    return directory


@pytest.fixture
def eager() -> Iterator[None]:
    """A handful of steps takes less time than tracing one. Compiled training is what the overfitting test runs."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def _stage(**changes: Any) -> TrainingConfig:
    # Four examples in batches of two: two steps an epoch.
    settings: dict[str, Any] = {
        "data": (DataShare(path="train"),),
        "validation": "validation",
        "epochs": 2,
        "batch_size": 2,
        "learning_rate": 5e-3,
        "warmup_steps": 2,
        "checkpoint_every_steps": 1,
    }
    return TrainingConfig.model_validate(settings | changes)


def _script(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
    """Validation says these scores, one an epoch, without decoding anything."""
    each = iter([score for score in scores for _ in ("rewritten", "untouched")])
    monkeypatch.setattr(objectives, "validate", lambda decode, examples, most: next(each))


@pytest.mark.parametrize(("optimizer", "dropout"), [("adamw", 0.0), ("adamw", 0.1), ("muon", 0.1)])
def test_four_examples_are_learnt_by_heart_and_rewritten_exactly(optimizer: str, dropout: float) -> None:
    keras.utils.set_random_seed(7)
    model = RewriterModel(tiny.model_config(dropout=dropout, hidden_dim=32, **LAYERS), tiny.FEATURES)
    steps = 150
    compile_model(model, _stage(optimizer=optimizer, learning_rate=1e-2, warmup_steps=10), steps)
    batch = {**tiny.arrays(), "positions": tiny.targets()}
    losses = [float(model.train_on_batch(batch, batch["positions"])) for _ in range(steps)]
    assert losses[-1] < 0.1 < losses[0]
    rewrites = Rewriter(model, tiny.features()).rewrite([example.conversation for example in tiny.EXAMPLES])
    assert [rewrite.text for rewrite in rewrites] == [example.reference for example in tiny.EXAMPLES]
    assert all(rewrite.confidence > 0.8 for rewrite in rewrites)


class _KilledError(Exception):
    pass


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("killed_at", [2, 3], ids=lambda step: f"step {step}")
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: TrainingConfig,
    straight: dict[str, np.ndarray],
    killed_at: int,
) -> None:
    """Two steps an epoch: killed before the validation of the first and within the second."""
    save = save_checkpoint

    def save_and_die(path: Path, model: RewriterModel, progress: Progress) -> None:
        save(path, model, progress)
        if 2 * progress.epoch + progress.step == killed_at:
            raise _KilledError

    with monkeypatch.context() as patch:
        _script(patch, [0.5, 0.6])
        patch.setattr(training, "save_checkpoint", save_and_die)
        with pytest.raises(_KilledError):
            train_stage(prepared, tmp_path, stage, SIZES)
    _script(monkeypatch, [0.5, 0.6] if killed_at == 2 else [0.6])
    progress = train_stage(prepared, tmp_path, stage, SIZES)
    assert progress.epoch == 2 and len(progress.history) == 2
    found = _arrays(tmp_path)
    assert found.keys() == straight.keys()
    for name, array in straight.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture(scope="module", params=[(), (DataShare(path="train"),)], ids=["", "beside guessing"])
def stage(request: pytest.FixtureRequest) -> TrainingConfig:
    return _stage(beside=request.param)


@pytest.fixture(scope="module")
def straight(prepared: Path, tmp_path_factory: pytest.TempPathFactory, stage: TrainingConfig) -> dict[str, np.ndarray]:
    """Weights, random states and optimizer after a run that nobody killed."""
    output = tmp_path_factory.mktemp("straight")
    tf.config.run_functions_eagerly(True)
    with pytest.MonkeyPatch.context() as patch:
        _script(patch, [0.5, 0.6])
        progress = train_stage(prepared, output, stage, SIZES)
    tf.config.run_functions_eagerly(False)
    assert progress.epoch == 2
    return _arrays(output)


def _arrays(output: Path) -> dict[str, np.ndarray]:
    with np.load(output / "checkpoint.npz") as stored:
        return {name: stored[name] for name in stored.files if name != "progress"}


@pytest.mark.usefixtures("eager")
def test_training_stops_when_validation_no_longer_improves(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(monkeypatch, [0.2, 0.5, 0.5, 0.4])
    kept: list[np.ndarray] = []

    def save_and_keep(path: Path, model: RewriterModel, progress: Progress) -> None:
        save_checkpoint(path, model, progress)
        if progress.step == 0:  # the end of an epoch
            kept.append(np.array(model.pointer.gate.kernel.value))

    monkeypatch.setattr(training, "save_checkpoint", save_and_keep)
    config = _stage(epochs=9, patience=2, batch_size=4)
    progress = train_stage(prepared, tmp_path, config, SIZES)
    assert progress.epoch == 4 == len(kept)
    best = np.array(load_model(tmp_path / "best").pointer.gate.kernel.value)
    np.testing.assert_array_equal(best, kept[1].astype(np.float16))
    assert not np.array_equal(best, kept[3].astype(np.float16))
    # A finished run is not begun again.
    assert train_stage(prepared, tmp_path, config, SIZES).epoch == 4

    with (tmp_path / "history.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3", "4"]
    assert [float(row["untouched"]) for row in rows] == [0.2, 0.5, 0.5, 0.4]
    assert all(float(row["loss"]) > 0 and float(row["target_tokens_per_second"]) > 0 for row in rows)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    events = [
        event
        for path in sorted((tmp_path / "tensorboard").iterdir())
        for event in tf.compat.v1.train.summary_iterator(str(path))
    ]
    curve = {e.step: float(tf.make_ndarray(v.tensor)) for e in events for v in e.summary.value if v.tag == "untouched"}
    assert curve == pytest.approx({1: 0.2, 2: 0.5, 3: 0.5, 4: 0.4})


@pytest.mark.usefixtures("eager")
def test_a_loss_that_is_no_number_stops_training_at_once(prepared: Path, tmp_path: Path) -> None:
    broken = tiny.model(**LAYERS)
    broken.pointer.norm.beta.assign(np.full(16, np.nan, np.float32))
    save_artefact(tmp_path / "broken", broken, tiny.FEATURES, tiny.VOCABULARY)
    with pytest.raises(FloatingPointError, match="expected a finite loss, found nan in epoch 1, step 0"):
        train_stage(prepared, tmp_path / "run", _stage(), SIZES, initial=tmp_path / "broken")


@pytest.mark.usefixtures("eager")
def test_each_stage_of_a_recipe_begins_with_the_best_of_the_one_before(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A step of this size changes nothing that half precision can hold.
    still = {"epochs": 1, "learning_rate": 1e-12, "final_learning_rate": 1e-12, "weight_decay": 0.0}
    _script(monkeypatch, [0.5, 0.5])
    recipe = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage(epochs=1), "second": _stage(**still)}})
    best = train_recipe(prepared, tmp_path, recipe)
    assert best == tmp_path / "second" / "best"
    first, second = (load_model(tmp_path / stage / "best") for stage in recipe.stages)
    for before, after in zip(first.trainable_variables, second.trainable_variables, strict=True):
        np.testing.assert_allclose(np.array(after.value), np.array(before.value), rtol=1e-3, atol=1e-6)


def _origin(prepared: Path, directory: Path, **changes: Any) -> tuple[Path, Path]:
    """A model, and what was prepared for it."""
    model = tiny.model(seed=3, dropout=0.1, **(LAYERS | changes))
    save_artefact(directory / "origin", model, tiny.FEATURES, tiny.VOCABULARY)
    shutil.copytree(prepared, directory / "prepared")
    weights = file_fingerprint(directory / "origin" / "weights.npz")
    (directory / "prepared" / "report.json").write_text(json.dumps({"for_model": weights}), encoding="utf-8")
    return directory / "origin", directory / "prepared"


@pytest.mark.usefixtures("eager")
def test_a_recipe_may_have_a_model_of_twice_the_units_of_the_one_it_begins_with(prepared: Path, tmp_path: Path) -> None:
    origin, data = _origin(prepared, tmp_path)
    sizes = doubled_sizes(load_model(origin).config).model_dump(include=SIZES.keys() | {"embedding_dim"})
    recipe = Recipe.model_validate({"model": sizes, "stages": {"first": _stage(epochs=1)}})
    best = train_recipe(data, tmp_path / "run", recipe, origin)
    assert load_model(best).config.hidden_dim == 2 * load_model(origin).config.hidden_dim


@pytest.mark.usefixtures("eager")
def test_the_first_stage_begins_with_a_model_if_there_is_one_and_may_have_several_runs(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = {"epochs": 1, "learning_rate": 1e-12, "final_learning_rate": 1e-12, "weight_decay": 0.0}
    _script(monkeypatch, [0.5, 0.5, 0.5])
    recipe = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage(runs=2, **still)}})
    origin, data = _origin(prepared, tmp_path)
    best = train_recipe(data, tmp_path / "run", recipe, origin)
    for before, after in zip(load_model(origin).trainable_variables, load_model(best).trainable_variables, strict=True):
        np.testing.assert_allclose(np.array(after.value), np.array(before.value), rtol=1e-3, atol=1e-6)


def test_a_model_to_begin_with_knows_the_first_words_of_those_that_were_prepared(
    prepared: Path, tmp_path: Path
) -> None:
    origin, data = _origin(prepared, tmp_path)
    words = data / "words.txt"
    *known, last, before = words.read_text(encoding="utf-8").split()
    words.write_text("\n".join([*known, before, last]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="prepared: expected a vocabulary that begins with that of .*origin, found"):
        train_stage(data, tmp_path / "out", _stage(), SIZES, origin)


def test_a_run_that_was_begun_before_there_was_a_setting_goes_on(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train_stage", lambda *given, **named: None)
    recipe = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage()}})
    train_recipe(prepared, tmp_path / "run", recipe)
    note = tmp_path / "run" / "recipe.json"
    noted = json.loads(note.read_text(encoding="utf-8"))
    del noted["stages"]["first"]["falling_share"]
    note.write_text(json.dumps(noted), encoding="utf-8")
    train_recipe(prepared, tmp_path / "run", recipe)
    assert "falling_share" in note.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_decoder_layers": 2}, "origin: expected the model of the recipe, .*found .*num_decoder_layers=2"),
        ({"num_heads": 4}, "origin: expected the model of the recipe, .*found .*num_heads=4"),
        ({"edits": True}, "origin: expected the model of the recipe, .*found .*edits=True"),
        ({"num_encoder_layers": 2}, "origin: expected 1 encoder layers or fewer, found 2"),
    ],
    ids=["decoder", "heads", "edits", "deeper"],
)
def test_a_model_to_begin_with_is_the_recipes(
    prepared: Path, tmp_path: Path, sizes: dict[str, Any], message: str
) -> None:
    origin, data = _origin(prepared, tmp_path, **sizes)
    recipe = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage()}})
    with pytest.raises(ValueError, match=message):
        train_recipe(data, tmp_path / "run", recipe, origin)
    assert not (tmp_path / "run").exists()


def test_a_model_to_begin_with_is_the_one_that_was_prepared_for_and_stays_the_same(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train_stage", lambda *given, **named: None)
    recipe = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage()}})
    origin, data = _origin(prepared, tmp_path)
    with pytest.raises(ValueError, match=r"expected what was prepared for the model .*origin .*prepared for none"):
        train_recipe(prepared, tmp_path / "run", recipe, origin)
    (tmp_path / "other").mkdir()
    other, _ = _origin(prepared, tmp_path / "other")
    _move_a_weight(other)
    with pytest.raises(ValueError, match=r"expected what was prepared for the model .*origin .*prepared for another"):
        train_recipe(data, tmp_path / "run", recipe, other)
    with pytest.raises(ValueError, match=r"expected a model to begin with .*, found none"):
        train_recipe(data, tmp_path / "run", recipe, data)
    assert not (tmp_path / "run").exists()
    for _ in range(2):
        train_recipe(data, tmp_path / "run", recipe, origin)
    with pytest.raises(ValueError, match=r"initial\.json: expected .*, weights\.npz '[0-9a-f]+', found None"):
        train_recipe(data, tmp_path / "run", recipe)


def test_a_run_from_before_there_was_a_note_of_its_model_was_begun_with_none(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train_stage", lambda *given, **named: None)
    recipe = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage()}})
    origin, data = _origin(prepared, tmp_path)
    train_recipe(data, tmp_path / "run", recipe)
    (tmp_path / "run" / "initial.json").unlink()
    with pytest.raises(ValueError, match=r"initial\.json: expected .*, weights\.npz None, found '[0-9a-f]+'"):
        train_recipe(data, tmp_path / "run", recipe, origin)
    train_recipe(data, tmp_path / "run", recipe)


def _move_a_weight(folder: Path) -> None:
    with np.load(folder / "weights.npz") as stored:
        weights = dict(stored)
    first = next(iter(weights))
    np.savez(folder / "weights.npz", allow_pickle=False, **{**weights, first: weights[first] + 1})


@pytest.mark.usefixtures("eager")
def test_a_stage_has_its_own_dropout_and_the_next_one_the_models(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(monkeypatch, [0.5, 0.5])
    stages = {"first": _stage(epochs=1, dropout=0.0), "second": _stage(epochs=1)}
    train_recipe(prepared, tmp_path, Recipe.model_validate({"model": {**SIZES, "dropout": 0.2}, "stages": stages}))
    models = [load_model(tmp_path / stage / "best") for stage in stages]
    assert [(model.config.dropout, model.dropout.rate) for model in models] == [(0.0, 0.0), (0.2, 0.2)]


def test_the_best_of_several_runs_is_the_mean_of_their_best(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _script(monkeypatch, [0.5, 0.6, 0.5, 0.75])
    stages = {"first": _stage(epochs=1), "second": _stage(epochs=1, runs=2, seed=7)}
    recipe = Recipe.model_validate({"model": SIZES, "stages": stages})
    with caplog.at_level(logging.INFO, logger="rewriter.training"):
        best = train_recipe(prepared, tmp_path, recipe)
    assert caplog.messages[-1] == "mean of the runs: exact_match=0.75 untouched=0.75"
    folders = [tmp_path / "second" / folder / "best" for folder in ("seed_7", "seed_8")]
    one, other, mean = (load_model(folder).trainable_variables for folder in (*folders, best))
    assert not np.allclose(np.array(one[0].value), np.array(other[0].value))
    for weight, *each in zip(mean, one, other, strict=True):
        expected = np.mean([np.array(every.value) for every in each], axis=0)
        np.testing.assert_allclose(np.array(weight.value), expected, rtol=2e-3, atol=1e-5)


@pytest.mark.usefixtures("eager")
def test_killed_in_the_second_of_two_runs_the_first_is_left_as_it_is(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = {"first": _stage(epochs=1), "second": _stage(epochs=1, runs=2, seed=7)}
    recipe = Recipe.model_validate({"model": SIZES, "stages": stages})
    save = save_checkpoint

    def save_and_die(path: Path, model: RewriterModel, progress: Progress) -> None:
        save(path, model, progress)
        if path.parent.name == "seed_8":
            raise _KilledError

    with monkeypatch.context() as patch:
        _script(patch, [0.5, 0.5])
        patch.setattr(training, "save_checkpoint", save_and_die)
        with pytest.raises(_KilledError):
            train_recipe(prepared, tmp_path / "killed", recipe)
    first_run = (tmp_path / "killed" / "second" / "seed_7" / "checkpoint.npz").stat().st_mtime_ns
    _script(monkeypatch, [0.5, 0.5])
    best = train_recipe(prepared, tmp_path / "killed", recipe)
    assert (tmp_path / "killed" / "second" / "seed_7" / "checkpoint.npz").stat().st_mtime_ns == first_run
    _script(monkeypatch, [0.5, 0.5, 0.5, 0.5])
    straight = train_recipe(prepared, tmp_path / "straight", recipe)
    for found, expected in zip(
        load_model(best).trainable_variables, load_model(straight).trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(np.array(found.value), np.array(expected.value), err_msg=found.path)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({"first": _stage(runs=2)}, "expected one run of the first stage, first, or weights .*--begin-with.*, found 2"),
        (
            {"first": _stage(), "second": _stage(data=(DataShare(path="elsewhere"),))},
            "elsewhere.npz for the stage second",
        ),
        ({"first": _stage(validation="train")}, "expected train_untouched.npz for the stage first, found none"),
    ],
    ids=["runs", "data", "validation"],
)
def test_what_a_later_stage_lacks_is_said_before_the_first(
    prepared: Path, tmp_path: Path, stages: dict[str, TrainingConfig], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train_recipe(prepared, tmp_path, Recipe.model_validate({"model": SIZES, "stages": stages}))


def test_models_of_other_sizes_have_no_mean(tmp_path: Path) -> None:
    for name, layers in (("one", 1), ("two", 2)):
        model = tiny.model(num_encoder_layers=layers, num_decoder_layers=1)
        save_artefact(tmp_path / name, model, tiny.FEATURES, tiny.VOCABULARY)
    with pytest.raises(ValueError, match="two: expected a model configured as in .*one, found another"):
        average_artefacts([tmp_path / "one", tmp_path / "two"], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_run_is_not_gone_on_with_by_another_recipe_or_after_preparing_anew(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Path] = []
    monkeypatch.setattr(training, "train_stage", lambda prepared, output, *rest, **more: begun.append(output))
    data, output = tmp_path / "prepared", tmp_path / "run"
    shutil.copytree(prepared, data)
    recipe = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage()}})
    other = recipe.model_copy(update={"stages": {"first": _stage(epochs=3)}})
    for _ in range(2):
        train_recipe(data, output, recipe)
    with pytest.raises(ValueError, match=r"recipe\.json: expected .*, stages\.first\.epochs 2, found 3"):
        train_recipe(data, output, other)
    two = Recipe.model_validate({"model": SIZES, "stages": {"first": _stage(), "second": _stage()}})
    train_recipe(data, tmp_path / "two", two)
    turned = two.model_copy(update={"stages": dict(reversed(two.stages.items()))})
    with pytest.raises(ValueError, match=r"recipe\.json: expected .*, order of stages \['first', 'second'\], found"):
        train_recipe(data, tmp_path / "two", turned)
    with (data / "words.txt").open("a", encoding="utf-8") as words:
        words.write("新词\n")
    with pytest.raises(ValueError, match=r"prepared\.json: expected .*, words\.txt '[0-9a-f]+', found '[0-9a-f]+'"):
        train_recipe(data, output, recipe)
    assert begun == [output / "first"] * 2 + [tmp_path / "two" / "first", tmp_path / "two" / "second"]


@pytest.mark.parametrize("changes", [{"num_encoder_layers": 2}, {"intermediate_dim": 20}, {"num_words": 77}], ids=str)
def test_a_checkpoint_of_another_model_is_refused_by_name_and_changes_nothing(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    def compiled(**sizes: int) -> RewriterModel:
        model = tiny.model(**(LAYERS | sizes))
        compile_model(model, _stage(), 10)
        return model

    path = tmp_path / "checkpoint.npz"
    save_checkpoint(path, compiled(), Progress(epoch=3))
    other = compiled(**changes)
    before = [np.array(variable.value) for variable in other.variables]
    with pytest.raises(ValueError, match=r"checkpoint\.npz: expected .*, found "):
        load_checkpoint(path, other)
    for variable, value in zip(other.variables, before, strict=True):
        np.testing.assert_array_equal(np.array(variable.value), value)
    assert load_checkpoint(path, compiled()) == Progress(epoch=3)


# One sentence, two steps, three source positions; the second step is padding in the first case.
LOG_PROBS = np.log(np.array([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]], np.float32))


def test_the_loss_is_the_mean_over_target_tokens() -> None:
    assert float(CopyLoss()(np.array([[1, -1]]), LOG_PROBS)) == pytest.approx(-np.log(0.25))
    assert float(CopyLoss()(np.array([[1, 2]]), LOG_PROBS)) == pytest.approx(-(np.log(0.25) + np.log(0.8)) / 2)
    assert float(CopyLoss()(np.array([[-1, -1]]), LOG_PROBS)) == 0.0


def test_a_rewrite_counts_as_right_if_its_words_are() -> None:
    """Copied from another place is as good; a word less, a word more and another word are not."""
    examples = encode_examples(tiny.features(), tiny.EXAMPLES)
    targets = tiny.targets()
    source = tiny.sources()[1]
    places = [i for i, surface in enumerate(source.surfaces) if surface == "冷"]
    assert len(places) == 2 and places[1] != places[0]

    def decoded(change: Any) -> float:
        rows = dict(enumerate([[int(p) for p in t if p >= 0][:-1] for t in targets]))
        change(rows)
        order = sorted(rows, key=lambda index: int(examples.source_lengths[index]))
        found = np.full((4, 8), -1, np.int32)
        for row, index in enumerate(order):
            found[row, : len(rows[index])] = rows[index]
        return objectives.validate(lambda batch: {"positions": found}, examples, most=1000)

    def elsewhere(rows: dict[int, list[int]]) -> None:
        used = next(p for p in rows[1] if p in places)
        rows[1][rows[1].index(used)] = next(p for p in places if p != used)

    assert decoded(lambda rows: None) == 1.0
    assert decoded(elsewhere) == 1.0
    assert decoded(lambda rows: rows[0].pop()) == 0.75
    assert decoded(lambda rows: rows[2].append(3)) == 0.75
    assert decoded(lambda rows: rows[3].__setitem__(0, 3)) == 0.75


def test_all_examples_are_validated_also_where_they_are_more_than_a_batch() -> None:
    examples = encode_examples(tiny.features(), tiny.EXAMPLES * 40)
    asked: list[int] = []

    def decode(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        asked.append(len(batch["word_ids"]))
        return {"positions": np.full((asked[-1], 1), -1)}

    assert objectives.validate(decode, examples, most=1000) == 0
    assert sum(asked) == len(examples) and len(asked) > 1
    asked.clear()
    objectives.validate(decode, examples, most=70)
    assert sum(asked) == 70


def test_the_learning_rate_rises_then_falls() -> None:
    model = tiny.model()
    compile_model(model, _stage(learning_rate=1e-2, final_learning_rate=1e-4, warmup_steps=10), 100)
    rates = [float(model.optimizer._learning_rate(step)) for step in (0, 5, 10, 55, 100)]
    assert rates[0] == 0.0
    np.testing.assert_allclose(rates[1:3], [5e-3, 1e-2], rtol=1e-4)
    assert rates[2] > rates[3] > rates[4]
    assert rates[4] == pytest.approx(1e-4, rel=1e-3)


def test_the_learning_rate_can_stay_until_it_falls_in_the_end() -> None:
    model = tiny.model()
    stage = _stage(learning_rate=1e-2, final_learning_rate=1e-4, warmup_steps=10, falling_share=0.2)
    compile_model(model, stage, 110)
    rates = [float(model.optimizer._learning_rate(step)) for step in (5, 10, 60, 90, 100, 110, 200)]
    np.testing.assert_allclose(rates, [5e-3, 1e-2, 1e-2, 1e-2, 5.05e-3, 1e-4, 1e-4], rtol=1e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_neither_biases_nor_norms_nor_embeddings_decay(optimizer: str) -> None:
    model = tiny.model(edits=True, relations=True)
    compile_model(model, _stage(optimizer=optimizer, learning_rate=1.0, weight_decay=0.5, warmup_steps=1), 10)
    model.optimizer.build(model.trainable_variables)
    decaying = {w.path.rsplit("/", 1)[1] for w in model.trainable_variables if model.optimizer._use_weight_decay(w)}
    assert decaying == {"kernel"}


def test_muon_takes_orthogonal_steps_for_the_matrices_of_the_layers_alone() -> None:
    model = tiny.model(edits=True, relations=True)
    compile_model(model, _stage(optimizer="muon"), 10)
    model.optimizer.build(model.trainable_variables)
    orthogonal = {
        w.path.partition("/")[2] for w in model.trainable_variables if not model.optimizer._should_use_adamw(w)
    }
    assert "encoder_0/attention/query/kernel" in orthogonal and "pointer/history_key/kernel" in orthogonal
    assert all(path.endswith("/kernel") for path in orthogonal)
    narrow = {w.path.partition("/")[2] for w in model.trainable_variables if min(w.shape) < 4}
    assert not orthogonal & narrow
