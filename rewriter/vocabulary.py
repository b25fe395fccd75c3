"""Two word lists: the frequent words, each with an embedding of its own, and the characters all words are made of."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAD, UNK, BOS, EOS, EOT = range(5)
SPECIAL_WORDS = ("<pad>", "<unk>", "<bos>", "<eos>", "<eot>")
SPECIAL_CHARACTERS = ("<pad>", "<unk>")

_WORDS_FILE = "words.txt"
_CHARACTERS_FILE = "characters.txt"


@dataclass(frozen=True)
class Vocabulary:
    """``words`` and ``characters`` start with their special entries; an id is an index into them."""

    words: tuple[str, ...]
    characters: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_word_ids", {word: index for index, word in enumerate(self.words)})
        object.__setattr__(self, "_character_ids", {c: index for index, c in enumerate(self.characters)})
        if self.words[: len(SPECIAL_WORDS)] != SPECIAL_WORDS:
            raise ValueError(f"expected the words to start with {SPECIAL_WORDS}, found {self.words[:5]}")
        if self.characters[: len(SPECIAL_CHARACTERS)] != SPECIAL_CHARACTERS:
            raise ValueError(f"expected the characters to start with {SPECIAL_CHARACTERS}, found {self.characters[:2]}")

    def word_id(self, surface: str) -> int:
        return int(self._word_ids.get(surface, UNK))  # type: ignore[attr-defined]

    def character_ids(self, surface: str, length: int) -> list[int]:
        """Ids of the first ``length`` characters, padded with PAD."""
        ids = [int(self._character_ids.get(c, UNK)) for c in surface[:length]]  # type: ignore[attr-defined]
        return ids + [PAD] * (length - len(ids))

    @property
    def fingerprint(self) -> str:
        """SHA-256 over both lists, in hexadecimal: ties a model to its vocabulary."""
        lists = "\n".join(self.words) + "\0" + "\n".join(self.characters)
        return hashlib.sha256(lists.encode()).hexdigest()

    @classmethod
    def build(cls, word_counts: Counter[str], max_words: int, min_character_count: int = 2) -> "Vocabulary":
        """Keeps the ``max_words`` most frequent words (special ones included) and the characters seen often enough."""
        character_counts: Counter[str] = Counter()
        for word, count in word_counts.items():
            for character in word:
                character_counts[character] += count
        frequent = _by_frequency(word_counts)[: max_words - len(SPECIAL_WORDS)]
        characters = [c for c in _by_frequency(character_counts) if character_counts[c] >= min_character_count]
        return cls(SPECIAL_WORDS + tuple(frequent), SPECIAL_CHARACTERS + tuple(characters))

    @classmethod
    def load(cls, directory: Path) -> "Vocabulary":
        return cls(_read_list(directory / _WORDS_FILE), _read_list(directory / _CHARACTERS_FILE))

    def save(self, directory: Path) -> None:
        _write_list(directory / _WORDS_FILE, self.words)
        _write_list(directory / _CHARACTERS_FILE, self.characters)


def _by_frequency(counts: Counter[str]) -> list[str]:
    """Most frequent first; ties in code point order, so that the same data always gives the same list."""
    return sorted(counts, key=lambda entry: (-counts[entry], entry))


def _read_list(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").rstrip("\n").split("\n"))


def _write_list(path: Path, entries: Sequence[str]) -> None:
    path.write_text("\n".join(entries) + "\n", encoding="utf-8")
