"""Rewrites logs: JSON Lines in, the same records with their rewrites out, in input order, in bounded memory.

A record is ``{"id", "history": [text, …], "utterance": text}``, or a whole conversation ``{"id", "turns": [{"speaker",
"text"}, …]}`` of which every turn is rewritten. Fields that are not ours are kept; a record that cannot be read comes
out as it came in, with an ``error``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rewriter.config import first_fault
from rewriter.conversation import Conversation, Rewrite

RewriteFunction = Callable[[Sequence[Conversation]], list[Rewrite]]
_CHUNK_RECORDS = 256
_PIECE_TURNS = 1024


class _Utterance(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    history: list[str]
    utterance: str

    @property
    def texts(self) -> list[str]:
        return [self.utterance]

    def conversations(self) -> Iterator[Conversation]:
        yield Conversation(tuple(self.history), self.utterance)

    def with_rewrites(self, rewrites: Sequence[Rewrite]) -> dict[str, Any]:
        return {**self.model_dump(), **_fields(rewrites[0])}


class _Turn(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    text: str


class _WholeConversation(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    turns: list[_Turn]

    @property
    def texts(self) -> list[str]:
        return [turn.text for turn in self.turns]

    def conversations(self) -> Iterator[Conversation]:
        texts = self.texts
        return (Conversation(tuple(texts[:index]), text) for index, text in enumerate(texts))

    def with_rewrites(self, rewrites: Sequence[Rewrite]) -> dict[str, Any]:
        turns = [{**turn.model_dump(), **_fields(rewrite)} for turn, rewrite in zip(self.turns, rewrites, strict=True)]
        return {**self.model_dump(), "turns": turns}


@dataclass(frozen=True)
class BatchCounts:
    """Records read, records that could not be, turns rewritten and turns of those that came back as they were."""

    records: int = 0
    errors: int = 0
    turns: int = 0
    unchanged: int = 0


def rewrite_file(input_path: Path, output_path: Path, rewrite: RewriteFunction) -> BatchCounts:
    """Rewrites each record of ``input_path``; ``output_path`` appears, complete, at the end."""
    counts = BatchCounts()
    partial = output_path.with_name(output_path.name + ".partial")
    # Half a surrogate pair, which UTF-8 has not, is written as JSON writes it: \ud83d.
    with input_path.open("rb") as lines, partial.open("w", encoding="utf-8", errors="backslashreplace") as output:
        numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
        while chunk := list(islice(numbered, _CHUNK_RECORDS)):
            for record, chunk_counts in _rewrite_chunk(chunk, rewrite):
                output.write(json.dumps(record, ensure_ascii=False) + "\n")
                counts = _add(counts, chunk_counts)
    partial.replace(output_path)
    return counts


def _rewrite_chunk(
    chunk: Iterable[tuple[int, bytes]], rewrite: RewriteFunction
) -> Iterator[tuple[dict[str, Any], BatchCounts]]:
    records = [_read(number, line) for number, line in chunk]
    conversations = (c for record in records if not isinstance(record, dict) for c in record.conversations())
    rewrites = _in_pieces(conversations, rewrite)
    for record in records:
        if isinstance(record, dict):
            yield record, BatchCounts(records=1, errors=1)
            continue
        own = list(islice(rewrites, len(record.texts)))
        unchanged = sum(text == found.text for text, found in zip(record.texts, own, strict=True))
        yield record.with_rewrites(own), BatchCounts(records=1, turns=len(own), unchanged=unchanged)


def _in_pieces(conversations: Iterator[Conversation], rewrite: RewriteFunction) -> Iterator[Rewrite]:
    """All rewrites in order; a long conversation's histories, one for each turn, are never there all at once."""
    while piece := list(islice(conversations, _PIECE_TURNS)):
        yield from rewrite(piece)


def _read(number: int, line: bytes) -> _Utterance | _WholeConversation | dict[str, Any]:
    """Returns the record, or for one that cannot be read what goes into the output in its place."""
    try:
        record = json.loads(line)
    except ValueError as error:
        return {"error": f"line {number}: expected JSON, {error}", "line": line.decode("utf-8", "replace").rstrip()}
    if not isinstance(record, dict):
        return {"error": f"line {number}: expected an object, found {type(record).__name__}", "line": record}
    try:
        return (_WholeConversation if "turns" in record else _Utterance).model_validate(record)
    except ValidationError as error:
        return {**record, "error": f"line {number}: {first_fault(error)}"}


def _fields(rewrite: Rewrite) -> dict[str, Any]:
    return {"rewrite": rewrite.text, "confidence": round(rewrite.confidence, 4)}


def _add(a: BatchCounts, b: BatchCounts) -> BatchCounts:
    return BatchCounts(a.records + b.records, a.errors + b.errors, a.turns + b.turns, a.unchanged + b.unchanged)
