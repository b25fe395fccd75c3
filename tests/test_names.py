"""Names that a conversation repeats are one token; see ``rewriter.names``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriter.config import FeaturesConfig
from rewriter.conversation import Conversation
from rewriter.features import Features
from rewriter.names import join_names
from rewriter.tokenizer import Granularity, Tokenizer
from rewriter.vocabulary import Vocabulary

TOKENIZER = Tokenizer(Granularity.NAMES)
FEATURES = Features(FeaturesConfig(granularity=Granularity.NAMES), Vocabulary.build({}, 1))


def words(*turns: str) -> list[list[str]]:
    return [[token.surface for token in tokens] for tokens in join_names([TOKENIZER.tokenize(turn) for turn in turns])]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        # Said twice, in two turns or in one.
        (("邬芷苓来了吗", "邬芷苓没来"), [["邬芷苓", "来", "了", "吗"], ["邬芷苓", "没", "来"]]),
        (("邬芷苓邬芷苓",), [["邬芷苓", "邬芷苓"]]),
        # Said once, nobody knows where it ends.
        (("邬芷苓来了吗",), [["邬", "芷", "苓", "来", "了", "吗"]]),
        # A character that also stands alone, or beside another one, is no part of a name.
        (("芷苓在吗", "芷苓走了", "苓呢"), [["芷", "苓", "在", "吗"], ["芷", "苓", "走", "了"], ["苓", "呢"]]),
        # What function words stand beside does not become one with them.
        (("邬的车", "邬的"), [["邬", "的", "车"], ["邬", "的"]]),
        # A character said twice in a row, even once; three times it is laughter.
        (("苓苓来了",), [["苓苓", "来", "了"]]),
        (("苓苓来了", "苓呢"), [["苓", "苓", "来", "了"], ["苓", "呢"]]),
        (("苓苓苓",), [["苓", "苓", "苓"]]),
        # White space and marks keep apart.
        (("邬 芷", "邬 芷"), [["邬", "芷"], ["邬", "芷"]]),
        (("邬·芷", "邬·芷"), [["邬", "·", "芷"], ["邬", "·", "芷"]]),
        # Latin and numbers are whole words already.
        (("7 8", "7 8"), [["7", "8"], ["7", "8"]]),
        ((), []),
        (("",), [[]]),
    ],
)
def test_what_is_always_said_together_is_one_token(turns: tuple[str, ...], expected: list[list[str]]) -> None:
    assert words(*turns) == expected


@given(st.lists(st.text(alphabet="邬芷苓的我来A7 ，", max_size=12), max_size=4))
def test_joining_loses_nothing_and_repeating_it_changes_nothing(turns: list[str]) -> None:
    tokens = [TOKENIZER.tokenize(turn) for turn in turns]
    joined = join_names(tokens)
    for before, after in zip(tokens, joined, strict=True):
        assert "".join(token.surface for token in after) == "".join(token.surface for token in before)
        assert {token.start for token in after} <= {token.start for token in before}
        assert {token.end for token in after} <= {token.end for token in before}
    assert join_names(joined) == joined


def test_a_name_is_copied_whole_and_traced_to_where_it_was_said() -> None:
    source = FEATURES.encode(Conversation(("邬芷苓来了吗", "邬芷苓没来"), "她去哪了"))
    target = FEATURES.target(source, "邬芷苓去哪了")
    assert target is not None
    assert [source.surfaces[position] for position in target[:2]] == ["邬芷苓", "去"]
    text, spans = FEATURES.restore(source, target[:-1])
    assert text == "邬芷苓去哪了"
    assert (spans[0].turn, spans[0].source_start, spans[0].source_end) == (1, 0, 3)


def test_the_utterance_helps_to_tell_what_is_a_name() -> None:
    source = FEATURES.encode(Conversation(("邬芷苓来了吗",), "邬芷苓没来"))
    assert source.surfaces.count("邬芷苓") == 2


def test_only_the_turns_that_are_read_count() -> None:
    config = FeaturesConfig(granularity=Granularity.NAMES, max_history_turns=1)
    source = Features(config, Vocabulary.build({}, 1)).encode(Conversation(("芷苓", "芷苓"), "好"))
    assert "芷苓" not in source.surfaces
    assert source.surfaces.count("苓") == 1
