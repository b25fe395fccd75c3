"""What a rewrite puts into an utterance: resolutions of its pronouns and pieces that it left out.

Su et al. 2019 ("Improving Multi-turn Dialogue Modelling with Utterance ReWriter") count coreference and omission apart:
a pronoun is resolved rightly, or an omission completed, when the rewrite has the words of the reference. Here they must
also stand in the place that the reference gives them.

A text is compared with the utterance unit by unit (a pronoun, a Latin word or number, or a character) by difflib. Where
a word of the utterance stands in the text twice, difflib's choice decides what counts as put in.
"""

import difflib
import re
from functools import lru_cache
from typing import NamedTuple

from rewriter.metrics import join_tokens
from rewriter.tokenizer import normalize

# The personal and demonstrative pronouns of everyday Chinese. Left out: classifiers ("这部" is 这 and 部),
# interrogatives (谁, 哪, 什么) and the bookish 其, 此, 该, in chats nearly always part of a word or a modal verb.
PERSONAL_PRONOUNS = (
    *("我", "我们", "咱", "咱们", "你", "你们", "您"),
    *("他", "她", "它", "他们", "她们", "它们", "自己", "人家", "大家"),
)
DEMONSTRATIVE_PRONOUNS = (
    *("这", "这个", "这些", "这里", "这儿", "这边", "这样", "这么"),
    *("那", "那个", "那些", "那里", "那儿", "那边", "那样", "那么"),
)
PRONOUNS = frozenset(PERSONAL_PRONOUNS + DEMONSTRATIVE_PRONOUNS)
# Words that only look as if they held one.
_NO_PRONOUNS = ("其他", "其它", "吉他")

_LONGEST_FIRST = sorted((*PRONOUNS, *_NO_PRONOUNS), key=len, reverse=True)
_UNIT = re.compile("|".join(_LONGEST_FIRST) + r"|[a-z0-9]+(?:\.[0-9]+)?|\S")


class Restoration(NamedTuple):
    """Text put in at one place: before the unit ``place`` of the utterance (from 0), or instead of units from there on.

    ``pronouns`` are the places of the pronouns among the units it replaces, mostly none or one.
    """

    place: int
    pronouns: tuple[int, ...]
    text: str


@lru_cache(maxsize=65536)
def restorations(utterance: str, text: str) -> tuple[Restoration, ...]:
    """What ``text`` (a rewrite or a reference) puts into the utterance, in order; punctuation alone does not count."""
    before, after = units(utterance), units(text)
    found = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for operation, start, end, text_start, text_end in matcher.get_opcodes():
        put = after[text_start:text_end]
        if operation != "equal" and any(unit.isalnum() for unit in put):
            pronouns = tuple(place for place in range(start, end) if before[place] in PRONOUNS)
            found.append(Restoration(start, pronouns, join_tokens(put)))
    return tuple(found)


def resolved_pronouns(utterance: str, text: str) -> frozenset[tuple[int, str]]:
    """The place of every pronoun that the text replaces, with what stands there instead."""
    return frozenset((place, found.text) for found in restorations(utterance, text) for place in found.pronouns)


def restored_pieces(utterance: str, text: str) -> frozenset[tuple[int, str]]:
    """What else the text puts in: the place and the words."""
    return frozenset((found.place, found.text) for found in restorations(utterance, text) if not found.pronouns)


def restored_texts(utterance: str, text: str) -> tuple[str, ...]:
    """The words of both kinds, in order."""
    return tuple(found.text for found in restorations(utterance, text))


def units(text: str) -> list[str]:
    """Cuts normalized text into pronouns, Latin words, numbers and single characters."""
    return _UNIT.findall(normalize(text))
