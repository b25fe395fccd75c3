"""How far back the needed words may lie: exact match against the number of turns said in between.

    python benchmarks/distance.py CORPUS [--model DIR] [--output docs/distance.png]

Turns of other conversations, in pairs, come between the history and the utterance, so that the needed words move away
while the right rewrite stays the same; and, beside it, before the history, where they only make it longer.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from rewriter.augmentation import add_turns, draw_turns
from rewriter.cli import PRETRAINED
from rewriter.conversation import Example
from rewriter.corpus import read_corpus
from rewriter.inference import Rewriter
from rewriter.metrics import exact_match

DISTRACTORS = (0, 2, 4, 6, 8)


def measure(rewriter: Rewriter, examples: Sequence[Example], between: bool) -> list[float]:
    """Exact match for each of DISTRACTORS."""
    shares = []
    for count in DISTRACTORS:
        generator = random.Random(count)
        moved = [add_turns(e, draw_turns(examples, count, generator), between) for e in examples]
        rewrites = rewriter.rewrite([example.conversation for example in moved])
        right = [exact_match(e.references, r.text) for r, e in zip(rewrites, moved, strict=True)]
        shares.append(sum(right) / len(right))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--model", type=Path, default=PRETRAINED)
    parser.add_argument("--output", type=Path, help="a plot")
    parser.add_argument("--lines", type=int, default=500, help="the last ones")
    arguments = parser.parse_args()
    examples = [e for e in read_corpus(arguments.corpus).examples if 1 <= len(e.conversation.history) <= 2]
    examples = [e for e in examples if e.reference != e.conversation.utterance][-arguments.lines :]
    rewriter = Rewriter.load(arguments.model)
    found = {
        "turns between what is needed and the utterance": measure(rewriter, examples, between=True),
        "turns before the history": measure(rewriter, examples, between=False),
    }
    print(f"| {len(examples)} conversations | " + " | ".join(f"{count} turns" for count in DISTRACTORS) + " |")
    print("|---" * (len(DISTRACTORS) + 1) + "|")
    for name, shares in found.items():
        print(f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")
    if arguments.output:
        draw(arguments.output, found)


def draw(path: Path, found: dict[str, list[float]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, shares in found.items():
        axes.plot(DISTRACTORS, shares, marker="o", label=name)
    axes.set(xlabel="turns of other conversations", ylabel="exact match", ylim=(0, 1))
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
