"""The break-down of an evaluation, on lines worked out by hand."""

import pytest
import tiny

from rewriter import analysis
from rewriter.conversation import Conversation, Example, Rewrite
from rewriter.features import Features
from rewriter.results import LineResult, line_result
from rewriter.tokenizer import Granularity
from rewriter.vocabulary import SPECIAL_WORDS, Vocabulary


def result(utterance: str, reference: str, rewrite: str, *history: str, kind: str = "") -> LineResult:
    return line_result(1, Example(Conversation(history, utterance), reference, (), kind), Rewrite(rewrite, (), 0.5))


# --- coreference and omission -----------------------------------------------------------------------------------------

RESOLVED = result("他几岁", "小王几岁", "小王几岁")
WRONGLY_RESOLVED = result("它贵吗", "红车贵吗", "蓝车贵吗")
LEFT_ALONE = result("她来吗", "小李来吗", "她来吗")
COMPLETED = result("几点走", "小王几点走", "小王几点走")
BOTH = result("他喜欢吗", "小王喜欢爬山吗", "小王喜欢吗")
OVERDONE = result("早上好", "早上好", "早上好小王")
LINES = [RESOLVED, WRONGLY_RESOLVED, LEFT_ALONE, COMPLETED, BOTH, OVERDONE]


@pytest.mark.parametrize(
    ("line", "classes"),
    [
        (RESOLVED, ("coreference",)),
        (LEFT_ALONE, ("coreference",)),
        (COMPLETED, ("omission",)),
        (BOTH, ("coreference", "omission", "both")),
        (OVERDONE, ("neither",)),
    ],
)
def test_the_reference_decides_the_class_of_a_line(line: LineResult, classes: tuple[str, ...]) -> None:
    assert analysis.line_classes(line) == classes


def test_pronouns_and_pieces_are_counted_apart() -> None:
    section = analysis.coreference_and_omission(LINES)
    # Pronouns: four to resolve, three resolved, two of them rightly (小王 twice, not 蓝车).
    assert section["coreference"] == {"lines": 4, "em": 1 / 4, "precision": 2 / 3, "recall": 2 / 4, "f1": 4 / 7}
    # Pieces: two to restore (小王, 爬山), two put in (小王 rightly, 小王 after a greeting wrongly).
    assert section["omission"] == {"lines": 2, "em": 1 / 2, "precision": 1 / 2, "recall": 1 / 2, "f1": 1 / 2}
    assert section["both"] == {"lines": 1, "em": 0.0}
    assert section["neither"] == {"lines": 1, "em": 0.0}


def test_the_right_words_at_another_place_are_not_right() -> None:
    section = analysis.coreference_and_omission([result("几点走", "小王几点走", "几点走小王")])
    assert section["omission"]["precision"] == section["omission"]["recall"] == 0.0


def test_without_pronouns_there_is_nothing_to_divide_by() -> None:
    section = analysis.coreference_and_omission([COMPLETED])
    assert section["coreference"] == {"lines": 0, "em": None, "precision": None, "recall": None, "f1": None}


# --- exact match by groups --------------------------------------------------------------------------------------------


def test_ranges_are_named_by_their_first_and_last_number() -> None:
    names = [analysis.range_name(value, (0, 1, 2, 5, 9)) for value in (0, 1, 2, 4, 5, 8, 9, 30)]
    assert names == ["0", "1", "2-4", "2-4", "5-8", "5-8", "9+", "9+"]


def test_exact_match_by_length_counts_characters_and_latin_words() -> None:
    lines = [
        result("几点走呢我问", "小王几点走呢我问", "几点走"),
        result("几点", "小王几点", "小王几点"),
        result("用Python写", "他用Python写", "用Python写"),
    ]
    # 6, 2 and 3 tokens; the shortest range comes first.
    section = analysis.em_by_utterance_length(lines)
    assert list(section.items()) == [("1-4", {"lines": 2, "em": 1 / 2}), ("5-8", {"lines": 1, "em": 0.0})]


def test_exact_match_by_history_turns() -> None:
    lines = [
        result("早上好", "早上好", "早上好"),
        result("几点", "小王几点", "小王几点", "小王走", "哦"),
        result("几点", "小王几点", "几点", "小王走", "哦"),
        result("几点", "小王几点", "几点", *["小王走"] * 6),
    ]
    assert analysis.em_by_history_turns(lines) == {
        "0": {"lines": 1, "em": 1.0},
        "2": {"lines": 2, "em": 1 / 2},
        "5-8": {"lines": 1, "em": 0.0},
    }


@pytest.mark.parametrize(
    ("history", "reference", "expected"),
    [
        (("小王走了", "哦"), "小王几点", 2),
        (("小王走了", "小王是谁"), "小王几点", 1),  # of the turns that hold it, the latest
        (("北京冷", "小王走了", "哦"), "小王在北京几点", 3),  # all the words have to be seen
        (("小 王走了",), "小王几点", 1),
        (("他的车", "小王走了"), "小王的几点", 1),  # 的 is no word to look back for
        (("哦",), "小王几点", None),
        ((), "小王几点", None),
    ],
)
def test_distance_is_how_far_one_must_read_back(history: tuple[str, ...], reference: str, expected: int | None) -> None:
    assert analysis.distance(result("几点", reference, "几点", *history)) == expected


