"""Text files of conversations: one a line, columns separated by tabs, the last two utterance and reference."""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rewriter.conversation import Conversation, Example


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
    is a header. Lines that cannot be read are reported in ``errors`` as ``path:line: expected …, found …``.
    """
    examples, numbers, errors = [], [], []
    for number, raw in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            errors.append(f"{path}:{number}: expected UTF-8, found byte 0x{raw[error.start]:02x} at {error.start}")
            continue
        columns = [column.strip() for column in re.split(r"\t+", line.strip("\t"))]
        if number == 1 and columns[-2:] == ["utterance", "reference"]:
            continue
        if len(columns) < 2 or not columns[-1] or not columns[-2]:
            found = sum(map(bool, columns))
            errors.append(f"{path}:{number}: expected history turns, utterance and reference, found {found} column(s)")
            continue
        examples.append(Example(Conversation(tuple(columns[:-2]), columns[-2]), columns[-1]))
        numbers.append(number)
    return Corpus(path, tuple(examples), tuple(numbers), tuple(errors))


def untouched(examples: Iterable[Example]) -> list[Example]:
    """Negatives: each reference as an utterance that needs nothing, with itself as the reference."""
    return [Example(Conversation(e.conversation.history, e.reference), e.reference) for e in examples]


def read_dialogues(path: Path) -> Iterator[list[str]]:
    """Yields the turns of each conversation of a JSON Lines file, ``{"turns": [str, …]}`` a line, gzipped or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            turns = json.loads(line).get("turns")
            if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
                raise ValueError(f'{path}:{number}: expected {{"turns": [text, …]}}, found {line[:40]!r}')
            yield turns
