"""More examples from the annotated ones: other names in the same conversations, and longer conversations.

After the entity swaps of named-entity recognition (Dai and Adel 2020, "mention replacement"): what is restored should
follow from where it stands in the conversation, not from which thing it is. And whatever else was said, about other
things, should change nothing.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from rewriter.conversation import Conversation, Example
from rewriter.selfsupervised import part_of_speech
from rewriter.tokenizer import Tokenizer, normalize

_MIN_CHARACTERS = 2
# How many turns of other conversations come into one. Mostly before the history: it is the last topic that goes on.
_OTHER_TURNS, _OTHER_TURNS_WEIGHTS = (2, 4, 6, 8), (4, 3, 2, 1)
_BETWEEN_SHARE = 1 / 3


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


def lengthen(examples: Sequence[Example], seed: int) -> Iterator[Example]:
    """Yields each example that has a history with two to eight turns of other conversations before or after that."""
    generator = random.Random(seed)
    continued = [example for example in examples if example.conversation.history]
    for example in continued:
        [count] = generator.choices(_OTHER_TURNS, _OTHER_TURNS_WEIGHTS)
        yield add_turns(example, draw_turns(continued, count, generator), generator.random() < _BETWEEN_SHARE)


def add_turns(example: Example, others: Sequence[str], between: bool) -> Example:
    """Puts other turns after the history (``between`` it and the utterance), or before it."""
    history = example.conversation.history
    turns = (*history, *others) if between else (*others, *history)
    return Example(Conversation(turns, example.conversation.utterance), example.reference, example.alternatives)


def draw_turns(examples: Sequence[Example], count: int, generator: random.Random) -> tuple[str, ...]:
    """Turns of the examples' histories, each pair of one conversation; some history must have a turn."""
    turns: list[str] = []
    while len(turns) < count:
        turns += generator.choice(examples).conversation.history[:2]
    return tuple(turns[:count])


def _nouns(text: str, tokenizer: Tokenizer) -> dict[str, str]:
    """The nouns and names of a text with their part of speech."""
    words = (token.surface for token in tokenizer.tokenize(text))
    tagged = ((word, part_of_speech(word)) for word in words if len(word) >= _MIN_CHARACTERS)
    return {word: tag for word, tag in tagged if tag.startswith("n")}


def _replace(example: Example, old: str, new: str) -> Example:
    history, utterance = example.conversation.history, example.conversation.utterance
    turns = [normalize(text).replace(old, new) for text in (*history, utterance, example.reference)]
    return Example(Conversation(tuple(turns[:-2]), turns[-2]), turns[-1])
