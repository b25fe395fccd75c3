"""The paper's eight models at equal cost: ``benchmarks/family.py PREPARED --corpus dev.txt --output build/family``.

Trains and evaluates one after the other with one recipe, and writes the table to OUTPUT/family.md after each. Run again
after a kill, it goes on where it was and skips what is done. Another recipe or PREPARED it refuses (``rewriter.runs``),
with another corpus it evaluates anew. Without --corpus it trains only (a machine without jieba).
"""

import argparse
import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from rewriter.artefact import file_fingerprint
from rewriter.config import Recipe
from rewriter.dataset import PreparedExamples
from rewriter.runs import RECIPE_FILE, begin
from rewriter.vocabulary import UNK

RECIPE = Path(__file__).parents[1] / "rewriter" / "recipes" / "family.toml"
OUTPUTS = {"gen": "Gen", "ptr_net": "Ptr-Net", "ptr_gen": "Ptr-Gen", "ptr_lambda": "Ptr-λ"}
_BATCH_SIZE = 64


@dataclass(frozen=True)
class Member:
    architecture: str
    output: str

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return f"{self.architecture[0].upper()}-{OUTPUTS[self.output]}"

    @property
    def folder(self) -> str:
        return f"{self.architecture}_{self.output}"

    def of(self, recipe: Recipe) -> Recipe:
        """The recipe with this member's parts."""
        return recipe.model_copy(update={"model": {**recipe.model, **vars(self)}})


FAMILY = tuple(Member(*pair) for pair in product(("lstm", "transformer"), OUTPUTS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--corpus", type=Path, help="validation lines, as text")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    given = parser.parse_args()
    recipe = Recipe.load(given.recipe)
    reports: dict[Member, dict[str, Any]] = {}
    for member in FAMILY:
        best = train(member.name, member.of(recipe), given.prepared, given.output / member.folder)
        if given.corpus is not None:
            reports[member] = evaluate(best, given.corpus, given.prepared, given.output / member.folder)
            (given.output / "family.md").write_text(table(reports, given.prepared, recipe), encoding="utf-8")


def train(name: str, recipe: Recipe, prepared: Path, folder: Path) -> Path:
    """Trains to the end, from wherever it was; returns the model's folder. A finished run is not begun again."""
    try:
        begin(prepared, folder, recipe)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    best = folder / list(recipe.stages)[-1] / "best"
    done = folder / "trained"
    if not done.exists():
        print(f"training {name}", flush=True)
        run_rewriter("train", str(prepared), "--output", str(folder), "--recipe", str(folder / RECIPE_FILE))
        done.touch()
    return best


def evaluate(best: Path, corpus: Path, prepared: Path, folder: Path) -> dict[str, Any]:
    """The report of ``rewriter evaluate``, with parameters, minutes of training and the loss on validation."""
    path = folder / f"family-{file_fingerprint(corpus)[:12]}.json"
    if path.exists():
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report
    scores = folder / "report.json"
    run_rewriter("evaluate", str(corpus), "--model", str(best), "--output", str(scores), "--force")
    report = json.loads(scores.read_text(encoding="utf-8"))
    report |= describe(best, PreparedExamples.load(prepared / "validation.npz"))
    report["minutes"] = sum(_seconds(history) for history in folder.rglob("history.csv")) / 60
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def describe(best: Path, validation: PreparedExamples) -> dict[str, float]:
    """Number of parameters, and the mean negative log-probability of a target token where references can be copied."""
    from rewriter.artefact import load_model
    from rewriter.inference import compile_function
    from rewriter.objectives import CopyLoss

    model, loss = load_model(best), CopyLoss()
    run = compile_function(model, lambda m, batch: loss(batch["positions"], m(batch, training=False)))
    usable = np.flatnonzero(validation.target_lengths)
    order = usable[np.argsort(validation.source_lengths[usable], kind="stable")]
    total, tokens = 0.0, 0
    for start in range(0, len(order), _BATCH_SIZE):
        batch = validation.batch(order[start : start + _BATCH_SIZE])
        count = int((batch["positions"] >= 0).sum())
        total += float(run(batch)) * count
        tokens += count
    return {"parameters": model.count_params(), "loss": total / tokens}


def table(reports: dict[Member, dict[str, Any]], prepared: Path, recipe: Recipe) -> str:
    """Markdown; scores in percent."""
    from rewriter.evaluation import QUALITY_KEYS

    validation = PreparedExamples.load(prepared / "validation.npz")
    lines = [
        "| | parameters | minutes | loss | EM | B1 | B2 | B4 | R1 | R2 | RL | F1 | F2 | F3 | untouched |",
        "|---|" + "---|" * (len(QUALITY_KEYS) + 3),
    ]
    for member, report in reports.items():
        sizes = f"{report['parameters'] / 1e6:.1f} M | {report['minutes']:.0f} | {report['loss']:.3f}"
        lines.append(f"| {member.name} | {sizes} | {' | '.join(f'{100 * report[key]:.1f}' for key in QUALITY_KEYS)} |")
    epochs = ", ".join(f"{stage.epochs} epochs of {name}" for name, stage in recipe.stages.items())
    lines += [
        "",
        f"{epochs}, the best one kept by the validation lines; greedy. `loss` is the mean negative log-probability of",
        "a word of the validation references, 20.7 for one that cannot be written.",
        f"{100 * known_share(validation):.1f} % of the references have no unknown word: Gen can reach no more.",
    ]
    return "\n".join(lines) + "\n"


def known_share(examples: PreparedExamples) -> float:
    """Share of the examples whose reference can be copied and has no word that is unknown to the vocabulary."""
    starts = np.repeat(examples.source_offsets[:-1], examples.target_lengths)
    is_unknown = examples.arrays["word_ids"][starts + examples.positions] == UNK
    example = np.repeat(np.arange(len(examples)), examples.target_lengths)
    unknown = np.bincount(example, is_unknown, minlength=len(examples))
    return float(((unknown == 0) & (examples.target_lengths > 0)).mean())


def _seconds(history: Path) -> float:
    with history.open(encoding="utf-8", newline="") as file:
        return sum(float(row["seconds"]) for row in csv.DictReader(file))


def run_rewriter(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "rewriter", *arguments], check=True)


if __name__ == "__main__":
    main()
