"""Two word lists: the frequent words, each with an embedding of its own, and the characters all words are made of."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PAD, UNK, BOS, EOS, EOT = range(5)
SPECIAL_WORDS = ("<pad>", "<unk>", "<bos>", "<eos>", "<eot>")
SPECIAL_CHARACTERS = ("<pad>", "<unk>")
MAX_WORDS = 24_000

_WORDS_FILE = "words.txt"
_CHARACTERS_FILE = "characters.txt"


@dataclass(frozen=True)
class Vocabulary:
    """``words`` and ``characters`` start with their special entries and repeat none; an id is an index into them."""

    words: tuple[str, ...]
    characters: tuple[str, ...]

    def __post_init__(self) -> None:
        _check("words", self.words, SPECIAL_WORDS)
        _check("characters", self.characters, SPECIAL_CHARACTERS)

    @cached_property
    def _word_ids(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    @cached_property
    def _character_ids(self) -> dict[str, int]:
        return {character: index for index, character in enumerate(self.characters)}

    def word_id(self, surface: str) -> int:
        return self._word_ids.get(surface, UNK)

    def character_ids(self, surface: str, length: int) -> list[int]:
        """Ids of the first ``length`` characters, padded with PAD."""
        ids = [self._character_ids.get(character, UNK) for character in surface[:length]]
        return ids + [PAD] * (length - len(ids))

    def begins_with(self, other: "Vocabulary") -> bool:
        """True if all ids of the other one mean the same here."""
        words, characters = self.words[: len(other.words)], self.characters[: len(other.characters)]
        return (words, characters) == (other.words, other.characters)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over both lists, in hexadecimal: ties a model to its vocabulary."""
        lists = "\n".join(self.words) + "\0" + "\n".join(self.characters)
        return hashlib.sha256(lists.encode()).hexdigest()

    @classmethod
    def build(cls, word_counts: Counter[str], max_words: int, min_character_count: int = 2) -> "Vocabulary":
        """Keeps the ``max_words`` most frequent words (special ones included) and the characters seen often enough."""
        return cls.empty().extended(word_counts, max_words, min_character_count)

    @classmethod
    def empty(cls) -> "Vocabulary":
        """The special entries alone."""
        return cls(SPECIAL_WORDS, SPECIAL_CHARACTERS)

    def extended(self, word_counts: Counter[str], max_words: int, min_character_count: int = 2) -> "Vocabulary":
        """These entries under their ids, then other words, the most frequent, up to ``max_words``, and characters."""
        character_counts: Counter[str] = Counter()
        for word, count in word_counts.items():
            for character in word:
                character_counts[character] += count
        words = [word for word in _by_frequency(word_counts) if word not in self._word_ids]
        characters = [
            character
            for character in _by_frequency(character_counts)
            if character_counts[character] >= min_character_count and character not in self._character_ids
        ]
        room = max(0, max_words - len(self.words))
        return Vocabulary(self.words + tuple(words[:room]), self.characters + tuple(characters))

    @classmethod
    def load(cls, directory: Path) -> "Vocabulary":
        """Raises ValueError naming the directory if its files are no word lists."""
        try:
            return cls(_read_list(directory / _WORDS_FILE), _read_list(directory / _CHARACTERS_FILE))
        except ValueError as error:
            raise ValueError(f"{directory}: {error}") from error

    def save(self, directory: Path) -> None:
        _write_list(directory / _WORDS_FILE, self.words)
        _write_list(directory / _CHARACTERS_FILE, self.characters)


def _by_frequency(counts: Counter[str]) -> list[str]:
    """Most frequent first; ties in code point order, so that the same data always gives the same list."""
    return sorted(counts, key=lambda entry: (-counts[entry], entry))


def _check(name: str, entries: tuple[str, ...], special: tuple[str, ...]) -> None:
    if entries[: len(special)] != special:
        raise ValueError(f"expected the {name} to start with {special}, found {entries[: len(special)]}")
    unusable = [entry for entry, count in Counter(entries).items() if count > 1 or "\n" in entry]
    if unusable:
        raise ValueError(f"expected {name} of one line, each once, found {unusable[:5]}")


# Bytes, since text files turn every "\r" into a line end.
def _read_list(path: Path) -> tuple[str, ...]:
    return tuple(path.read_bytes().decode().removesuffix("\n").split("\n"))


def _write_list(path: Path, entries: Sequence[str]) -> None:
    path.write_bytes(("\n".join(entries) + "\n").encode())
