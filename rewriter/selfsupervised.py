"""Training examples from conversations that nobody annotated.

After RaST (Hao et al. 2021, "Robust dialogue utterance rewriting as sequence tagging", section 4): find a phrase that a
turn shares with the turns before it, leave it out or put a pronoun in its place, and learn to restore it.
"""

import random
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile

from rewriter.conversation import Conversation, Example
from rewriter.tokenizer import Token, Tokenizer

_CLAUSE_END = re.compile(r"[。！？!?；;…，,、\n：:~]+")
_PUNCTUATION = re.compile(r"[^\w\s]+|_")
_THINGS = ("它", "这", "那", "这个", "那个", "它", "这个", "这")
_PEOPLE = ("他", "她", "他", "这个人")
_PLACES = ("那里", "那", "这里", "那边")
_MIN_CHARACTERS, _MAX_CHARACTERS = 2, 24
# How many turns come before: mostly two, as in short chats, but up to eight.
_HISTORY_LENGTHS, _HISTORY_WEIGHTS = range(1, 9), (10, 60, 12, 6, 4, 3, 3, 2)
# How often a second phrase is left out.
_SECOND_GAP = 0.15
_EXCERPT_CLAUSES = (2, 5)
# Neighbouring excerpts of one conversation teach nearly the same.
_TURNS_PER_EXCERPT = 3


class ExampleMaker:
    """Makes examples from conversations; the same seed makes the same examples."""

    def __init__(self, tokenizer: Tokenizer, seed: int, pronoun_share: float = 0.35, untouched_share: float = 0.3):
        self._tokenizer = tokenizer
        self._random = random.Random(seed)
        self._pronoun_share = pronoun_share
        self._untouched_share = untouched_share

    def from_dialogue(self, turns: Sequence[str], most: int) -> Iterator[Example]:
        """Yields up to ``most`` examples of short turns without punctuation, as people type them."""
        clauses = [_clauses(turn) for turn in turns]
        later = [(index, clause) for index, group in enumerate(clauses[1:], 1) for clause in group]
        self._random.shuffle(later)
        made = 0
        for index, reference in later:
            if made == most:
                return
            history = self._history(clauses[:index], reference)
            example = self.corrupt(history, reference)
            if example is None:
                continue
            made += 1
            if self._random.random() < self._untouched_share:
                example = Example(Conversation(history, reference), reference)
            yield example

    def excerpts(self, turns: Sequence[str]) -> list[Example]:
        """Stretches of two to five neighbouring clauses with nothing taken out, one for every three turns at most."""
        clauses = [clause for turn in turns for clause in _clauses(turn)]
        stretches = []
        start = 0
        while start + 1 < len(clauses):
            end = start + self._random.randint(*_EXCERPT_CLAUSES)
            stretches.append(clauses[start:end])
            start = end
        chosen = self._random.sample(stretches, min(len(stretches), 1 + len(turns) // _TURNS_PER_EXCERPT))
        return [Example(Conversation(tuple(stretch[:-1]), stretch[-1]), stretch[-1]) for stretch in chosen]

    def corrupt(self, history: Sequence[str], reference: str) -> Example | None:
        """Takes a phrase, at times two, out of ``reference`` that the history can give back; None if it has none."""
        said = [[token.surface for token in self._tokenizer.tokenize(turn)] for turn in history]
        utterance = self._leave_out(reference, said)
        if utterance is None:
            return None
        if self._random.random() < _SECOND_GAP:
            utterance = self._leave_out(utterance, said) or utterance
        return Example(Conversation(tuple(history), utterance), reference)

    def _leave_out(self, reference: str, said: Sequence[Sequence[str]]) -> str | None:
        tokens = self._tokenizer.tokenize(reference)
        phrases = [p for p in _shared_phrases(tokens, said) if p[1] - p[0] < len(tokens)]
        if not phrases:
            return None
        # Longer phrases are rarer and teach more.
        weights = [(end - start) ** 1.5 for start, end in phrases]
        start, end = self._random.choices(phrases, weights)[0]
        gap = self._pronoun(tokens[start:end])
        return " ".join((reference[: tokens[start].start] + gap + reference[tokens[end - 1].end :]).split())

    def _history(self, clauses: Sequence[Sequence[str]], reference: str) -> tuple[str, ...]:
        """Picks consecutive earlier turns, each cut to a clause, one that shares a word with it if any does."""
        length = self._random.choices(_HISTORY_LENGTHS, _HISTORY_WEIGHTS)[0]
        words = {t.surface for t in self._tokenizer.tokenize(reference) if is_content_word(t.surface)}
        recent = [group for group in clauses if group][-length:]
        history = []
        for group in recent:
            sharing = [clause for clause in group if any(word in clause for word in words)]
            history.append(self._random.choice(sharing or list(group)))
        return tuple(history)

    def _pronoun(self, phrase: Sequence[Token]) -> str:
        tag = _tags().get(phrase[-1].surface, "x")
        if tag[0] not in "nxje" or self._random.random() > self._pronoun_share:
            return ""
        if tag == "nr":
            return self._random.choice(_PEOPLE)
        return self._random.choice(_PLACES if tag in ("ns", "s") else _THINGS)


def is_content_word(word: str) -> bool:
    """True for words worth leaving out: nouns, verbs, adjectives, names, numbers, times, unknown words."""
    if word.isascii() and word.isalnum():
        return True
    tag = part_of_speech(word)
    return tag[0] == "n" or len(word) > 1 and tag[0] in "vaijltszbgm"


def part_of_speech(word: str) -> str:
    """jieba's tag: n… for nouns (nr people, ns places), v, a, …; a word it does not know is a noun, a mark is x."""
    return _tags().get(word, "n" if len(word) > 1 and any(map(str.isalnum, word)) else "x")


def _clauses(turn: str) -> list[str]:
    """Cuts a turn at its punctuation and joins neighbouring clauses while they stay short."""
    clauses: list[str] = []
    for piece in _CLAUSE_END.split(turn):
        text = " ".join(_PUNCTUATION.sub("", piece).split())
        if clauses and len(clauses[-1]) + len(text) < 12:
            clauses[-1] += text
        elif text:
            clauses.append(text)
    return [clause for clause in clauses if _MIN_CHARACTERS <= len(clause) <= _MAX_CHARACTERS]


def _shared_phrases(tokens: Sequence[Token], said: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Ranges of tokens that stand in one turn of the history in the same order and hold a content word."""
    phrases: list[tuple[int, int]] = []
    surfaces = [token.surface for token in tokens]
    has_content = [is_content_word(surface) for surface in surfaces]
    for start in range(len(surfaces)):
        longest = max((_shared_length(surfaces[start:], turn) for turn in said), default=0)
        ends = range(start + 1, start + longest + 1)
        phrases += [(start, end) for end in ends if any(has_content[start:end])]
    return phrases


def _shared_length(words: Sequence[str], turn: Sequence[str]) -> int:
    """How many of the words, from the first on, stand side by side in the turn."""
    places = (place for place, word in enumerate(turn) if word == words[0])
    return max((_common_length(words, turn[place:]) for place in places), default=0)


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@lru_cache(maxsize=1)
def _tags() -> dict[str, str]:
    """jieba's dictionary: word -> part of speech."""
    import jieba

    with jieba.get_dict_file() as lines:
        fields = (line.decode("utf-8").split() for line in lines)
        return {word: tag for word, _, tag in fields}
