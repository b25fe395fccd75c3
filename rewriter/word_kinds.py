"""Words by what they name, from jieba's parts of speech: a rough answer to "what kind of word goes missing?"."""

from functools import lru_cache
from typing import Any

NAME, PLACE, NUMBER_OR_TIME, NOUN, VERB, OTHER = "name", "place", "number_or_time", "other_noun", "verb", "other"
WORD_KINDS = (NAME, PLACE, NUMBER_OR_TIME, NOUN, VERB, OTHER)

# By the longest prefix of the tag. Latin words (eng) are names or titles, hardly anything else; an (名形词) and
# j (abbreviations) are used like nouns. https://github.com/fxsjy/jieba has the list of tags.
_KINDS_OF_TAGS = {
    **dict.fromkeys(("nr", "nt", "nz", "eng"), NAME),
    **dict.fromkeys(("ns", "s"), PLACE),
    **dict.fromkeys(("m", "q", "t"), NUMBER_OR_TIME),
    **dict.fromkeys(("n", "an", "j"), NOUN),
    "v": VERB,
}


def kind_of_tag(tag: str) -> str:
    """The kind of word behind one of jieba's tags; OTHER for adjectives, function words and all the rest."""
    return next((_KINDS_OF_TAGS[tag[:size]] for size in (3, 2, 1) if tag[:size] in _KINDS_OF_TAGS), OTHER)


def words_with_kinds(text: str) -> list[tuple[str, str]]:
    """(word, kind) of every word of a text, as jieba cuts and tags it; punctuation and white space make none."""
    return [(pair.word, kind_of_tag(pair.flag)) for pair in _tagger().cut(text) if any(map(str.isalnum, pair.word))]


@lru_cache(maxsize=1)
def _tagger() -> Any:
    """A tagger of our own: words that others add to jieba's global lexicon must not change the break-down."""
    import jieba
    import jieba.posseg

    jieba.setLogLevel("WARNING")
    return jieba.posseg.POSTokenizer(jieba.Tokenizer())
