"""Titles and quotations are copied whole: brackets of which a copied piece holds one half get the other.

The model points at one word after the other and at times stops before 》. What is added stood in the same turn, between
what was copied and the other half of the bracket, so every word can still be traced to where it was said.
"""

from collections.abc import Sequence

# As normalized: NFKC has made （） plain.
_PAIRS = ("《》", "〈〉", "()", "「」", "『』", "“”", "‘’", "【】", "[]")
_CLOSING = {pair[0]: pair[1] for pair in _PAIRS}
_OPENING = {closing: opening for opening, closing in _CLOSING.items()}
# A bracket that needs more words than a title has was perhaps never meant to be one.
_MOST_WORDS = 20


def complete_brackets(runs: Sequence[Sequence[int]], surfaces: Sequence[str | None]) -> list[list[int]]:
    """Lengthens runs of neighbouring source positions up to the other half of brackets that have only one.

    ``surfaces`` are the source's words, None at the ends of turns. A bracket whose other half is missing in its turn as
    well, or stands further off than a title is long, stays as it was copied.
    """
    lonely = _lonely([position for run in runs for position in run], surfaces)
    return [_complete(run, lonely, surfaces) for run in runs]


def _complete(run: Sequence[int], lonely: set[int], surfaces: Sequence[str | None]) -> list[int]:
    first, last = run[0], run[-1]
    for position in run:
        if position in lonely:
            other = _other_half(position, surfaces)
            first, last = min(first, other), max(last, other)
    return list(range(first, last + 1)) if lonely.intersection(run) else list(run)


def _lonely(positions: Sequence[int], surfaces: Sequence[str | None]) -> set[int]:
    """Positions of copied brackets without their other half among what was copied."""
    opened: list[int] = []
    lonely: set[int] = set()
    for position in positions:
        surface = surfaces[position] or ""
        if surface in _CLOSING:
            opened.append(position)
        elif surface in _OPENING:
            if opened and surfaces[opened[-1]] == _OPENING[surface]:
                opened.pop()
            else:
                lonely.add(position)
    return lonely.union(opened)


def _other_half(position: int, surfaces: Sequence[str | None]) -> int:
    """The position of the bracket that belongs to this one, or this position itself if there is none near by."""
    surface = surfaces[position] or ""
    step, wanted = (1, _CLOSING[surface]) if surface in _CLOSING else (-1, _OPENING[surface])
    depth = 0
    for other in range(position + step, position + step * (_MOST_WORDS + 1), step):
        found = surfaces[other] if 0 <= other < len(surfaces) else None
        if found is None:
            return position
        depth += (found == surface) - (found == wanted)
        if depth < 0:
            return other
    return position
