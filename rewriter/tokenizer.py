"""Text to tokens. A token knows the characters it was made of, so that text is restored from the user's own words."""

import logging
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

_CHINESE_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]+")
# Marks without width or meaning of their own: they stay in the text but never make a token or tell two tokens apart.
_INVISIBLE_CATEGORIES = ("Cf", "Mn", "Me")
# Not "Cn", which new emoji are to an older Python, and not "Co", which those of chat apps are: they mean something.
_BLANK_CATEGORIES = ("Cc", "Cs")


class Granularity(Enum):
    """What a token is: jieba's words, its dictionary's words alone (none guessed by its HMM), these and the names that
    a conversation repeats (see ``names``), or characters.

    Guessed words swallow what stands beside them, so that one word is cut differently from turn to turn: without them
    half as many references have words that cannot be copied. In CHARACTER mode, words that are not Chinese stay whole.
    """

    WORD = "word"
    DICTIONARY = "dictionary"
    NAMES = "names"
    CHARACTER = "character"


@dataclass(frozen=True)
class Token:
    """``surface`` is the normalized word; ``start`` and ``end`` are code point offsets into the turn as typed."""

    surface: str
    start: int
    end: int


def normalize(text: str) -> str:
    """Returns the form in which words are compared: NFKC, lower case, no invisible marks, white space collapsed."""
    return " ".join("".join(_normalize_character(character) for character in text).split())


@lru_cache(maxsize=65536)
def _normalize_character(character: str) -> str:
    category = unicodedata.category(character)
    if category in _INVISIBLE_CATEGORIES:
        return ""
    if category in _BLANK_CATEGORIES:
        return " "
    folded = unicodedata.normalize("NFKC", character).lower()
    # Lower-casing can bring forth combining marks of its own, as in the Turkish dotted I.
    return "".join(c for c in folded if unicodedata.category(c) not in _INVISIBLE_CATEGORIES)


class Tokenizer:
    """Cuts turns into tokens with jieba. Loading its dictionary takes about a second; then a turn takes 0.1 ms."""

    def __init__(self, granularity: Granularity) -> None:
        self.granularity = granularity
        self._jieba = _load_jieba()

    def tokenize(self, text: str) -> list[Token]:
        """Returns the tokens of a turn in order; white space makes none, and an empty turn has none."""
        normalized, origins = _normalize_with_origins(text)
        tokens: list[Token] = []
        guess = self.granularity in (Granularity.WORD, Granularity.CHARACTER)
        for word, start, end in self._jieba.tokenize(normalized, HMM=guess):
            if word.isspace():
                continue
            for first, last in self._pieces(word, start, end):
                token = Token(normalized[first:last], origins[first], _end_of_marks(text, origins[last - 1] + 1))
                if tokens and token.start < tokens[-1].end:
                    # One character that normalizes to several words, such as ½, is one token.
                    before = tokens.pop()
                    token = Token(before.surface + token.surface, before.start, token.end)
                tokens.append(token)
        return tokens

    def _pieces(self, word: str, start: int, end: int) -> list[tuple[int, int]]:
        if self.granularity is Granularity.CHARACTER and _CHINESE_WORD.fullmatch(word):
            return [(position, position + 1) for position in range(start, end)]
        return [(start, end)]


@lru_cache(maxsize=1)
def _load_jieba() -> Any:
    import jieba

    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    tokenizer.initialize()
    return tokenizer


def _end_of_marks(text: str, end: int) -> int:
    """The end of a token that reaches to ``end``, with the marks on its last character: accents, emoji variations."""
    while end < len(text) and not _normalize_character(text[end]) and unicodedata.category(text[end]) != "Cf":
        end += 1
    return end


def _normalize_with_origins(text: str) -> tuple[str, list[int]]:
    """Returns the normalized text (white space not collapsed) and the index in ``text`` of each of its characters."""
    pieces: list[str] = []
    origins: list[int] = []
    for index, character in enumerate(text):
        normalized = _normalize_character(character)
        pieces.append(normalized)
        origins.extend([index] * len(normalized))
    return "".join(pieces), origins
