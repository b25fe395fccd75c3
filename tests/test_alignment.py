"""Where the words of a reference are copied from: the rule clause by clause, tiling against a search of all ways."""

from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewriter.alignment import copy_priorities, place, tile


def placed(source: str, words: str) -> list[int]:
    """Places one-letter words; before the bar is history, after it the utterance."""
    history, utterance = source.split("|")
    letters = history + utterance
    copy_ids = np.array([letters.index(letter) for letter in letters])
    in_utterance = np.arange(len(letters)) >= len(history)
    return place(copy_ids, in_utterance, [letters.index(word) for word in words])


def test_a_run_goes_on_even_where_the_frontier_has_the_same_word() -> None:
    assert placed("ab|b", "ab") == [0, 1]


def test_a_run_in_the_utterance_goes_on() -> None:
    assert placed("a|bab", "bab") == [1, 2, 3]


def test_the_frontier_goes_before_any_other_place() -> None:
    assert placed("ba|xbb", "xab") == [2, 1, 3]


def test_the_frontier_is_the_first_word_of_the_utterance_at_the_start() -> None:
    assert placed("aa|aa", "a") == [2]


def test_the_frontier_stays_while_history_is_copied() -> None:
    assert placed("cd|ab", "acdb") == [2, 0, 1, 3]


def test_the_frontier_moves_behind_a_skipped_word() -> None:
    # Once c is written the frontier is d, not b, although history is copied in between.
    assert placed("x|abcd", "acxd") == [1, 3, 0, 4]


def test_the_frontier_never_moves_back() -> None:
    # After going back to a, the frontier is still the second c.
    assert placed("x|abcc", "cxaxc") == [3, 0, 1, 0, 4]


def test_the_next_place_in_the_utterance_goes_before_the_history() -> None:
    assert placed("b|abcb", "b") == [2]


def test_of_several_places_ahead_in_the_utterance_the_nearest_is_next() -> None:
    assert placed("x|acbdb", "b") == [3]


def test_the_history_goes_before_what_was_written_already() -> None:
    assert placed("a|abc", "abca") == [1, 2, 3, 0]


def test_of_several_places_in_the_history_the_latest_is_copied() -> None:
    assert placed("axaxa|b", "a") == [4]


def test_what_was_written_already_is_copied_again_if_it_stands_nowhere_else() -> None:
    assert placed("x|ab", "aba") == [1, 2, 1]


def test_no_run_goes_on_before_anything_was_copied() -> None:
    # Position 0 follows "nothing copied" (-1) by number only.
    assert placed("aba|c", "a") == [2]


def test_an_utterance_without_words_leaves_the_history() -> None:
    assert placed("ab|", "ba") == [1, 0]


@given(
    size=st.integers(1, 12),
    data=st.data(),
    last=st.integers(-1, 11),
    frontier=st.integers(0, 12),
    split=st.integers(0, 12),
)
def test_no_two_places_have_the_same_priority(
    size: int, data: st.DataObject, last: int, frontier: int, split: int
) -> None:
    positions = np.arange(size)
    priorities = copy_priorities(np, positions, min(last, size - 1), max(frontier, split), positions >= split, size)
    assert len(set(priorities.tolist())) == size
    assert (priorities >= 0).all()


SOURCES = st.lists(st.one_of(st.none(), st.text("ab", min_size=1, max_size=3)), min_size=1, max_size=6)
REFERENCES = st.text("abc", max_size=6)


def ways(reference: str, surfaces: Sequence[str | None]) -> Iterator[list[int]]:
    """All the ways to spell the reference, one after the other."""
    if not reference:
        yield []
    for position, surface in enumerate(surfaces):
        if surface and reference.startswith(surface):
            for rest in ways(reference[len(surface) :], surfaces):
                yield [position, *rest]


def words_and_runs(positions: Sequence[int]) -> int:
    breaks = sum(after != before + 1 for before, after in zip(positions, positions[1:], strict=False))
    return len(positions) + breaks + bool(positions)


@settings(max_examples=500, deadline=None)
@given(reference=REFERENCES, surfaces=SOURCES)
@example(reference="aab", surfaces=["a", "aa", "b", None, "ab"])
def test_a_tiling_has_as_few_words_and_runs_as_any(reference: str, surfaces: list[str | None]) -> None:
    cheapest = min(map(words_and_runs, ways(reference, surfaces)), default=None)
    tiles = tile(reference, surfaces)
    if cheapest is None:
        assert tiles is None
    else:
        assert tiles is not None
        assert "".join(surfaces[position] or "" for position in tiles) == reference
        assert words_and_runs(tiles) == cheapest


def test_one_long_word_is_better_than_two_short_ones() -> None:
    assert tile("忠犬八公", ["忠犬", "八公", None, "忠犬八公"]) == [3]


def test_a_run_is_better_than_the_same_words_from_two_places() -> None:
    assert tile("西安天气", ["天气", "西安", None, "西安", "天气"]) == [3, 4]


def test_two_words_from_two_places_are_better_than_four_in_a_row() -> None:
    assert tile("abcd", ["a", "b", "c", "d", None, "ab", None, "cd"]) == [5, 7]


def test_of_ways_that_are_as_cheap_the_one_with_fewer_runs_is_taken() -> None:
    assert tile("abc", ["a", "b", "c", None, "ab"]) == [0, 1, 2]


def test_a_run_does_not_reach_over_a_place_where_nothing_is_copied() -> None:
    assert tile("ab", ["a", None, "b", None, "a", "b"]) == [4, 5]


def test_what_the_source_does_not_hold_cannot_be_tiled() -> None:
    assert tile("上海天气", ["天气", "西安"]) is None
    assert tile("西", ["西安"]) is None
    assert tile("西安", [None, None]) is None
    assert tile("西安", []) is None


def test_nothing_is_spelled_with_no_words() -> None:
    assert tile("", ["西安"]) == []


def test_a_long_reference_is_tiled_in_reasonable_time() -> None:
    tiles = tile("ab" * 500, ["a", "b", "ab", "aba", None] * 20)
    assert tiles is not None
    assert len(tiles) == 500


@settings(max_examples=300, deadline=None)
@given(history=st.text("abcd", max_size=6), utterance=st.text("abcd", min_size=1, max_size=6), data=st.data())
def test_a_word_is_placed_where_it_stands(history: str, utterance: str, data: st.DataObject) -> None:
    source = history + utterance
    words = data.draw(st.lists(st.sampled_from(source), max_size=8))
    positions = placed(f"{history}|{utterance}", "".join(words))
    assert [source[position] for position in positions] == words


@given(history=st.text("abcd", max_size=6), utterance=st.text("abcd", min_size=1, max_size=6))
def test_an_untouched_utterance_is_copied_from_itself(history: str, utterance: str) -> None:
    expected = list(range(len(history), len(history) + len(utterance)))
    assert placed(f"{history}|{utterance}", utterance) == expected
