"""What a training run was begun with: its folder is gone on with by the same recipe and data, or not at all."""

import hashlib
import json
from pathlib import Path
from typing import Any

from rewriter.artefact import WEIGHTS_FILE, load_features, preprocessing_fingerprint
from rewriter.config import Recipe

RECIPE_FILE = "recipe.json"
PREPARED_FILE = "prepared.json"
INITIAL_FILE = "initial.json"
_FINGERPRINTED = ("words.txt", "characters.txt", "features.json", "report.json")


def begin(prepared: Path, output: Path, recipe: Recipe, initial: Path | None = None) -> None:
    """Notes in ``output`` what a run is begun with; raises ValueError naming what differs from an earlier note.

    What was prepared is known by its word lists, features and counts, not by its arrays, which are large; that all that
    the recipe asks for is there, is looked at before the first stage and not hours later.
    """
    _require_parts(prepared, recipe)
    _require_origin(prepared, recipe, initial)
    fingerprints = {name: file_fingerprint(prepared / name) for name in _FINGERPRINTED}
    output.mkdir(parents=True, exist_ok=True)
    _note(output / RECIPE_FILE, recipe.model_dump(mode="json"))
    _note(output / PREPARED_FILE, fingerprints)
    _note(output / INITIAL_FILE, {WEIGHTS_FILE: initial and file_fingerprint(initial / WEIGHTS_FILE)})


def file_fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _require_parts(prepared: Path, recipe: Recipe) -> None:
    for name, stage in recipe.stages.items():
        for part in stage.parts:
            if not (prepared / f"{part}.npz").is_file():
                raise ValueError(f"{prepared}: expected {part}.npz for the stage {name}, found none")


def _require_origin(prepared: Path, recipe: Recipe, initial: Path | None) -> None:
    """Raises ValueError unless the model to begin with, if any, has the words and features of what was prepared."""
    if initial is None:
        first = next(iter(recipe.stages), "")
        if first and recipe.stages[first].runs > 1:
            raise ValueError(f"expected one run of the first stage, {first}: others need its weights to begin with")
    elif preprocessing_fingerprint(*load_features(initial)) != preprocessing_fingerprint(*load_features(prepared)):
        raise ValueError(
            f"{prepared}: expected what was prepared with the words and features of {initial} (see `rewriter prepare "
            "--for-model`), found others"
        )


def _note(path: Path, described: dict[str, Any]) -> None:
    if path.exists():
        _require_same(path, _comparable(json.loads(path.read_text(encoding="utf-8"))), _comparable(described))
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
