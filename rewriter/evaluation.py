"""Rewrites a corpus and compares with its references: a JSON report, a table, and the errors side by side."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewriter.analysis import analyse, by_kind, share, table
from rewriter.corpus import Corpus, untouched
from rewriter.inference import Rewriter
from rewriter.metrics import negative_em, restoration_edits, score
from rewriter.results import LineResult, line_result, side_by_side

QUALITY_KEYS = ("em", "bleu1", "bleu2", "bleu4", "rouge1", "rouge2", "rougeL", "f1", "f2", "f3", "negative_em")


@dataclass(frozen=True)
class Evaluation:
    """``report`` has the keys of QUALITY_KEYS (0 to 1), some facts, the keys of ``analysis.by_kind`` and ``analysis``.

    ``results`` are in the corpus's order.
    """

    report: dict[str, Any]
    results: tuple[LineResult, ...]


def evaluate(rewriter: Rewriter, corpus: Corpus) -> Evaluation:
    """Scores the rewrites of a corpus, and of its references as utterances that need nothing (negative_em).

    A rewrite is exact (``em``) if it equals any of the references; the other metrics look at the best one. ``changed``
    is the share of the utterances that do not come back as they are, ``em_changed`` the share of these that are exact
    (None: there are none).

    Raises ValueError if the corpus has no readable line.
    """
    if not corpus.examples:
        raise ValueError(f"{corpus.path}: expected at least one readable line, found none")
    started = time.monotonic()
    rewrites = rewriter.rewrite([example.conversation for example in corpus.examples])
    seconds = time.monotonic() - started
    negatives = untouched(corpus.examples)
    utterances = [example.conversation.utterance for example in corpus.examples]
    references = [example.reference for example in corpus.examples]
    kept = rewriter.rewrite([example.conversation for example in negatives])
    scores = score(utterances, references, [rewrite.text for rewrite in rewrites])
    results = tuple(map(line_result, corpus.line_numbers, corpus.examples, rewrites, kept))
    report: dict[str, Any] = {
        **scores,
        "em": sum(result.exact for result in results) / len(results),
        "changed": share([not result.untouched for result in results]),
        "em_changed": share([result.exact for result in results if not result.untouched]),
        "negative_em": negative_em(references, [rewrite.text for rewrite in kept]),
        **by_kind(results),
        "lines": len(corpus.examples),
        "unreadable_lines": len(corpus.errors),
        "rewrites_per_second": len(corpus.examples) / seconds,
        "analysis": analyse(results, rewriter.features),
    }
    return Evaluation(report, results)


def write_errors(path: Path, results: Sequence[LineResult]) -> int:
    """Writes every rewrite that differs from all its references, side by side, as text; returns how many there are."""
    blocks = [_error_block(result) for result in results if not result.exact]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return len(blocks)


def write_report(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def summary(report: dict[str, Any], analysis: bool = False) -> str:
    """The report as text, a figure a line, then em by kind if the corpus has kinds, and the analysis if wanted."""
    figures = {key: value for key, value in report.items() if not isinstance(value, dict)}
    lines = [
        f"{key:<20} {value:.4f}" if isinstance(value, float) else f"{key:<20} {value}" for key, value in figures.items()
    ]
    if "kinds" in report:
        lines.append(table({"kinds": report["kinds"]}))
    if analysis:
        lines.append(table(report["analysis"]))
    return "\n".join(lines)


def _error_block(result: LineResult) -> str:
    lines = side_by_side({"ours": result})
    edits = restoration_edits(result.utterance, result.reference, result.rewrite)
    for name in ("inserted", "missed", "wrong"):
        pieces = getattr(edits, name)
        if pieces:
            lines.append(f"  {name:<10} {' | '.join(pieces)}")
    return "\n".join(lines) + "\n"
