"""More examples from the annotated ones: other names and things in the same conversations.

After the entity swaps of named-entity recognition (Dai and Adel 2020, "mention replacement"): what is restored should
follow from where it stands in the conversation, not from which thing it is.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from rewriter.conversation import Conversation, Example
from rewriter.selfsupervised import part_of_speech
from rewriter.tokenizer import Tokenizer, normalize

_MIN_CHARACTERS = 2


def swap_words(examples: Sequence[Example], tokenizer: Tokenizer, seed: int) -> Iterator[Example]:
    """Yields each example with one noun of history and reference replaced, everywhere, by another of the same kind.

    The others come from the references of all the examples, as often as they are named there; an example without such
    a noun gives none.
    """
    generator = random.Random(seed)
    named = [_nouns(example.reference, tokenizer) for example in examples]
    pools: dict[str, Counter[str]] = {}
    for nouns in named:
        for noun, tag in nouns.items():
            pools.setdefault(tag, Counter())[noun] += 1
    drawn = {tag: (list(pool), list(accumulate(pool.values()))) for tag, pool in pools.items()}
    for example, nouns in zip(examples, named, strict=True):
        said = normalize("\n".join(example.conversation.history))
        shared = [(noun, tag) for noun, tag in nouns.items() if noun in said]
        if not shared:
            continue
        noun, tag = generator.choice(shared)
        others, cumulative_weights = drawn[tag]
        [other] = generator.choices(others, cum_weights=cumulative_weights)
        if other not in said and other not in example.reference:
            yield _replace(example, noun, other)


def _nouns(text: str, tokenizer: Tokenizer) -> dict[str, str]:
    """The nouns and names of a text with their part of speech."""
    words = (token.surface for token in tokenizer.tokenize(text))
    tagged = ((word, part_of_speech(word)) for word in words if len(word) >= _MIN_CHARACTERS)
    return {word: tag for word, tag in tagged if tag.startswith("n")}


def _replace(example: Example, old: str, new: str) -> Example:
    history, utterance = example.conversation.history, example.conversation.utterance
    turns = [normalize(text).replace(old, new) for text in (*history, utterance, example.reference)]
    return Example(Conversation(tuple(turns[:-2]), turns[-2]), turns[-1])
