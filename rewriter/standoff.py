"""Rewrites of conversations that are not ours to ship: kept apart from the text, as positions in it.

An excerpt is known by a fingerprint of its turns; with the conversations at hand, ``attach`` makes examples of it that
can be read, trained on and measured by.
"""

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rewriter.conversation import Conversation, Example
from rewriter.corpus import NOTHING_TO_DO_KINDS, RESTORING_KINDS

_HISTORY_TURNS = 8
_COMPLETE = "complete"

# Turn of the excerpt, first character, the one after the last; or characters that nobody said: function words.
Piece = tuple[int, int, int] | str


class _Rewritten(BaseModel):
    """What becomes of a turn: its rewrites, the best first, each the pieces that spell it."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal[RESTORING_KINDS + NOTHING_TO_DO_KINDS]  # type: ignore[valid-type]
    rewrites: tuple[tuple[Piece, ...], ...] = Field(min_length=1)


class Judgement(_Rewritten):
    """Of the excerpt's turn with this number."""

    turn: int


class NextTurn(_Rewritten):
    """A turn of our own that could have followed an excerpt; its pieces count it as the turn after the last."""

    utterance: str


class Excerpt(BaseModel):
    """Some turns of a conversation, of which those from ``judged_from`` on were judged, and what could have come next.

    Turns without a judgement need nothing, but for the ``unsure`` ones, which are left out.
    """

    model_config = ConfigDict(extra="forbid")

    begins: str  # fingerprint of the first two turns, to find it by
    whole: str  # fingerprint of all turns
    turns: int
    judged_from: int = 1
    unsure: tuple[int, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    next_turns: tuple[NextTurn, ...] = ()


def fingerprint(turns: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(turns).encode()).hexdigest()[:16]


def read_excerpts(path: Path) -> list[Excerpt]:
    """Reads JSON Lines; raises ValueError naming path and line at the first line that is something else."""
    excerpts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            excerpts.append(Excerpt.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise ValueError(f"{path}:{number}: expected an excerpt; {where}: {first['msg']}") from None
    return excerpts


def attach(
    excerpts: Sequence[Excerpt], conversations: Iterable[Sequence[str]]
) -> Iterator[tuple[Excerpt, list[Example]]]:
    """Yields each excerpt that stands in the conversations, once, with the examples that it makes."""
    by_beginning: dict[str, list[Excerpt]] = {}
    for excerpt in excerpts:
        by_beginning.setdefault(excerpt.begins, []).append(excerpt)
    for said in conversations:
        for start in range(len(said) - 1):
            waiting = by_beginning.get(fingerprint(said[start : start + 2]), [])
            for excerpt in [*waiting]:
                turns = said[start : start + excerpt.turns]
                if fingerprint(turns) == excerpt.whole:
                    waiting.remove(excerpt)
                    yield excerpt, _examples(excerpt, turns)


def _examples(excerpt: Excerpt, turns: Sequence[str]) -> list[Example]:
    judged = {judgement.turn: judgement for judgement in excerpt.judgements}
    examples = []
    for index in range(excerpt.judged_from, len(turns)):
        if index in judged:
            examples.append(_example(turns[: index + 1], judged[index].rewrites, judged[index].kind))
        elif index not in excerpt.unsure:
            examples.append(_example(turns[: index + 1], [[turns[index]]], _COMPLETE))
    return examples + [_example([*turns, n.utterance], n.rewrites, n.kind) for n in excerpt.next_turns]


def _example(turns: Sequence[str], rewrites: Sequence[Sequence[Piece]], kind: str) -> Example:
    """Of the last of the turns."""
    best, *others = (spell(turns, pieces) for pieces in rewrites)
    conversation = Conversation(tuple(turns[:-1][-_HISTORY_TURNS:]), turns[-1])
    return Example(conversation, best, tuple(others), kind)


def spell(turns: Sequence[str], pieces: Iterable[Piece]) -> str:
    """The text that the pieces spell."""
    return "".join(p if isinstance(p, str) else turns[p[0]][p[1] : p[2]] for p in pieces)


def cut(turns: Sequence[str], index: int, text: str) -> list[Piece]:
    """The pieces that spell a rewrite of the turn ``index``: what stays of it, and runs of the turns before it.

    What is nowhere said stays as it is typed; whether it is made of function words is for the caller to see.
    """
    turn = turns[index]
    pieces: list[Piece] = []
    for operation, start, end, first, last in difflib.SequenceMatcher(None, turn, text, autojunk=False).get_opcodes():
        if operation == "equal":
            pieces.append((index, start, end))
        else:
            pieces += _runs(turns[: index + 1], text[first:last])
    return pieces


def _runs(turns: Sequence[str], text: str) -> list[Piece]:
    """Spells the text with the longest runs of the turns, of equal ones the latest."""
    pieces: list[Piece] = []
    start = 0
    while start < len(text):
        end, turn = max((_reach(said, text, start), number) for number, said in enumerate(turns))
        if end == start:
            pieces.append(text[start])
            start += 1
            continue
        begin = turns[turn].rindex(text[start:end])
        pieces.append((turn, begin, begin + end - start))
        start = end
    return pieces


def _reach(said: str, text: str, start: int) -> int:
    """How far the text from ``start`` on stands in one run in what was said."""
    end = start
    while end < len(text) and text[start : end + 1] in said:
        end += 1
    return end
