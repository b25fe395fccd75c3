"""The benchmark of the eight models, without training any."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from rewriter.config import ModelConfig, Recipe
from rewriter.evaluation import QUALITY_KEYS
from rewriter.preparation import encode_examples

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("family")


@pytest.fixture
def commands(family: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What would have been run."""
    run: list[tuple[str, ...]] = []
    monkeypatch.setattr(family, "run_rewriter", lambda *arguments: run.append(arguments))
    return run


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """As much of it as says what it is, and files by the names that the recipe reads."""
    folder = tmp_path / "prepared"
    folder.mkdir()
    tiny.VOCABULARY.save(folder)
    tiny.FEATURES.save(folder / "features.json")
    (folder / "report.json").write_text("{}", encoding="utf-8")
    for stage in Recipe.load(BENCHMARKS.parent / "rewriter" / "recipes" / "family.toml").stages.values():
        for part in stage.parts:
            (folder / f"{part}.npz").touch()
    return folder


def test_its_members_are_those_of_the_configuration(family: Any) -> None:
    assert {(member.architecture, member.output) for member in family.FAMILY} == {
        (changes["architecture"], changes["output"]) for changes in tiny.FAMILY
    }
    names = [member.name for member in family.FAMILY]
    assert names[:2] == ["L-Gen", "L-Ptr-Net"] and names[-1] == "T-Ptr-λ"


def test_every_member_gets_the_recipe_with_its_own_parts_and_is_trained_once(
    family: Any, commands: list[tuple[str, ...]], prepared: Path, tmp_path: Path
) -> None:
    recipe = Recipe.load(family.RECIPE)
    for member in (*family.FAMILY, *family.FAMILY):
        folder = tmp_path / member.folder
        assert family.train(member.name, member.of(recipe), prepared, folder) == folder / "rewriting" / "best"
    assert len(commands) == 8
    for member, command in zip(family.FAMILY, commands, strict=True):
        assert command[:2] == ("train", str(prepared))
        own = Recipe.load(Path(command[-1]))
        assert own.stages == recipe.stages
        config = ModelConfig.model_validate({"num_words": 9, "num_characters": 9, **own.model})
        assert (config.architecture, config.output) == (member.architecture, member.output)
        assert not (config.copy_state or config.occurrence or config.edits)


def test_a_folder_of_another_recipe_is_not_gone_on_with(
    family: Any, commands: list[tuple[str, ...]], prepared: Path, tmp_path: Path
) -> None:
    recipe = Recipe.load(family.RECIPE)
    family.train("L-Gen", recipe, prepared, tmp_path / "run")
    other = recipe.model_copy(update={"model": {**recipe.model, "hidden_dim": 64.0}})
    with pytest.raises(SystemExit, match="expected what the run was begun with, model.hidden_dim .*, found 64.0"):
        family.train("L-Gen", other, prepared, tmp_path / "run")
    (prepared / "report.json").write_text('{"train": 1}', encoding="utf-8")
    with pytest.raises(SystemExit, match="expected what the run was begun with, report.json"):
        family.train("L-Gen", recipe, prepared, tmp_path / "run")


def test_another_corpus_is_evaluated_anew(
    family: Any, commands: list[tuple[str, ...]], prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "describe", lambda best, validation: {"parameters": 1, "loss": 0.5})
    encode_examples(tiny.features(), tiny.EXAMPLES).save(prepared / "validation.npz")
    (tmp_path / "report.json").write_text('{"em": 0.5}', encoding="utf-8")
    corpora = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for corpus in corpora:
        corpus.write_text(corpus.name, encoding="utf-8")
    for corpus in (*corpora, *corpora):
        assert family.evaluate(tmp_path / "best", corpus, prepared, tmp_path)["em"] == 0.5
    assert [command[:2] for command in commands] == [("evaluate", str(corpus)) for corpus in corpora]


def test_gen_can_reach_the_references_without_unknown_words(family: Any, tmp_path: Path) -> None:
    """Of the four, those with 梅西 and 红楼梦 have one."""
    examples = encode_examples(tiny.features(), tiny.EXAMPLES)
    assert family.known_share(examples) == 0.5
    examples.save(tmp_path / "validation.npz")
    scores = dict.fromkeys(QUALITY_KEYS, 0.123)
    reports = {family.FAMILY[0]: {**scores, "parameters": 2_340_000, "minutes": 3.4, "loss": 1.5}}
    lines = family.table(reports, tmp_path, Recipe.load(family.RECIPE)).splitlines()
    assert len({line.count("|") for line in lines[:3]}) == 1
    assert lines[2].startswith("| L-Gen | 2.3 M | 3 | 1.500 | 12.3 | 12.3 |")
    assert "50.0 % of the references" in lines[-1]


def test_the_loss_is_the_mean_over_all_target_words(family: Any, tmp_path: Path) -> None:
    from rewriter.artefact import load_model, save_artefact

    examples = encode_examples(tiny.features(), tiny.EXAMPLES)
    small = {"num_encoder_layers": 0, "num_decoder_layers": 1}
    save_artefact(tmp_path, tiny.model(output="ptr_net", **small), tiny.FEATURES, tiny.VOCABULARY)
    model, targets = load_model(tmp_path), tiny.targets()
    found = family.describe(tmp_path, examples)
    log_probs = np.array(model.decode(model.encode(tiny.arrays()), targets))
    of_targets = np.take_along_axis(log_probs, np.maximum(targets, 0)[..., None], axis=2)[..., 0]
    assert found["loss"] == pytest.approx(-of_targets[targets >= 0].mean(), rel=1e-4)
    assert found["parameters"] == model.count_params()