def test_exact_match_by_distance_leaves_out_lines_that_restore_nothing() -> None:
    lines = [
        result("几点", "小王几点", "几点", "哦"),
        result("几点", "小王几点", "小王几点", "小王走了", "哦"),
        result("几点", "小王几点", "几点", "小王走了"),
        result("早上好", "早上好", "早上好", "小王走了"),
    ]
    section = analysis.em_by_distance(lines)
    assert list(section.items()) == [
        ("1", {"lines": 1, "em": 0.0}),
        ("2", {"lines": 1, "em": 1.0}),
        ("not said", {"lines": 1, "em": 0.0}),
    ]


# --- recall of words --------------------------------------------------------------------------------------------------


def test_recall_by_kind_of_word_counts_every_restored_word() -> None:
    lines = [
        result("冷吗", "北京昨天冷吗", "北京冷吗"),
        result("好看吗", "电影好看吗", "电影好看吗"),
        result("那里呢", "上海呢", "那里呢"),
    ]
    assert analysis.recall_by_word_kind(lines) == {
        "place": {"words": 2, "recall": 1 / 2},
        "number_or_time": {"words": 1, "recall": 0.0},
        "other_noun": {"words": 1, "recall": 1.0},
    }


def test_a_word_that_was_in_the_utterance_already_is_not_restored_by_leaving_it_there() -> None:
    line = result("北京的冬天呢", "北京的冬天北京人呢", "北京的冬天呢")
    assert not analysis.is_restored("北京", line)


def test_lines_with_words_the_model_never_learnt_stand_apart() -> None:
    # In the tiny language 梅西 is on no list, 北京 is.
    lines = [
        result("几岁", "梅西几岁", "梅西几岁"),
        result("他喜欢吗", "梅西喜欢北京吗", "他喜欢北京吗"),
        result("冷吗", "北京冷吗", "北京冷吗"),
        result("早上好", "早上好", "早上好"),
    ]
    assert analysis.by_training_words(lines, tiny.features()) == {
        "unseen": {"lines": 2, "em": 1 / 2, "words": 2, "recall": 1 / 2},
        "seen": {"lines": 1, "em": 1.0, "words": 1, "recall": 1.0},
    }


def test_a_name_that_the_conversation_repeats_is_one_word() -> None:
    """墨 and 竹 stand on the word list; together, as the model reads them here, they do not."""
    config = tiny.FEATURES.model_copy(update={"granularity": Granularity.NAMES})
    features = Features(config, Vocabulary((*SPECIAL_WORDS, "墨", "竹"), tiny.VOCABULARY.characters))
    line = result("几岁", "墨竹几岁", "墨竹几岁", "认识墨竹吗", "墨竹很好")
    assert features.encode(Conversation(line.history, line.utterance)).surfaces.count("墨竹") == 2
    section = analysis.by_training_words([line], features)
    assert section["unseen"] == {"lines": 1, "em": 1.0, "words": 1, "recall": 1.0}
    # Where the utterance is longer than the model reads, the tokenizer is all there is.
    long = result("几岁" * 20, "墨竹" + "几岁" * 20, "几岁" * 20, *line.history)
    assert analysis.by_training_words([long], features)["seen"]["words"] == 2


# --- kinds of line ----------------------------------------------------------------------------------------------------


def test_lines_that_need_nothing_are_counted_apart_from_those_that_do() -> None:
    lines = [
        result("几岁", "梅西几岁", "梅西几岁", kind="omission"),
        result("他几岁", "梅西几岁", "他几岁", kind="pronoun"),
        result("她几岁", "小李几岁", "她几岁", kind="pronoun"),
        result("早上好", "早上好", "早上好", kind="greeting"),
        result("好", "好", "好北京", kind="short_answer"),
        result("好吃吗", "好吃吗", "好吃吗"),
    ]
    found = analysis.by_kind(lines)
    assert found["em_restoring"] == 1 / 3
    assert found["untouched"] == 1 / 2
    assert found["kinds"] == {
        "omission": {"lines": 1, "em": 1.0},
        "pronoun": {"lines": 2, "em": 0.0},
        "greeting": {"lines": 1, "em": 1.0},
        "short_answer": {"lines": 1, "em": 0.0},
    }


def test_an_alternative_for_a_line_that_needs_nothing_is_right_but_not_untouched() -> None:
    example = Example(Conversation((), "好"), "好", ("好的",), "short_answer")
    found = analysis.by_kind([line_result(1, example, Rewrite("好的", (), 0.5))])
    assert (found["untouched"], found["kinds"]["short_answer"]["em"]) == (0.0, 1.0)


def test_a_corpus_without_kinds_has_no_figures_by_kind() -> None:
    assert analysis.by_kind(LINES) == {}


def test_a_corpus_of_one_sort_of_kind_has_only_its_figure() -> None:
    assert set(analysis.by_kind([result("好", "好", "好", kind="short_answer")])) == {"untouched", "kinds"}


# --- the whole --------------------------------------------------------------------------------------------------------


def test_the_order_of_lines_does_not_change_the_analysis() -> None:
    assert analysis.analyse(LINES[::-1], tiny.features()) == analysis.analyse(LINES, tiny.features())


def test_a_table_has_a_row_a_group_and_marks_what_cannot_be_told() -> None:
    text = analysis.table({"classes": {"both": {"lines": 12, "em": 0.25}, "neither": {"lines": 0, "em": None}}})
    assert [line.split() for line in text.splitlines()] == [
        ["classes", "lines", "em"],
        ["both", "12", "0.2500"],
        ["neither", "0", "–"],
    ]
