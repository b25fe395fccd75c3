"""Files of conversations with references: text columns, or JSON Lines with several references and a kind."""

import codecs
import gzip
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from rewriter.config import first_fault
from rewriter.conversation import Conversation, Example
from rewriter.tokenizer import normalize

_HEADER = ("utterance", "reference")
# What a rewrite restores; and why an utterance needs nothing.
RESTORING_KINDS = ("omission", "pronoun", "place_time", "several")
NOTHING_TO_DO_KINDS = ("complete", "topic_change", "greeting", "short_answer")
KINDS = RESTORING_KINDS + NOTHING_TO_DO_KINDS

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Record(BaseModel):
    """A line of a .jsonl corpus."""

    model_config = ConfigDict(extra="ignore", strict=True)

    history: tuple[str, ...]
    utterance: _Text
    rewrite: tuple[_Text, ...] = Field(min_length=1)
    kind: Literal[KINDS] | None = None  # type: ignore[valid-type]


@dataclass(frozen=True)
class Corpus:
    """The examples of a file with their line numbers (from 1), and a message for every line that holds none."""

    path: Path
    examples: tuple[Example, ...]
    line_numbers: tuple[int, ...]
    errors: tuple[str, ...]


def read_corpus(path: Path) -> Corpus:
    """Reads history turns (any number, oldest first), utterance and reference of each line.

    Columns are separated by one or more tabs. A first line that names its columns (``history… utterance reference``)
    is a header. A file named .jsonl has records instead: ``{"history": [text, …], "utterance": text,
    "rewrite": [text, …], "kind": text}``, the best rewrite first, the kind optional and one of KINDS. Lines that cannot
    be read are reported in ``errors`` as ``path:line: expected …, found …``.
    """
    read_line = _record if path.suffix == ".jsonl" else _row
    examples, numbers, errors = [], [], []
    for number, raw in enumerate(path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n"), start=1):
        try:
            example = read_line(raw)
        except ValueError as error:
            errors.append(f"{path}:{number}: {error}")
            continue
        is_header = number == 1 and example and (example.conversation.utterance, example.reference) == _HEADER
        if example and not is_header:
            examples.append(example)
            numbers.append(number)
    return Corpus(path, tuple(examples), tuple(numbers), tuple(errors))


def write_corpus(examples: Iterable[Example], path: Path) -> None:
    """Writes the records that ``read_corpus`` reads; utterance and rewrites without white space around them."""
    records = (
        _Record(
            history=example.conversation.history,
            utterance=example.conversation.utterance,
            rewrite=example.references,
            kind=example.kind or None,
        )
        for example in examples
    )
    lines = [json.dumps(record.model_dump(exclude_none=True), ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


def _row(raw: bytes) -> Example | None:
    """Reads a line of columns; None for a blank line."""
    columns = _columns(raw)
    return Example(Conversation(tuple(columns[:-2]), columns[-2]), columns[-1]) if columns else None


def _record(raw: bytes) -> Example | None:
    """Reads a JSON record; None for a blank line, ValueError for anything else."""
    if not raw.strip():
        return None
    try:
        record = _Record.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError(f"expected a record of history, utterance and rewrite; {first_fault(error)}") from None
    conversation = Conversation(record.history, record.utterance)
    return Example(conversation, record.rewrite[0], record.rewrite[1:], record.kind or "")


def _columns(raw: bytes) -> list[str]:
    """Returns two or more columns, the last two not empty, or none of a blank line; raises ValueError."""
    try:
        line = raw.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8, found byte 0x{raw[error.start]:02x} at byte {error.start}") from None
    columns = [column.strip() for column in re.split(r"\t+", line.strip("\t"))]
    if not any(columns):
        return []
    if len(columns) < 2 or not columns[-1] or not columns[-2]:
        found = "1 column" if len(columns) < 2 else f"an empty {'utterance' if columns[-1] else 'reference'}"
        raise ValueError(f"expected history turns, utterance and reference, found {found}")
    return columns


def normalized(conversation: Conversation) -> Conversation:
    """The conversation as it is compared with others: not how it was typed."""
    return Conversation(tuple(map(normalize, conversation.history)), normalize(conversation.utterance))


def untouched(examples: Iterable[Example]) -> list[Example]:
    """Negatives: each reference as an utterance that needs nothing, with itself as the reference."""
    return [Example(Conversation(e.conversation.history, e.reference), e.reference) for e in examples]


def topic_changes(examples: Sequence[Example], seed: int) -> list[Example]:
    """Negatives of another kind: after each history, the first turn of another conversation, which needs nothing."""
    openings = [e.conversation.history[0] for e in examples if e.conversation.history and e.conversation.history[0]]
    random.Random(seed).shuffle(openings)
    return [
        Example(Conversation(example.conversation.history, opening), opening)
        for example, opening in zip(examples, openings, strict=False)
        if opening not in example.conversation.history
    ]


def read_dialogues(path: Path) -> Iterator[list[str]]:
    """Yields the turns of each conversation of a JSON Lines file, ``{"turns": [str, …]}`` a line, gzipped or not.

    Raises ValueError naming path and line at the first line that is something else; blank lines are skipped.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if not raw.strip():
                continue
            turns = _turns(raw)
            if turns is None:
                found = raw[:40].decode(errors="replace")
                raise ValueError(f'{path}:{number}: expected {{"turns": [text, …]}}, found {found!r}')
            yield turns


def read_conversations(path: Path) -> Iterator[Sequence[str]]:
    """Yields the turns of each conversation of a file of dialogues or, of columns in a file named .txt, each history.

    Raises ValueError naming path and line at the first line that is neither; histories come without white space around.
    """
    if path.suffix != ".txt":
        yield from read_dialogues(path)
        return
    corpus = read_corpus(path)
    if corpus.errors:
        raise ValueError(corpus.errors[0])
    yield from (example.conversation.history for example in corpus.examples)


def _turns(raw: bytes) -> list[str] | None:
    try:
        record = json.loads(raw.decode("utf-8-sig"))
    except ValueError:  # neither UTF-8 nor JSON
        return None
    turns = record.get("turns") if isinstance(record, dict) else None
    return turns if isinstance(turns, list) and all(isinstance(turn, str) for turn in turns) else None
