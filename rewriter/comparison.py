"""Two evaluations of the same lines: is one better than the other, or only luckier?

Paired bootstrap after Koehn 2004 ("Statistical Significance Tests for Machine Translation Evaluation", section 4): draw
as many lines as the corpus has, with replacement, score both systems on the same draw, and do so many times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rewriter.corpus import NOTHING_TO_DO_KINDS, RESTORING_KINDS
from rewriter.results import LineResult, side_by_side

RESAMPLES = 10_000
_CHUNK_CELLS = 4_000_000  # 32 MB of draw counts at a time

Results = Sequence[LineResult]


class Difference(NamedTuple):
    """A metric of both systems; the difference is second - first, ``low`` to ``high`` its 95 % interval.

    ``p_value`` is two-sided: twice the share of draws in which the difference is zero or has the other sign, at most 1,
    with one such draw added, since no number of draws proves an impossibility.
    """

    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """``only_first`` and ``only_second``: the lines that only that one got right, as pairs (first, second)."""

    differences: tuple[Difference, ...]
    only_first: tuple[tuple[LineResult, LineResult], ...]
    only_second: tuple[tuple[LineResult, LineResult], ...]


def compare(first: Results, second: Results, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Compares two evaluations; the same seed gives the same figures.

    em, f1, f2, f3; negative_em where both tried it; em_restoring and untouched where the lines have kinds. Raises
    ValueError if the results are not of the same lines in the same order.
    """
    require_same_lines(first, second)
    first_fractions, second_fractions = fractions(first), fractions(second)
    metrics = [metric for metric in first_fractions if metric in second_fractions]
    ours = np.stack([first_fractions[metric] for metric in metrics], axis=-1)
    theirs = np.stack([second_fractions[metric] for metric in metrics], axis=-1)
    drawn = bootstrap_differences(ours, theirs, resamples, seed)
    columns = zip(metrics, _ratio(ours.sum(axis=1)), _ratio(theirs.sum(axis=1)), drawn.T, strict=True)
    pairs = list(zip(first, second, strict=True))
    return Comparison(
        tuple(_difference(metric, float(a), float(b), drawn_here) for metric, a, b, drawn_here in columns),
        tuple((a, b) for a, b in pairs if a.exact and not b.exact),
        tuple((a, b) for a, b in pairs if b.exact and not a.exact),
    )


def require_same_lines(first: Results, second: Results) -> None:
    """Raises ValueError naming the first line in which two evaluations differ in what they were asked."""
    if len(first) != len(second):
        raise ValueError(f"expected results of the same lines, found {len(first)} and {len(second)} lines")
    for a, b in zip(first, second, strict=True):
        for field in ("line", "history", "utterance", "references", "kind"):
            expected, found = getattr(a, field), getattr(b, field)
            if expected != found:
                raise ValueError(
                    f"expected results of the same lines, found another {field} in line {a.line}: "
                    f"{expected!r} in the first, {found!r} in the second"
                )


def fractions(results: Results) -> dict[str, np.ndarray]:
    """Each metric as (2, L): what every line adds to its numerator and to its denominator."""
    found = {"em": _share([result.exact for result in results], [True] * len(results))}
    for order in (1, 2, 3):
        counts = np.array([result.restored[order - 1] for result in results], np.float64)
        found[f"f{order}"] = np.stack([2 * counts[:, 0], counts[:, 1] + counts[:, 2]])
    tried = [result.reference_untouched for result in results]
    if None not in tried:
        found["negative_em"] = _share([bool(kept) for kept in tried], [True] * len(results))
    restoring = [result.kind in RESTORING_KINDS for result in results]
    if any(restoring):
        found["em_restoring"] = _share([result.exact for result in results], restoring)
    nothing_to_do = [result.kind in NOTHING_TO_DO_KINDS for result in results]
    if any(nothing_to_do):
        found["untouched"] = _share([result.untouched for result in results], nothing_to_do)
    return found


def bootstrap_differences(first: np.ndarray, second: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The difference second - first of M metrics in every draw: (2, L, M) of both systems -> (resamples, M).

    A metric without anything to count in a draw is 0 for both.
    """
    generator = np.random.default_rng(seed)
    lines = first.shape[1]
    chunk = max(1, _CHUNK_CELLS // lines)
    drawn = []
    for start in range(0, resamples, chunk):
        counts = _draw_counts(generator, min(chunk, resamples - start), lines)
        drawn.append(_ratio(counts @ second) - _ratio(counts @ first))
    return np.concatenate(drawn)


def p_value(differences: np.ndarray) -> float:
    """Two-sided, of the drawn differences of one metric (see `Difference`)."""
    fewest = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (fewest + 1) / (len(differences) + 1))


def _difference(metric: str, first: float, second: float, drawn: np.ndarray) -> Difference:
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Difference(metric, first, second, second - first, float(low), float(high), p_value(drawn))


def describe(comparison: Comparison, examples: int = 0) -> str:
    """The comparison as text, with so many lines of each kind that only one system (A or B) got right."""
    text = [f"{'':<14}{'A':>8}{'B':>8}{'B - A':>9}   95 % interval         p"]
    for metric, first, second, difference, low, high, p in comparison.differences:
        interval = f"[{low:+.4f}, {high:+.4f}]"
        text.append(f"{metric:<14}{first:>8.4f}{second:>8.4f}{difference:>+9.4f}   {interval}  {p:.4f}")
    for name, pairs in (("A", comparison.only_first), ("B", comparison.only_second)):
        text.append(f"only {name} is right in {len(pairs)} lines")
        text += ["\n".join(["", *side_by_side({"A": a, "B": b}), ""]) for a, b in pairs[:examples]]
    return "\n".join(text)


def _share(values: Sequence[bool], counted: Sequence[bool]) -> np.ndarray:
    """(2, L): the lines that hold among those counted, and those counted."""
    return np.array([np.logical_and(values, counted), counted], np.float64)


def _draw_counts(generator: np.random.Generator, draws: int, lines: int) -> np.ndarray:
    """How often each line is drawn, when as many are drawn as there are: (draws, L), every row sums to L."""
    chosen = generator.integers(0, lines, (draws, lines))
    cells = chosen + lines * np.arange(draws)[:, None]
    counts = np.bincount(cells.ravel(), minlength=draws * lines).reshape(draws, lines)
    return counts.astype(np.float64)


def _ratio(sums: np.ndarray) -> np.ndarray:
    """Numerators over denominators, (2, …) -> (…), 0 where there is nothing to count."""
    numerators, denominators = sums
    ratio: np.ndarray = np.divide(
        numerators, denominators, out=np.zeros_like(numerators, np.float64), where=denominators > 0
    )
    return ratio
