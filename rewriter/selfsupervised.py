"""Training examples from conversations that nobody annotated: excerpts of them, and excerpts with something taken out.

What the last clause shares with those before it is left out, or a pronoun put in its place, after RaST (Hao et al.
2021, "Robust dialogue utterance rewriting as sequence tagging", section 4). Most clauses share nothing; of those a
phrase is moved to the history, beside phrases of other conversations: which of them belongs in the clause, and where,
only their meaning tells. That is our own.
"""

import random
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile

from rewriter.conversation import Conversation, Example
from rewriter.tokenizer import Token, Tokenizer

_CLAUSE_END = re.compile(r"[。！？!?；;…，,、\n：:~]+")
_PUNCTUATION = re.compile(r"[^\w\s]+|_")
_THINGS = ("它", "这", "那", "这个", "那个", "它", "这个", "这")
_PEOPLE = ("他", "她", "他", "这个人")
_PLACES = ("那里", "那", "这里", "那边")
_TIMES = ("那天", "那时候", "那个时候", "到时候")
# The last character of most words for people ("妈妈", "老师", "男朋友"), which jieba tags like things.
_PEOPLE_END_IN = tuple("人妈爸姐妹哥弟奶爷婆公叔姨友师员生长板医孩")
_MIN_CHARACTERS, _MAX_CHARACTERS = 2, 24
# How often a second phrase is left out.
_SECOND_GAP = 0.15
_EXCERPT_CLAUSES = (2, 10)
# Neighbouring excerpts of one conversation teach nearly the same.
_TURNS_PER_EXCERPT = 3
# How often a phrase is moved even where one is shared.
_MOVED = 0.4
_MOVED_WORDS, _MOVED_WORDS_WEIGHTS = (1, 2, 3, 4), (3, 2, 1, 1)
# Phrases of other conversations beside it: from so many taken out last, so many of them.
_REMEMBERED_PHRASES = 400
_OTHERS, _OTHERS_WEIGHTS = (0, 1, 2), (1, 2, 2)
# How often a moved phrase is a turn of its own, one of the last; else it stands within a turn.
_OWN_TURN = 0.5
_LAST_TURNS = 3


class ExampleMaker:
    """Makes examples from conversations; the same seed makes the same examples."""

    def __init__(self, tokenizer: Tokenizer, seed: int, pronoun_share: float = 0.5, untouched_share: float = 0.2):
        self._tokenizer = tokenizer
        self._random = random.Random(seed)
        self._pronoun_share = pronoun_share
        self._untouched_share = untouched_share
        self._moved_before: deque[str] = deque(maxlen=_REMEMBERED_PHRASES)

    def excerpts(self, turns: Sequence[str]) -> list[Example]:
        """Stretches of two to ten neighbouring clauses as they are: at most one, and one for every three turns."""
        clauses = [clause for turn in turns for clause in _clauses(turn)]
        stretches = []
        start = 0
        while start + 1 < len(clauses):
            end = start + self._random.randint(*_EXCERPT_CLAUSES)
            stretches.append(clauses[start:end])
            start = end
        chosen = self._random.sample(stretches, min(len(stretches), 1 + len(turns) // _TURNS_PER_EXCERPT))
        return [Example(Conversation(tuple(stretch[:-1]), stretch[-1]), stretch[-1]) for stretch in chosen]

    def incomplete(self, excerpts: Iterable[Example]) -> Iterator[Example]:
        """Takes something out of the last clause of each, where something can be taken out; some are left as they are.

        Those have phrases of other conversations before them too, which change nothing.
        """
        for excerpt in excerpts:
            history, reference = excerpt.conversation.history, excerpt.reference
            if self._random.random() < self._untouched_share:
                yield Example(Conversation(self._with(self._others(history, reference), history), reference), reference)
                continue
            made = None if self._random.random() < _MOVED else self.corrupt(history, reference)
            made = made or self.move(history, reference)
            if made is not None:
                yield made

    def move(self, history: Sequence[str], reference: str) -> Example | None:
        """Takes a phrase out of ``reference`` and puts it into the history; None if there is none to take."""
        tokens = self._tokenizer.tokenize(reference)
        [length] = self._random.choices(_MOVED_WORDS, _MOVED_WORDS_WEIGHTS)
        length = min(length, len(tokens) - 1)
        ranges = [tokens[start : start + length] for start in range(len(tokens) - length + 1)] if length > 0 else []
        phrases = [p for p in ranges if is_content_word(p[0].surface) and is_content_word(p[-1].surface)]
        if not history or not phrases:
            return None
        taken = self._random.choice(phrases)
        phrase = reference[taken[0].start : taken[-1].end]
        utterance = self._without(reference, taken)
        if not utterance or any(phrase in turn for turn in history):
            return None
        put = [phrase, *self._others(history, reference)]
        self._random.shuffle(put)
        self._moved_before.append(phrase)
        return Example(Conversation(self._with(put, history), utterance), reference)

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
        return self._without(reference, tokens[start:end])

    def _without(self, text: str, taken: Sequence[Token]) -> str:
        """The text with a pronoun, or nothing, for neighbouring tokens of it."""
        return " ".join((text[: taken[0].start] + self._pronoun(taken[-1].surface) + text[taken[-1].end :]).split())

    def _pronoun(self, word: str) -> str:
        """At times a pronoun for a phrase that ends in the word, else nothing."""
        tag = part_of_speech(word)
        if tag[0] not in "nxjest" or self._random.random() > self._pronoun_share:
            return ""
        if tag == "nr" or tag[0] == "n" and word.endswith(_PEOPLE_END_IN):
            return self._random.choice(_PEOPLE)
        if tag == "t":
            return self._random.choice(_TIMES)
        return self._random.choice(_PLACES if tag in ("ns", "s") else _THINGS)

    def _others(self, history: Sequence[str], reference: str) -> list[str]:
        """Phrases that were moved before and stand nowhere here."""
        [count] = self._random.choices(_OTHERS, _OTHERS_WEIGHTS)
        drawn = self._random.sample(self._moved_before, min(count, len(self._moved_before)))
        return [phrase for phrase in drawn if not any(phrase in text for text in (*history, reference))]

    def _with(self, phrases: Sequence[str], history: Sequence[str]) -> tuple[str, ...]:
        """The history with the phrases among its turns, or within them between two words."""
        turns = list(history)
        for phrase in phrases:
            if self._random.random() < _OWN_TURN:
                turns.insert(self._random.randint(max(0, len(turns) - _LAST_TURNS), len(turns)), phrase)
                continue
            place = self._random.randrange(len(turns))
            turn = turns[place]
            cuts = [token.start for token in self._tokenizer.tokenize(turn)]
            cut = self._random.choice([*cuts, len(turn)])
            turns[place] = turn[:cut] + phrase + turn[cut:]
        return tuple(turns)


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
