"""Rewrites of conversations that are not ours to ship: kept apart from the text, as positions in it.

An excerpt is known by a fingerprint of its turns; with the conversations at hand, ``attach`` makes examples of it that
can be read, trained on and measured by.
"""

import codecs
import difflib
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rewriter.config import first_fault
from rewriter.conversation import Conversation, Example
from rewriter.corpus import KINDS

_HISTORY_TURNS = 8
_COMPLETE = "complete"

# A turn of the excerpt, its first character and the one after the last, all counted from 0, in the text as
# ``corpus.read_conversations`` gives it; or characters that nobody said: function words.
Piece = tuple[int, int, int] | Annotated[str, Field(min_length=1)]
_Pieces = Annotated[tuple[Piece, ...], Field(min_length=1)]


class _Rewritten(BaseModel):
    """What becomes of a turn: its rewrites, the best first, each the pieces that spell it."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal[KINDS]  # type: ignore[valid-type]
    rewrites: tuple[_Pieces, ...] = Field(min_length=1)


class Judgement(_Rewritten):
    """Of the excerpt's turn with this number, from 0; its pieces stand in no later turn."""

    turn: int


class NextTurn(_Rewritten):
    """A turn of our own that could have followed an excerpt; its pieces count it as the turn after the last."""

    utterance: str = Field(min_length=1)


class Excerpt(BaseModel):
    """Some turns of a conversation, of which those from ``judged_from`` on were judged, and what could have come next.

    Turns without a judgement need nothing, but for the ``unsure`` ones, which are left out.
    """

    model_config = ConfigDict(extra="forbid")

    begins: str  # fingerprint of the first two turns, to find it by
    whole: str  # fingerprint of all turns
    length: int = Field(ge=2, description="turns")
    judged_from: int = Field(default=1, ge=1)
    unsure: tuple[int, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    next_turns: tuple[NextTurn, ...] = ()

    @model_validator(mode="after")
    def _stays_within(self) -> Self:
        decided = [*self.unsure, *(judgement.turn for judgement in self.judgements)]
        if len({*decided}) < len(decided) or not {*decided} <= {*range(self.judged_from, self.length)}:
            raise ValueError(f"expected turns from {self.judged_from} to {self.length - 1} once each, found {decided}")
        for turn, rewritten in [
            *((judgement.turn, judgement) for judgement in self.judgements),
            *((self.length, following) for following in self.next_turns),
        ]:
            for where, start, end in (p for pieces in rewritten.rewrites for p in pieces if not isinstance(p, str)):
                if not max(0, turn - _HISTORY_TURNS) <= where <= turn or not 0 <= start < end:
                    raise ValueError(
                        f"expected pieces of the turn {turn} or of the {_HISTORY_TURNS} before it, "
                        f"found {(where, start, end)}"
                    )
        return self


def fingerprint(turns: Sequence[str]) -> str:
    """The same for the same turns."""
    return hashlib.sha256("\n".join(turns).encode(errors="surrogatepass")).hexdigest()[:16]


def read_excerpts(path: Path) -> list[Excerpt]:
    """Reads JSON Lines; raises ValueError naming path and line at the first line that is something else."""
    excerpts = []
    for number, line in enumerate(path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            excerpts.append(Excerpt.model_validate_json(line))
        except ValidationError as error:
            raise ValueError(f"{path}:{number}: expected an excerpt; {first_fault(error)}") from None
    return excerpts


def attach(excerpts: Iterable[Excerpt], conversations: Iterable[Sequence[str]]) -> list[list[Example] | None]:
    """Returns the examples of each excerpt, in their order; None where the conversations do not hold it.

    Raises ValueError if one of its pieces goes beyond the turn in which it should stand.
    """
    made: list[list[Example] | None] = []
    waiting: dict[str, list[tuple[int, Excerpt]]] = {}
    for number, excerpt in enumerate(excerpts):
        made.append(None)
        waiting.setdefault(excerpt.begins, []).append((number, excerpt))
    for said in conversations:
        for start in range(len(said) - 1):
            for number, excerpt in waiting.get(fingerprint(said[start : start + 2]), ()):
                turns = said[start : start + excerpt.length]
                if made[number] is None and fingerprint(turns) == excerpt.whole:
                    made[number] = _examples(excerpt, turns)
    return made


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
    """The text that the pieces spell; raises ValueError if one goes beyond the end of its turn."""
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        turn, start, end = piece
        if end > len(turns[turn]):
            raise ValueError(f"expected a piece of {turns[turn]!r}, found characters {start} to {end}")
        text += turns[turn][start:end]
    return text


def cut(turns: Sequence[str], index: int, text: str) -> list[Piece]:
    """The pieces that spell a rewrite of the turn ``index``: what stays of it, and runs of it and the turns before it.

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
