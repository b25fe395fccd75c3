"""Brackets are copied in pairs; see ``rewriter.brackets``."""

import pytest
import tiny

from rewriter.brackets import complete_brackets
from rewriter.conversation import Conversation

#       0     1     2      3     4     5     6       7     8     9     10    11    12    13    14
SAID = ["是", "《", "雪地", "里", "的", "》", "好看", None, "《", "雾", "》", "(", "(", "旧", ")"]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([[1, 2, 3]], [[1, 2, 3, 4, 5]]),
        ([[3, 4, 5, 6]], [[1, 2, 3, 4, 5, 6]]),
        ([[1, 2], [6]], [[1, 2, 3, 4, 5], [6]]),
        # Whole already, in one piece or in two.
        ([[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5]]),
        ([[1, 2], [5, 6]], [[1, 2], [5, 6]]),
        # No brackets at all.
        ([[2, 3], [0]], [[2, 3], [0]]),
        # The inner bracket closes the inner one, and the outer one is never closed.
        ([[12, 13]], [[12, 13, 14]]),
        ([[11, 12, 13]], [[11, 12, 13, 14]]),
        # Both titles are cut off.
        ([[1, 2], [8, 9]], [[1, 2, 3, 4, 5], [8, 9, 10]]),
    ],
)
def test_half_a_pair_is_completed_from_its_turn(runs: list[list[int]], expected: list[list[int]]) -> None:
    assert complete_brackets(runs, SAID) == expected


def test_a_bracket_without_its_other_half_near_by_stays_as_it_was_copied() -> None:
    assert complete_brackets([[0, 1]], ["《", "雪地", None, "》"]) == [[0, 1]]
    assert complete_brackets([[0, 1]], ["》", "雪地"]) == [[0, 1]]
    assert complete_brackets([[0]], ["《", *["长"] * 50, "》"]) == [[0]]


def test_the_rewrite_and_its_spans_have_the_whole_title() -> None:
    features = tiny.features()
    source = features.encode(Conversation(("看过《雪地里的算盘》吗",), "好看吗"))
    start = source.surfaces.index("《")
    text, spans = features.restore(source, [start, start + 1, *source.utterance_positions])
    assert text == "《雪地里的算盘》好看吗"
    assert [(span.turn, span.source_start, span.source_end) for span in spans] == [(0, 2, 10), (1, 0, 3)]
