"""Which rewrites are given: sure enough, and with all that was said."""

import pytest

from rewriter.config import Calibration
from rewriter.conversation import Conversation, Origin, Rewrite, Span
from rewriter.trust import why_withheld

UTTERANCE = "他在忙 有空再评价我的工作，后来一直没回"
CONVERSATION = Conversation(("找过老板吗", "找过"), UTTERANCE)
SURE = Calibration(min_confidence=0.2)


def rewrite_without(start: int, end: int, confidence: float = 0.9) -> Rewrite:
    """老板 for the characters ``start`` to ``end`` of the utterance."""
    pieces = [
        (UTTERANCE[:start], Origin.UTTERANCE, 2, 0, start),
        ("老板", Origin.HISTORY, 0, 2, 4),
        (UTTERANCE[end:], Origin.UTTERANCE, 2, end, len(UTTERANCE)),
    ]
    text, spans = "", []
    for piece, origin, turn, source_start, source_end in pieces:
        if piece:
            spans.append(Span(len(text), len(text) + len(piece), origin, turn, source_start, source_end))
            text += piece
    return Rewrite(text, tuple(spans), confidence)


# Of (0, 8) one is a space.
@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 0), (5, 12), (0, 8)])
def test_a_rewrite_that_replaces_a_phrase_is_given(start: int, end: int) -> None:
    assert why_withheld(CONVERSATION, rewrite_without(start, end), SURE) == ""


@pytest.mark.parametrize(("start", "end"), [(4, 12), (0, 9), (len(UTTERANCE) - 8, len(UTTERANCE)), (0, len(UTTERANCE))])
def test_a_rewrite_that_loses_half_of_what_was_said_is_withheld_and_named(start: int, end: int) -> None:
    why = why_withheld(CONVERSATION, rewrite_without(start, end), SURE)
    assert UTTERANCE[start:end].replace(" ", "") in why


def test_what_was_said_before_too_may_be_copied_from_there() -> None:
    conversation = Conversation(("成都明天的 NBA 比赛怎么看", "不知道"), "明天的nba比赛怎么看")
    text = "成都明天的 NBA 比赛怎么看"
    rewrite = Rewrite(text, (Span(0, len(text), Origin.HISTORY, 0, 0, len(text)),), 0.9)
    assert why_withheld(conversation, rewrite, SURE) == ""


def test_words_lost_here_and_there_do_not_add_up() -> None:
    every_other = [Span(i, i + 1, Origin.UTTERANCE, 2, 2 * i, 2 * i + 1) for i in range(len(UTTERANCE) // 2)]
    assert why_withheld(CONVERSATION, Rewrite(UTTERANCE[::2], tuple(every_other), 0.9), SURE) == ""


def test_a_rewrite_that_the_model_is_not_sure_of_is_withheld() -> None:
    assert why_withheld(CONVERSATION, rewrite_without(0, 1, confidence=0.19), SURE) == "confidence 0.190 < 0.20"
    assert why_withheld(CONVERSATION, rewrite_without(0, 1, confidence=0.2), SURE) == ""


def test_what_changes_nothing_is_never_withheld() -> None:
    assert why_withheld(CONVERSATION, Rewrite.unchanged(CONVERSATION, 0.0), SURE) == ""
