"""The benchmark of what each part is worth, without training any."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from rewriter.config import ModelConfig, Recipe

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def ablation(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("ablation")


def test_every_change_but_the_first_changes_one_thing(ablation: Any) -> None:
    recipe = Recipe.load(ablation.RECIPE)
    first, *others = ablation.CHANGES
    assert first.of(recipe) == recipe and first.granularity == "names" and first.lines is None
    folders = {change.folder for change in ablation.CHANGES}
    assert len(folders) == len(ablation.CHANGES)
    for change in others:
        differs = [change.of(recipe) != recipe and change.lines is None, change.granularity != "names", change.lines]
        assert sum(map(bool, differs)) == 1, change.name
        ModelConfig.model_validate({"num_words": 9, "num_characters": 9, **change.of(recipe).model})


def test_examples_are_added_and_left_out_by_their_shares(ablation: Any) -> None:
    recipe = Recipe.load(ablation.RECIPE)
    change = ablation.Change("other examples", shares={"train_swapped": 0, "extra": 0.5})
    shares = {part.path: part.share for part in change.of(recipe).stages["rewriting"].data}
    assert shares == {"train": 1.0, "train_untouched": 0.3, "extra": 0.5}


def test_fewer_lines_leave_the_validation_lines_as_they_are(
    ablation: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(ablation, "run_rewriter", lambda *arguments: commands.append(arguments))
    monkeypatch.setattr(ablation, "VALIDATION_LINES", 2)
    lines = [f"{number}\n" for number in range(10)]
    own = tmp_path / "own.jsonl"
    own.write_text("{}", encoding="utf-8")
    folder = ablation.prepare(ablation.Change("fewer", lines=3), lines, own, tmp_path)
    assert (folder / "corpus.txt").read_text(encoding="utf-8").split() == ["0", "1", "2", "8", "9"]
    [command] = commands
    assert command[:2] == ("prepare", str(folder / "corpus.txt"))
    (folder / "report.json").touch()
    assert ablation.prepare(ablation.Change("again", lines=3), lines, own, tmp_path) == folder
    assert len(commands) == 1
    own.write_text("[]", encoding="utf-8")
    assert ablation.prepare(ablation.Change("of others", lines=3), lines, own, tmp_path) != folder


def test_the_table_has_a_row_for_each_change(ablation: Any) -> None:
    validation = {**dict.fromkeys(ablation.COLUMNS, 0.123), "minutes": 3.4}
    lines = ablation.table({"as it is": [validation, {"em": 0.25}]}).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == "| as it is | 3 | 12.3 | 12.3 | 12.3 | 12.3 | 12.3 | 25.0 |"
