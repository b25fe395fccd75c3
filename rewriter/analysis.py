"""An evaluation broken down: what is restored rightly, and where the rest goes wrong.

Every function takes the results of the lines and returns a section: a table of groups (rows) and figures (columns). A
share lies between 0 and 1, and is None where there is nothing to take it of. Groups without lines are left out of the
sections whose groups come from the data. ``em`` counts any of a line's references; all else looks at the best one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rewriter.alignment import tile
from rewriter.conversation import Conversation
from rewriter.corpus import KINDS, NOTHING_TO_DO_KINDS, RESTORING_KINDS
from rewriter.features import Features, UtteranceTooLongError
from rewriter.metrics import metric_tokens
from rewriter.restorations import resolved_pronouns, restored_pieces, restored_texts
from rewriter.results import LineResult
from rewriter.tokenizer import normalize
from rewriter.vocabulary import UNK
from rewriter.word_kinds import OTHER, WORD_KINDS, words_with_kinds

Section = dict[str, dict[str, float | None]]
Results = Sequence[LineResult]

NOT_SAID = "not said"
_LENGTHS = (1, 5, 9, 13, 21)
_TURNS = (0, 1, 2, 3, 4, 5, 9)
_DISTANCES = (1, 2, 3, 4, 5)


def analyse(results: Results, features: Features) -> dict[str, Section]:
    """The whole break-down, a section a question."""
    return {
        "classes": coreference_and_omission(results),
        "utterance_length": em_by_utterance_length(results),
        "history_turns": em_by_history_turns(results),
        "distance": em_by_distance(results),
        "word_kinds": recall_by_word_kind(results),
        "training_words": by_training_words(results, features),
    }


def by_kind(results: Results) -> dict[str, Any]:
    """For a corpus that says what its lines are about (see ``corpus.KINDS``); empty for any other.

    ``kinds``: em of each kind. ``em_restoring``: em of the RESTORING_KINDS together. ``untouched``: share of the lines
    of NOTHING_TO_DO_KINDS that come back as they are.
    """
    restoring = [result.exact for result in results if result.kind in RESTORING_KINDS]
    untouched = [result.untouched for result in results if result.kind in NOTHING_TO_DO_KINDS]
    found: dict[str, Any] = {}
    if restoring:
        found["em_restoring"] = share(restoring)
    if untouched:
        found["untouched"] = share(untouched)
    groups = {kind: [result for result in results if result.kind == kind] for kind in KINDS}
    kinds = {kind: _em(group) for kind, group in groups.items() if group}
    return found | ({"kinds": kinds} if kinds else {})


def coreference_and_omission(results: Results) -> Section:
    """Su et al. 2019: resolved pronouns and restored pieces, each with precision, recall and F1 over all lines.

    A line is a coreference line if its reference replaces a pronoun of the utterance, an omission line if it puts words
    in anywhere else; ``both`` are lines of both, counted in each. Right is the reference's text in the reference's
    place. What a rewrite puts in on a line of another class counts against its precision.
    """
    by_class: dict[str, list[LineResult]] = {"coreference": [], "omission": [], "both": [], "neither": []}
    for result in results:
        for name in line_classes(result):
            by_class[name].append(result)
    section = {name: _em(group) for name, group in by_class.items()}
    for name, found_in in (("coreference", resolved_pronouns), ("omission", restored_pieces)):
        section[name] |= _precision_and_recall(
            (found_in(result.utterance, result.rewrite), found_in(result.utterance, result.reference))
            for result in results
        )
    return section


def line_classes(result: LineResult) -> tuple[str, ...]:
    """The classes of a line by its reference: coreference, omission, or the two of them and both; or neither."""
    coreference = bool(resolved_pronouns(result.utterance, result.reference))
    omission = bool(restored_pieces(result.utterance, result.reference))
    if coreference and omission:
        return ("coreference", "omission", "both")
    return ("coreference",) if coreference else ("omission",) if omission else ("neither",)


def em_by_utterance_length(results: Results) -> Section:
    """Length in metric tokens: characters, Latin words and numbers."""
    return _em_by_number(results, lambda result: len(metric_tokens(result.utterance)), _LENGTHS)


def em_by_history_turns(results: Results) -> Section:
    return _em_by_number(results, lambda result: len(result.history), _TURNS)


def em_by_distance(results: Results) -> Section:
    """By how many turns back the restored words lie (1: the turn just before); lines that restore nothing left out."""
    restoring = [result for result in results if restored_texts(result.utterance, result.reference)]
    distances = {id(result): distance(result) for result in restoring}
    said = [result for result in restoring if distances[id(result)] is not None]
    not_said = [result for result in restoring if distances[id(result)] is None]
    section = _em_by_number(said, lambda result: distances[id(result)] or 0, _DISTANCES)
    return section | ({NOT_SAID: _em(not_said)} if not_said else {})


def distance(result: LineResult) -> int | None:
    """How many turns back one must read to have seen every restored word; None if no turn holds any.

    Of the turns that hold a word the latest counts. Words of the kind OTHER, such as 的, count only where the reference
    restores no others; words that no turn holds do not count.
    """
    texts = restored_texts(result.utterance, result.reference)
    tagged = [pair for text in texts for pair in words_with_kinds(text)]
    words = [word for word, kind in tagged if kind != OTHER] or [word for word, _ in tagged]
    turns = [normalize(turn).replace(" ", "") for turn in reversed(result.history)]
    found = [next((back for back, turn in enumerate(turns, start=1) if word in turn), None) for word in words]
    return max((back for back in found if back is not None), default=None)


def recall_by_word_kind(results: Results) -> Section:
    """Share of the words put in by the references that the rewrites put in too, anywhere in the line."""
    hits: dict[str, list[bool]] = {kind: [] for kind in WORD_KINDS}
    for result in results:
        for text in restored_texts(result.utterance, result.reference):
            for word, kind in words_with_kinds(text):
                hits[kind].append(is_restored(word, result))
    return {kind: {"words": len(found), "recall": share(found)} for kind, found in hits.items() if found}


def by_training_words(results: Results, features: Features) -> Section:
    """Lines that restore a word which is not on the model's word list, that is, seen too rarely in training or never.

    ``unseen``: lines with such a word, and the recall of such words; ``seen``: the other lines that restore something,
    and the recall of all their words. Words as the model reads them in this conversation, where they stand there.
    """
    lines: dict[str, list[LineResult]] = {"unseen": [], "seen": []}
    hits: dict[str, list[bool]] = {"unseen": [], "seen": []}
    for result in results:
        words = _model_words(result, features)
        unseen = [word for word in words if features.vocabulary.word_id(word) == UNK]
        if words:
            name = "unseen" if unseen else "seen"
            lines[name].append(result)
            hits[name] += [is_restored(word, result) for word in unseen or words]
    return {name: _em(group) | {"words": len(hits[name]), "recall": share(hits[name])} for name, group in lines.items()}


def is_restored(word: str, result: LineResult) -> bool:
    """True if something that the rewrite puts in holds the word."""
    return any(word in text for text in restored_texts(result.utterance, result.rewrite))


def share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _model_words(result: LineResult, features: Features) -> list[str]:
    said = _surfaces(result, features)
    texts = restored_texts(result.utterance, result.reference)
    return [word for text in texts for word in _cut(text, said, features) if any(map(str.isalnum, word))]


def _surfaces(result: LineResult, features: Features) -> tuple[str | None, ...]:
    """The words of the conversation, among them the names that it repeats; none where the utterance is too long."""
    try:
        return features.encode(Conversation(result.history, result.utterance)).surfaces
    except UtteranceTooLongError:
        return ()


def _cut(text: str, said: Sequence[str | None], features: Features) -> list[str]:
    """The words of the conversation that spell the text, else those of the tokenizer."""
    tiles = tile(normalize(text).replace(" ", ""), said)
    if tiles is None:
        return [token.surface for token in features.tokenizer.tokenize(text)]
    return [said[position] or "" for position in tiles]


def _em(group: Results) -> dict[str, float | None]:
    return {"lines": len(group), "em": share([result.exact for result in group])}


def _em_by_number(results: Results, number: Callable[[LineResult], int], starts: Sequence[int]) -> Section:
    """em of the lines whose number lies from one start to the next, in this order."""
    groups: dict[str, list[LineResult]] = {}
    for value, result in sorted(((number(result), result) for result in results), key=lambda pair: pair[0]):
        groups.setdefault(range_name(value, starts), []).append(result)
    return {name: _em(group) for name, group in groups.items()}


def range_name(value: int, starts: Sequence[int]) -> str:
    """The range that holds a number, such as "5-8", "3" or "21+"; ``starts`` are the first numbers of the ranges."""
    index = max((i for i, start in enumerate(starts) if start <= value), default=0)
    first = starts[index]
    if index + 1 == len(starts):
        return f"{first}+"
    last = starts[index + 1] - 1
    return f"{first}-{last}" if first < last else str(first)


def _precision_and_recall(pairs: Iterable[tuple[frozenset[Any], frozenset[Any]]]) -> dict[str, float | None]:
    """Over pairs of (found, wanted), with the counts summed before they are divided."""
    common = found = wanted = 0
    for found_here, wanted_here in pairs:
        common += len(found_here & wanted_here)
        found += len(found_here)
        wanted += len(wanted_here)
    return {
        "precision": common / found if found else None,
        "recall": common / wanted if wanted else None,
        "f1": 2 * common / (found + wanted) if found + wanted else None,
    }


def table(sections: Mapping[str, Section]) -> str:
    """The sections as text, one below the other, each with a row of column names."""
    lines = []
    for title, section in sections.items():
        columns = list(dict.fromkeys(column for row in section.values() for column in row))
        lines.append(f"{title:<18}" + "".join(f"{column:>11}" for column in columns))
        for name, row in section.items():
            lines.append(f"  {name:<16}" + "".join(f"{_cell(row, column):>11}" for column in columns))
    return "\n".join(line.rstrip() for line in lines)


def _cell(row: Mapping[str, float | None], column: str) -> str:
    if column not in row:
        return ""
    value = row[column]
    return "–" if value is None else str(value) if isinstance(value, int) else f"{value:.4f}"
