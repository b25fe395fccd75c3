"""Conversation to arrays and back: the only preprocessing, shared by training, evaluation, batch and the service.

A source is laid out as [function-word bank | history turns, oldest first, each with EOT | utterance, EOS]. All arrays
index the same positions, so "copy position i" means the same thing to the data, the model and the text.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rewriter.alignment import place, tile
from rewriter.brackets import complete_brackets
from rewriter.calibration import calibrated
from rewriter.config import FeaturesConfig
from rewriter.conversation import Conversation, Origin, Rewrite, Span
from rewriter.names import join_names
from rewriter.tokenizer import Granularity, Token, Tokenizer, normalize
from rewriter.trust import why_withheld
from rewriter.vocabulary import EOS, EOT, PAD, Vocabulary

# Turn ids: 0 is padding, 1 the utterance, 2 the turn before it, and so on back; the bank comes after the oldest turn.
PADDING_TURN = 0
UTTERANCE_TURN = 1

ARRAY_NAMES = ("word_ids", "character_ids", "turn_ids", "copy_ids")


class UtteranceTooLongError(ValueError):
    """The utterance has more tokens than the model reads; it is never cut."""


@dataclass(frozen=True)
class Source:
    """A conversation as arrays. S source positions, C characters per token.

    ``places[i]`` says where position i stands in the conversation: (index of the turn, token); None for the bank and
    for the ends of turns. ``surfaces[i]`` is the word that copying position i writes; None where nothing is written.
    """

    conversation: Conversation
    word_ids: np.ndarray  # (S,) int32
    character_ids: np.ndarray  # (S, C) int32
    turn_ids: np.ndarray  # (S,) int32
    copy_ids: np.ndarray  # (S,) int32, the first position with the same word
    places: tuple[tuple[int, Token] | None, ...]
    surfaces: tuple[str | None, ...]
    truncated: bool  # some of the history did not fit and was left out

    def __len__(self) -> int:
        return len(self.word_ids)

    @property
    def end(self) -> int:
        """The position of EOS, the last one: copying it ends the rewrite."""
        return len(self) - 1

    @property
    def nothing_to_do(self) -> bool:
        """True if nothing was said before or nothing is said now: the utterance stands as it is, no model needed."""
        return not (self.turn_ids.max() > UTTERANCE_TURN and self.utterance_positions)

    @property
    def utterance_positions(self) -> list[int]:
        positions: list[int] = np.flatnonzero(self.turn_ids == UTTERANCE_TURN).tolist()
        return positions[:-1]  # without the end


class Features:
    """Turns conversations into sources and source positions into text."""

    def __init__(self, config: FeaturesConfig, vocabulary: Vocabulary) -> None:
        self.config = config
        self.vocabulary = vocabulary
        self.tokenizer = Tokenizer(config.granularity)
        self._bank = tuple(config.function_words)

    def encode(self, conversation: Conversation) -> Source:
        """Raises UtteranceTooLongError; a history that is too long loses its oldest tokens instead."""
        utterance = self.tokenizer.tokenize(conversation.utterance)
        if len(utterance) > self.config.max_utterance_tokens:
            raise UtteranceTooLongError(
                f"expected an utterance of at most {self.config.max_utterance_tokens} tokens, found {len(utterance)}"
            )
        history, truncated = self._fitting_history(conversation.history, len(utterance) + 1)
        if self.config.granularity is Granularity.NAMES:
            *said, utterance = join_names([*(tokens for _, tokens in history), utterance])
            history = [(index, tokens) for (index, _), tokens in zip(history, said, strict=True)]
        return self._source(conversation, history, utterance, truncated)

    def _fitting_history(self, history: Sequence[str], room_taken: int) -> tuple[list[tuple[int, list[Token]]], bool]:
        """Returns (turn index, tokens) of the turns that are read, oldest first, and whether something was left out."""
        kept: list[tuple[int, list[Token]]] = []
        room = self.config.max_source_tokens - room_taken
        for index in range(len(history) - 1, -1, -1):
            if len(kept) == self.config.max_history_turns or room < 2:
                return kept[::-1], any(map(normalize, history[: index + 1]))
            tokens = self.tokenizer.tokenize(history[index])
            if not tokens:
                continue
            if len(tokens) + 1 > room:
                kept.append((index, tokens[-(room - 1) :]))
                return kept[::-1], True
            kept.append((index, tokens))
            room -= len(tokens) + 1
        return kept[::-1], False

    def _source(
        self,
        conversation: Conversation,
        history: list[tuple[int, list[Token]]],
        utterance: list[Token],
        truncated: bool,
    ) -> Source:
        bank_turn = self.config.max_turn_id if history else PADDING_TURN
        rows: list[tuple[int, str | None, int, tuple[int, Token] | None]] = [
            (self.vocabulary.word_id(word), word, bank_turn, None) for word in self._bank
        ]
        for back, (index, tokens) in zip(range(len(history) + 1, 1, -1), history, strict=True):
            rows += [(self.vocabulary.word_id(t.surface), t.surface, back, (index, t)) for t in tokens]
            rows.append((EOT, None, back, None))
        turn = len(conversation.history)
        rows += [(self.vocabulary.word_id(t.surface), t.surface, UTTERANCE_TURN, (turn, t)) for t in utterance]
        rows.append((EOS, None, UTTERANCE_TURN, None))
        word_ids, surfaces, turn_ids, places = zip(*rows, strict=True)
        length = self.config.characters_per_token
        characters = [self.vocabulary.character_ids(surface or "", length) for surface in surfaces]
        return Source(
            conversation=conversation,
            word_ids=np.array(word_ids, np.int32),
            character_ids=np.array(characters, np.int32),
            turn_ids=np.array(turn_ids, np.int32),
            copy_ids=_copy_ids(surfaces),
            places=places,
            surfaces=surfaces,
            truncated=truncated,
        )

    def target(self, source: Source, reference: str) -> list[int] | None:
        """Returns the source positions that spell the reference, EOS last; None if its words are not in the source."""
        readable = [s if t != PADDING_TURN else None for s, t in zip(source.surfaces, source.turn_ids, strict=True)]
        tiles = tile(normalize(reference).replace(" ", ""), readable)
        if tiles is None:
            return None
        tokens = [int(source.copy_ids[position]) for position in tiles] + [source.end]
        return place(source.copy_ids, source.turn_ids == UTTERANCE_TURN, tokens)

    def restore(self, source: Source, positions: Iterable[int]) -> tuple[str, tuple[Span, ...]]:
        """Writes the rewrite that copies ``positions`` (EOS excluded), with the user's own characters, and its spans.

        Words that stood side by side are copied with whatever stood between them, and titles whole (``brackets``); the
        whole utterance comes back to the letter. Where two pieces would run two Latin words or numbers together, a
        space is put between them.
        """
        copied = list(positions)
        if copied == source.utterance_positions:
            untouched = Rewrite.unchanged(source.conversation, confidence=1.0)
            return untouched.text, untouched.spans
        text, last = "", -1
        spans: list[Span] = []
        for run in complete_brackets(_runs(copied, source), source.surfaces):
            piece, origin, turn, start, end = self._piece(source, run)
            if spans and _run_together(source.surfaces[last] or "", source.surfaces[run[0]] or ""):
                text += " "
            spans.append(Span(len(text), len(text) + len(piece), origin, turn, start, end))
            text += piece
            last = run[-1]
        return text, tuple(spans)

    def rewrite(
        self, source: Source, positions: Sequence[int], log_prob: float, history_gates: Sequence[float] = ()
    ) -> Rewrite:
        """Reads one answer of the model: copied positions (-1 after the end) and the log-probability of them all.

        Raises ValueError if the answer cannot be one of ours: positions where nothing can be copied, not a number.
        """
        copied = [int(position) for position in positions]
        while copied and copied[-1] == -1:
            copied.pop()
        if not copied:
            raise ValueError("expected at least one copied position, found none")
        for position in copied:
            if not 0 <= position < len(source) or source.surfaces[position] is None:
                raise ValueError(f"expected positions of words among {len(source)}, found {position}")
        if not log_prob <= 1e-3:
            raise ValueError(f"expected a log-probability, found {log_prob}")
        text, spans = self.restore(source, copied)
        gates = tuple(float(gate) for gate in history_gates[: len(copied)])
        confidence = calibrated(math.exp(min(0.0, log_prob)), self.config.calibration)
        return Rewrite(text, spans, confidence, gates)

    def trusted(self, source: Source, rewrite: Rewrite) -> Rewrite:
        """The rewrite, or the utterance as it is where the rewrite is withheld (see ``trust``)."""
        if not why_withheld(source.conversation, rewrite, self.config.calibration):
            return rewrite
        # What remains, at most, of being right by doing nothing.
        return Rewrite.unchanged(source.conversation, 1 - rewrite.confidence)

    def _piece(self, source: Source, run: list[int]) -> tuple[str, Origin, int, int, int]:
        first, last = source.places[run[0]], source.places[run[-1]]
        if first is None or last is None:
            return self._bank[run[0]], Origin.FUNCTION_WORD, -1, 0, 0
        turn, start, end = first[0], first[1].start, last[1].end
        turns = (*source.conversation.history, source.conversation.utterance)
        origin = Origin.HISTORY if turn < len(source.conversation.history) else Origin.UTTERANCE
        return turns[turn][start:end], origin, turn, start, end


def collate(sources: Sequence[Source], length: int | None = None) -> dict[str, np.ndarray]:
    """Pads sources to ``length`` (the longest one's by default): int32 arrays (B, S), character_ids (B, S, C)."""
    return {name: pad([getattr(source, name) for source in sources], length) for name in ARRAY_NAMES}


def pad(rows: Sequence[np.ndarray], length: int | None = None, value: int = PAD) -> np.ndarray:
    """Stacks arrays that differ in their first dimension; raises ValueError if one is longer than ``length``."""
    longest = max(len(row) for row in rows)
    length = longest if length is None else length
    if longest > length:
        raise ValueError(f"expected at most {length} positions, found {longest}")
    padded = np.full((len(rows), length, *rows[0].shape[1:]), value, np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def round_up(length: int, step: int) -> int:
    """The next multiple of ``step``: padded lengths are few, so that few shapes are compiled."""
    return -(-length // step) * step


def _copy_ids(surfaces: Sequence[str | None]) -> np.ndarray:
    first: dict[str, int] = {}
    return np.array(
        [i if surface is None else first.setdefault(surface, i) for i, surface in enumerate(surfaces)], np.int32
    )


def _runs(positions: Sequence[int], source: Source) -> list[list[int]]:
    """Groups positions that follow each other in one turn. Bank words never form a run: nobody said them in a row."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][-1] + 1 and source.places[position] and source.places[position - 1]:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs


def _run_together(before: str, after: str) -> bool:
    """True if two words would read as one: there are Latin letters or digits on both sides of the seam."""
    return all(character.isalnum() and ord(character) < 0x250 for character in before[-1:] + after[:1])
