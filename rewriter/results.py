"""What became of each line of a corpus: enough to break an evaluation down, and to compare two, without the models."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rewriter.config import first_fault
from rewriter.conversation import Example, Rewrite
from rewriter.metrics import RestorationCounts, exact_match, negative_em, restoration_counts


class LineResult(BaseModel):
    """One line of a corpus with its rewrite; as a line of JSON, an entry of `evaluate --details`.

    ``exact``: the rewrite equals any of the references. ``untouched``: it equals the utterance.
    ``reference_untouched``: the best reference came back as it is when it was the utterance (None: not tried).
    ``restored``: what the line adds to f1, f2 and f3, against the best reference.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    line: int
    history: tuple[str, ...]
    utterance: str
    references: tuple[str, ...] = Field(min_length=1)
    kind: str = ""
    rewrite: str
    confidence: float
    exact: bool
    untouched: bool
    reference_untouched: bool | None = None
    restored: tuple[RestorationCounts, RestorationCounts, RestorationCounts]

    @property
    def reference(self) -> str:
        """The best one."""
        return self.references[0]


def line_result(
    number: int, example: Example, rewrite: Rewrite, reference_rewrite: Rewrite | None = None
) -> LineResult:
    """Scores a rewrite, and the rewrite of the best reference as an utterance that needs nothing.

    Raises ValueError if the best reference has no token.
    """
    utterance = example.conversation.utterance
    unspoilt = None if reference_rewrite is None else _same(example.reference, reference_rewrite.text)
    unigrams, bigrams, trigrams = restoration_counts(utterance, example.reference, rewrite.text)
    return LineResult(
        line=number,
        history=example.conversation.history,
        utterance=utterance,
        references=example.references,
        kind=example.kind,
        rewrite=rewrite.text,
        confidence=rewrite.confidence,
        exact=exact_match(example.references, rewrite.text),
        untouched=_same(utterance, rewrite.text),
        reference_untouched=unspoilt,
        restored=(unigrams, bigrams, trigrams),
    )


def side_by_side(rewrites: Mapping[str, LineResult]) -> list[str]:
    """A line as text, with its rewrites by one system or several, by their names."""
    line = next(iter(rewrites.values()))
    return [
        f"line {line.line}",
        *(f"  history    {turn}" for turn in line.history),
        f"  utterance  {line.utterance}",
        *(f"  reference  {reference}" for reference in line.references),
        *(f"  {name:<10} {found.rewrite}   (confidence {found.confidence:.2f})" for name, found in rewrites.items()),
    ]


def write_results(path: Path, results: Iterable[LineResult]) -> None:
    """Writes JSON Lines, one a line of the corpus."""
    path.write_text("".join(result.model_dump_json() + "\n" for result in results), encoding="utf-8")


def read_results(path: Path) -> list[LineResult]:
    """Reads what `write_results` wrote; raises ValueError if it is empty, or naming the line that is something else."""
    results = [_result(path, number, raw) for number, raw in enumerate(path.read_bytes().splitlines(), start=1)]
    if not results:
        raise ValueError(f"{path}: expected at least one line of `evaluate --details`, found none")
    return results


def _result(path: Path, number: int, raw: bytes) -> LineResult:
    try:
        return LineResult.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError(
            f"{path}:{number}: expected a line of `evaluate --details`, found {first_fault(error)}"
        ) from None


def _same(utterance: str, rewrite: str) -> bool:
    return negative_em([utterance], [rewrite]) == 1
