"""From a reference rewrite to the source positions that spell it: the training targets of a model that only copies.

A word that stands in several places could have been copied from any of them. One rule, used in training and in
decoding alike, picks the place: continue the run, else the frontier (the first word of the utterance that is not yet
written), else the next place in the utterance, else the latest in the history, else what was written already.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_RUN_COST = 1


def copy_priorities(ops: Any, position: Any, last: Any, frontier: Any, in_utterance: Any, size: Any) -> Any:
    """The rule as numbers: of several places with the same word, the one with the highest priority is copied.

    ``ops`` is numpy or keras.ops; the other arguments broadcast against each other. ``position`` counts the source
    positions from 0 to ``size`` - 1, ``last`` is the position copied last (-1: none), ``in_utterance`` is boolean.
    """
    upcoming = ops.where(position >= frontier, 3 * size - position, position)
    priority = ops.where(in_utterance, upcoming, size + position)
    priority = ops.where(position == frontier, 4 * size, priority)
    return ops.where((position == last + 1) & (last >= 0), 5 * size, priority)


def place(copy_ids: np.ndarray, in_utterance: np.ndarray, tokens: Sequence[int]) -> list[int]:
    """Returns the source position of each token by the rule above.

    ``copy_ids`` and ``in_utterance`` have shape (S,); ``tokens`` are copy ids that occur in ``copy_ids``.
    """
    size = len(copy_ids)
    positions = np.arange(size)
    last, frontier = -1, int(np.argmax(in_utterance))
    placed = []
    for token in tokens:
        priorities = copy_priorities(np, positions, last, frontier, in_utterance, size)
        last = int(np.argmax(np.where(copy_ids == token, priorities, -1)))
        if in_utterance[last]:
            frontier = max(frontier, last + 1)
        placed.append(last)
    return placed


class _Tile(NamedTuple):
    """The cheapest way to spell the reference up to some offset and end with the word at ``position``."""

    cost: int
    position: int
    previous: "_Tile | None"


def tile(reference: str, surfaces: Sequence[str | None]) -> list[int] | None:
    """Spells ``reference`` with words of the source, in as few words and as few runs as can be.

    Dynamic programming over (characters spelled, position copied last). ``surfaces`` holds the word at each source
    position, None where nothing can be copied. Returns source positions, or None if the reference cannot be spelled.
    """
    by_first_character: dict[str, list[tuple[int, str]]] = {}
    for position, surface in enumerate(surfaces):
        if surface:
            by_first_character.setdefault(surface[0], []).append((position, surface))
    ways: list[dict[int, _Tile]] = [{} for _ in range(len(reference) + 1)]
    ways[0][-1] = _Tile(0, -1, None)
    for offset, character in enumerate(reference):
        if not ways[offset]:
            continue
        cheapest = min(ways[offset].values())
        for position, surface in by_first_character.get(character, ()):
            if reference.startswith(surface, offset):
                run = ways[offset].get(position - 1)
                ways[offset + len(surface)][position] = _extend(run, cheapest, position)
    return _positions(min(ways[-1].values())) if ways[-1] else None


def _extend(run: _Tile | None, cheapest: _Tile, position: int) -> _Tile:
    """Adds one word, either to the run that ends just before it or to the cheapest way of all as a new run."""
    if run is not None and run.position >= 0 and run.cost <= cheapest.cost + _RUN_COST:
        return _Tile(run.cost + 1, position, run)
    return _Tile(cheapest.cost + 1 + _RUN_COST, position, cheapest)


def _positions(way: _Tile) -> list[int]:
    positions = []
    step: _Tile | None = way
    while step is not None and step.position >= 0:
        positions.append(step.position)
        step = step.previous
    return positions[::-1]
