"""What each part is worth: ``benchmarks/ablation.py train.txt --own corpus/zh --output build/ablation``.

Trains a small model from nothing by ``recipes/ablation.toml``, once as it is and once for each change, and writes the
table to OUTPUT/ablation.md after each. Run again after a kill, it goes on where it was. The last 1,000 lines of the
corpus are the validation lines; OWN is a folder with our own corpus's train.jsonl and test.jsonl.
"""

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from family import evaluate, run_rewriter, train

from rewriter.config import DataShare, Recipe

RECIPE = Path(__file__).parents[1] / "rewriter" / "recipes" / "ablation.toml"
VALIDATION_LINES = 1000
COLUMNS = ("em", "f1", "f2", "f3", "negative_em")


@dataclass(frozen=True)
class Change:
    """One row: what differs from the recipe. ``shares`` of examples are added, or left out where they are 0."""

    name: str
    model: dict[str, Any] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    stage: dict[str, Any] = field(default_factory=dict)
    granularity: str = "names"
    lines: int | None = None  # the first so many of the annotated ones

    @property
    def folder(self) -> str:
        return self.name.replace(" ", "_")

    def of(self, recipe: Recipe) -> Recipe:
        """The recipe with this change."""
        stages = {}
        for name, stage in recipe.stages.items():
            shares = {**{part.path: part.share for part in stage.data}, **self.shares}
            data = tuple(DataShare(path=path, share=share) for path, share in shares.items() if share)
            stages[name] = stage.model_copy(update={"data": data, **self.stage})
        return recipe.model_copy(update={"model": {**recipe.model, **self.model}, "stages": stages})


CHANGES = (
    Change("as it is"),
    Change("without copy state", model={"copy_state": False}),
    Change("without occurrence", model={"occurrence": False}),
    Change("without foretold edits", model={"edits": False}),
    Change("with relations", model={"relations": True}),
    Change("with four encoder layers", model={"num_encoder_layers": 4}),
    Change("with Muon, learning rate 2e-3", stage={"optimizer": "muon", "learning_rate": 2e-3}),
    Change("words of the dictionary", granularity="dictionary"),
    Change("words, guessed ones too", granularity="word"),
    Change("characters", granularity="character"),
    Change("without exchanged nouns", shares={"train_swapped": 0}),
    Change("without word dropout", stage={"word_dropout": 0.0}),
    Change("with other incomplete turns", shares={"train_variants": 0.3}),
    Change("with our own corpus", shares={"extra": 1.0}),
    Change("8,500 annotated lines, twice the epochs", lines=8500, stage={"epochs": 12, "patience": 12}),
    Change("4,250 annotated lines, four times the epochs", lines=4250, stage={"epochs": 24, "patience": 24}),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path, help="annotated lines, as text")
    parser.add_argument("--own", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    given = parser.parse_args()
    recipe = Recipe.load(given.recipe)
    with given.corpus.open(encoding="utf-8", newline="\n") as file:
        lines = list(file)
    given.output.mkdir(parents=True, exist_ok=True)
    validation = given.output / "validation.txt"
    validation.write_text("".join(lines[-VALIDATION_LINES:]), encoding="utf-8")
    reports: dict[str, Sequence[dict[str, Any]]] = {}
    for change in CHANGES:
        prepared = prepare(change, lines, given.own / "train.jsonl", given.output / "prepared")
        folder = given.output / change.folder
        best = train(change.name, change.of(recipe), prepared, folder)
        corpora = (validation, given.own / "test.jsonl")
        reports[change.name] = [evaluate(best, corpus, prepared, folder) for corpus in corpora]
        (given.output / "ablation.md").write_text(table(reports), encoding="utf-8")


def prepare(change: Change, lines: Sequence[str], own: Path, root: Path) -> Path:
    """What ``rewriter prepare`` makes of as many lines as the change wants; the folder, made once."""
    made_of = hashlib.sha256("".join(lines).encode() + own.read_bytes()).hexdigest()[:8]
    folder = root / f"{change.granularity}-{change.lines or 'all'}-{made_of}"
    if not (folder / "report.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        corpus = folder / "corpus.txt"
        annotated = lines[:-VALIDATION_LINES][: change.lines]
        corpus.write_text("".join([*annotated, *lines[-VALIDATION_LINES:]]), encoding="utf-8")
        wanted = ("--granularity", change.granularity, "--validation-lines", str(VALIDATION_LINES))
        run_rewriter("prepare", str(corpus), str(own), *wanted, "--output", str(folder))
    return folder


def table(reports: dict[str, Sequence[dict[str, Any]]]) -> str:
    """Markdown; scores in percent: those of the validation lines, and EM on the test part of our own corpus."""
    lines = ["| | minutes | EM | F1 | F2 | F3 | untouched | own test EM |", "|---|" + "---|" * (len(COLUMNS) + 2)]
    for name, (validation, own) in reports.items():
        scores = " | ".join(f"{100 * value:.1f}" for value in [*(validation[key] for key in COLUMNS), own["em"]])
        lines.append(f"| {name} | {validation['minutes']:.0f} | {scores} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
