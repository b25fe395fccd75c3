"""What a scenario came to, and whether that is good enough."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.chaos.callers import TIMEOUT_SECONDS, Record, percentile

MAX_RECOVERY_SECONDS = 10.0
NO_CALLS_AT_SOME_TIME = "expected calls before, during and after it"
# On the way between client and front, beside what the front promises.
_WAY_SECONDS = 0.05


@dataclass
class Figures:
    """Milliseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Figures":
        return cls(round(percentile(records, 0.5) * 1000, 1), round(percentile(records, 0.99) * 1000, 1))


@dataclass
class Result:
    """``recovery_seconds``: from the end of the trouble to the last call that still suffered from it."""

    name: str
    calls: int
    unusable: int
    before: Figures
    during: Figures
    after: Figures
    recovery_seconds: float
    results: dict[str, int]
    faults: list[str] = field(default_factory=list)
    more: dict[str, float] = field(default_factory=dict)

    def expect(self, good: bool, what: str) -> None:
        if not good:
            self.faults.append(what)


def result(
    name: str, records: Sequence[Record], began: float, ended: float, *, may_pass_through: bool = True
) -> Result:
    """``began`` and ``ended`` are of the trouble, by ``time.monotonic``."""
    before = [each for each in records if each.at < began]
    during = [each for each in records if began <= each.at < ended]
    after = [each for each in records if each.at >= ended]
    bad = [each.at + each.seconds - ended for each in after if each.passed_through or not each.usable]
    found = Result(
        name,
        calls=len(records),
        unusable=sum(not each.usable for each in records),
        before=Figures.of(before),
        during=Figures.of(during),
        # What is like it was before, not the way back to it.
        after=Figures.of([each for each in after if each.at - ended > max(bad, default=0.0)]),
        recovery_seconds=round(max(bad, default=0.0), 2),
        results=dict(Counter(each.result for each in records).most_common()),
    )
    codes = sorted({each.result for each in records if not each.usable})
    found.expect(found.unusable == 0, f"expected a usable answer to every call, found {codes}")
    most = (TIMEOUT_SECONDS + _WAY_SECONDS) * 1000
    found.expect(found.during.p99 <= most, f"expected p99 of at most {most:.0f} ms during it")
    expected = MAX_RECOVERY_SECONDS
    found.expect(found.recovery_seconds <= expected, f"expected a recovery within {expected:.0f} s")
    found.expect(bool(before and during and after), NO_CALLS_AT_SOME_TIME)
    if not may_pass_through:
        passed = sum(each.passed_through for each in records)
        found.expect(passed == 0, f"expected no turn to be passed through, found {passed}")
    return found


def table(results: Sequence[Result]) -> str:
    head = ("scenario", "calls", "unusable", "p50/p99 before", "during", "after", "recovery", "results")
    rows = [head, *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"NOT GOOD ENOUGH: {each.name}: {fault}" for each in results for fault in each.faults]
    return "\n".join(lines)


def write(path: Path, results: Sequence[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"good": not any(each.faults for each in results), "scenarios": [asdict(each) for each in results]}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _row(each: Result) -> tuple[str, ...]:
    counts = ", ".join(f"{name} {count}" for name, count in each.results.items())
    more = "".join(f", {name} {value:g}" for name, value in each.more.items())
    return (
        each.name,
        str(each.calls),
        str(each.unusable),
        *(f"{figures.p50:.0f}/{figures.p99:.0f} ms" for figures in (each.before, each.during, each.after)),
        f"{each.recovery_seconds:.1f} s",
        counts + more,
    )
