"""Names are copied whole: characters that a conversation always says side by side are one token.

A name that jieba's dictionary does not have falls into single characters, and a model that points at one word after the
other at times stops half way. Whether they belong together, the conversation itself says, where it says them twice.

A joined name is always unknown to the word vocabulary, which counts the tokens of single turns (see ``preparation``):
its characters speak for it, as they do for any rare word.
"""

import re
from collections import Counter
from collections.abc import Sequence

from rewriter.tokenizer import Token

# They stand beside anything and belong to nothing.
_FUNCTION_WORDS = frozenset("的很了吗呢吧啊嘛么是有在我你您他她它们谁不没就都也还和跟去来过给看吃想会能要说这那")
_CHINESE_CHARACTER = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]")


def join_names(turns: Sequence[Sequence[Token]]) -> list[list[Token]]:
    """Joins single Chinese characters that stand side by side wherever either stands, twice or more, in all the turns.

    A character said twice in a row ("悦悦") is joined too, where it never stands alone.
    """
    followed: Counter[tuple[str, str]] = Counter()
    said: Counter[str] = Counter()
    for tokens in turns:
        said.update(token.surface for token in tokens)
        followed.update((a.surface, b.surface) for a, b in zip(tokens, tokens[1:], strict=False) if _adjoin(a, b))
    together = {pair for pair, times in followed.items() if _always(pair, times, said)}
    return [_join(tokens, together) for tokens in turns]


def _always(pair: tuple[str, str], times: int, said: Counter[str]) -> bool:
    first, second = pair
    if first == second:
        # "悦悦悦" is laughter or emphasis, and no name.
        return said[first] == 2 * times
    return times >= 2 and said[first] == said[second] == times


def _join(tokens: Sequence[Token], together: set[tuple[str, str]]) -> list[Token]:
    joined: list[Token] = []
    before: Token | None = None
    for token in tokens:
        if before is not None and _adjoin(before, token) and (before.surface, token.surface) in together:
            head = joined.pop()
            joined.append(Token(head.surface + token.surface, head.start, token.end))
        else:
            joined.append(token)
        before = token
    return joined


def _adjoin(a: Token, b: Token) -> bool:
    return a.end == b.start and _can_be_part(a) and _can_be_part(b)


def _can_be_part(token: Token) -> bool:
    return token.surface not in _FUNCTION_WORDS and _CHINESE_CHARACTER.fullmatch(token.surface) is not None
