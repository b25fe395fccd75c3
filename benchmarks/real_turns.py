"""What becomes of real turns: a sample to be read, and what its readers found, by confidence.

    python benchmarks/real_turns.py sample kdconv.jsonl.gz crosswoz.jsonl.gz --output turns.jsonl
    python benchmarks/real_turns.py count turns.jsonl verdicts_a.jsonl verdicts_b.jsonl

``sample`` draws turns with up to six before them, as many of each file, and rewrites them with nothing withheld for its
confidence. Readers see history, utterance and rewrite, neither confidence nor version, and write ``{"id", "verdict"}``:

* right: says what the speaker meant; what was added was needed or helps, and nothing is lost.
* partial: what was added is right, but something needed is still missing, or one must think twice.
* unneeded: the turn needed nothing; what was added is true and changes nothing.
* wrong: it says something else: the wrong person, thing, place or time, something lost, or garbled.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewriter.artefact import load_features, load_model
from rewriter.cli import PRETRAINED
from rewriter.config import Calibration
from rewriter.conversation import Conversation
from rewriter.corpus import read_dialogues
from rewriter.features import Features
from rewriter.inference import Rewriter

VERDICTS = ("right", "partial", "unneeded", "wrong")
_HISTORY_TURNS = 6
_THRESHOLDS = (0.0, 0.18, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6)


def sample(paths: Sequence[Path], of_each: int, seed: int = 11) -> list[dict[str, Any]]:
    """Turns of as many conversations of each file; raises ValueError where there are fewer."""
    generator = random.Random(seed)
    turns: list[dict[str, Any]] = []
    for path in paths:
        conversations = [turns for turns in read_dialogues(path) if len(turns) > 1]
        if len(conversations) < of_each:
            raise ValueError(
                f"{path}: expected {of_each} conversations of two turns or more, found {len(conversations)}"
            )
        for said in generator.sample(conversations, of_each):
            index = generator.randrange(1, len(said))
            history = said[max(0, index - _HISTORY_TURNS) : index]
            turns.append({"id": len(turns), "source": path.name, "history": history, "utterance": said[index]})
    return turns


def rewrite(turns: Sequence[dict[str, Any]], model: Path) -> list[dict[str, Any]]:
    config, vocabulary = load_features(model)
    calibration = Calibration(slope=config.calibration.slope, intercept=config.calibration.intercept)
    features = Features(config.model_copy(update={"calibration": calibration}), vocabulary)
    found = Rewriter(load_model(model), features).rewrite(
        [Conversation(tuple(turn["history"]), turn["utterance"]) for turn in turns]
    )
    return [{**turn, "rewrite": r.text, "confidence": r.confidence} for turn, r in zip(turns, found, strict=True)]


def count(turns: Sequence[dict[str, Any]], verdicts: Sequence[dict[str, Any]]) -> dict[float, dict[str, float]]:
    """For each threshold, the changed turns that were read, by verdict, each turn's readers in equal parts."""
    read: dict[int, list[str]] = {}
    for verdict in verdicts:
        read.setdefault(verdict["id"], []).append(verdict["verdict"])
    counts = {threshold: dict.fromkeys(VERDICTS, 0.0) for threshold in _THRESHOLDS}
    for turn in turns:
        if turn["rewrite"] == turn["utterance"]:
            continue
        for threshold in _THRESHOLDS:
            if turn["confidence"] >= threshold:
                for verdict in read.get(turn["id"], ()):
                    counts[threshold][verdict] += 1 / len(read[turn["id"]])
    return counts


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sampling = commands.add_parser("sample")
    sampling.add_argument("dialogues", type=Path, nargs="+")
    sampling.add_argument("--output", type=Path, required=True)
    sampling.add_argument("--of-each", type=int, default=500)
    sampling.add_argument("--model", type=Path, default=PRETRAINED)
    counting = commands.add_parser("count")
    counting.add_argument("turns", type=Path)
    counting.add_argument("verdicts", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "sample":
        turns = rewrite(sample(options.dialogues, options.of_each), options.model)
        options.output.write_text("".join(json.dumps(t, ensure_ascii=False) + "\n" for t in turns), encoding="utf-8")
        return
    counts = count(_read(options.turns), [verdict for path in options.verdicts for verdict in _read(path)])
    print("| confidence | changed | " + " | ".join(VERDICTS) + " |\n|---|---|---|---|---|---|")
    for threshold, found in counts.items():
        total = sum(found.values())
        shares = (
            f"{100 * found[verdict] / total:.0f} % ({found[verdict]:.0f})" if total else "–" for verdict in VERDICTS
        )
        print(f"| {threshold} and more | {total:.0f} | " + " | ".join(shares) + " |")


if __name__ == "__main__":
    main()
