"""What a training run was begun with: its folder is gone on with by the same recipe, data and model, or not at all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewriter.artefact import MODEL_FILE, WEIGHTS_FILE, file_fingerprint
from rewriter.config import ModelConfig, Recipe
from rewriter.dataset import FOR_MODEL, REPORT_FILE
from rewriter.growth import doubled_sizes

RECIPE_FILE = "recipe.json"
PREPARED_FILE = "prepared.json"
INITIAL_FILE = "initial.json"
_FINGERPRINTED = ("words.txt", "characters.txt", "features.json", REPORT_FILE)


def begin(prepared: Path, output: Path, recipe: Recipe, initial: Path | None = None) -> None:
    """Notes in ``output`` what a run is begun with; raises ValueError naming what differs from an earlier note.

    What was prepared is known by its word lists, features and counts, not by its arrays, which are large; that all that
    the recipe asks for is there, is looked at before the first stage and not hours later.
    """
    _require_parts(prepared, recipe)
    weights = None
    if initial is None:
        _require_one_origin(recipe)
    else:
        _require_sizes(recipe, initial)
        weights = file_fingerprint(initial / WEIGHTS_FILE)
        _require_prepared_for(prepared, initial, weights)
    fingerprints = {name: file_fingerprint(prepared / name) for name in _FINGERPRINTED}
    output.mkdir(parents=True, exist_ok=True)
    if (output / RECIPE_FILE).exists() and not (output / INITIAL_FILE).exists():
        _note(output / INITIAL_FILE, {WEIGHTS_FILE: None})  # begun before there was such a note, with nothing
    _note(output / RECIPE_FILE, recipe.model_dump(mode="json"), _with_later_settings)
    _note(output / PREPARED_FILE, fingerprints)
    _note(output / INITIAL_FILE, {WEIGHTS_FILE: weights})


def _require_parts(prepared: Path, recipe: Recipe) -> None:
    for name, stage in recipe.stages.items():
        for part in stage.parts:
            if not (prepared / f"{part}.npz").is_file():
                raise ValueError(f"{prepared}: expected {part}.npz for the stage {name}, found none")


def _require_one_origin(recipe: Recipe) -> None:
    first = next(iter(recipe.stages), "")
    if first and recipe.stages[first].runs > 1:
        raise ValueError(
            f"expected one run of the first stage, {first}, or weights that its runs begin with (--begin-with), found "
            f"{recipe.stages[first].runs} runs and no model"
        )


def _require_sizes(recipe: Recipe, initial: Path) -> None:
    """Raises ValueError if the recipe's model is not the one in the folder, but for layers, words and units it adds."""
    if not (initial / MODEL_FILE).is_file():
        raise ValueError(f"{initial}: expected a model to begin with (a folder with {MODEL_FILE}), found none")
    found = ModelConfig.load(initial / MODEL_FILE)
    sizes = {"num_words": found.num_words, "num_characters": found.num_characters, "dropout": found.dropout}
    expected = ModelConfig.model_validate({**recipe.model, **sizes})
    first = next(iter(recipe.stages.values()), None)
    depth = (first and first.encoder_layers) or expected.num_encoder_layers
    if found.num_encoder_layers > depth:
        raise ValueError(f"{initial}: expected {depth} encoder layers or fewer, found {found.num_encoder_layers}")
    deep = found.model_copy(update={"num_encoder_layers": expected.num_encoder_layers})
    if expected not in (deep, doubled_sizes(deep)):
        raise ValueError(f"{initial}: expected the model of the recipe, {expected!r}, found {found!r}")


def _require_prepared_for(prepared: Path, initial: Path, weights: str) -> None:
    report = json.loads((prepared / REPORT_FILE).read_text(encoding="utf-8"))
    if report.get(FOR_MODEL) != weights:
        raise ValueError(
            f"{prepared}: expected what was prepared for the model {initial} (`rewriter prepare --for-model`), found "
            f"what was prepared for {'another' if FOR_MODEL in report else 'none'}"
        )


def _with_later_settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """What was noted before a setting came to be had its default."""
    return Recipe.model_validate(recipe).model_dump(mode="json")


def _note(path: Path, described: dict[str, Any], read: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> None:
    if path.exists():
        noted = read(json.loads(path.read_text(encoding="utf-8")))
        _require_same(path, _comparable(noted), _comparable(described))
    path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _require_same(path: Path, expected: dict[str, Any], found: dict[str, Any]) -> None:
    for name in sorted(expected.keys() | found.keys()):
        before, now = expected.get(name), found.get(name)
        if before != now:
            raise ValueError(
                f"{path}: expected what the run was begun with, {name} {before!r}, found {now!r}; choose another folder"
            )


def _comparable(described: dict[str, Any]) -> dict[str, Any]:
    """Its leaves, and the order of the stages, which dictionaries are compared without."""
    return {**_flat(described), "order of stages": list(described.get("stages", ()))}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, with names such as stages.rewriting.epochs."""
    if not isinstance(value, dict):
        return {name: value}
    parts = [_flat(inner, f"{name}.{part}" if name else part) for part, inner in value.items()]
    return {key: leaf for part in parts for key, leaf in part.items()}
