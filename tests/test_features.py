"""Conversation to arrays and back."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewriter.config import Calibration, FeaturesConfig
from rewriter.conversation import Conversation, Origin, Rewrite, Span
from rewriter.features import (
    ARRAY_NAMES,
    PADDING_TURN,
    UTTERANCE_TURN,
    Features,
    Source,
    UtteranceTooLongError,
    collate,
    pad,
    round_up,
)
from rewriter.tokenizer import Granularity, normalize
from rewriter.vocabulary import EOS, EOT, PAD, SPECIAL_CHARACTERS, SPECIAL_WORDS, UNK, Vocabulary

WORDS = ("的", "是", "西安", "明天", "今天", "天气", "吗", "nba")
VOCABULARY = Vocabulary(SPECIAL_WORDS + WORDS, SPECIAL_CHARACTERS + tuple("的是西安明天今气吗nba"))
CONFIG = FeaturesConfig(
    granularity=Granularity.WORD,
    function_words=("的", "是", "ok"),
    characters_per_token=2,
    max_history_turns=3,
    max_source_tokens=20,
    max_utterance_tokens=8,
)
BANK = len(CONFIG.function_words)
FEATURES = Features(CONFIG, VOCABULARY)
SHIPPED = Features(FeaturesConfig(), VOCABULARY)
BY_DICTIONARY = Features(FeaturesConfig(granularity=Granularity.DICTIONARY), VOCABULARY)

# Turn, turn, …, utterance and a rewrite of it that copies, with the casing and the spaces of whoever typed it.
REWRITES = [
    (("西安今天的天气怎么样", "多云转小雨"), "明天有雨吗", "西安明天有雨吗"),
    (("你看过Harry Potter吗",), "谁演的", "谁演的Harry Potter"),
    (("我买了个iPhone 15 Pro", "多少钱"), "贵吗", "iPhone 15 Pro贵吗"),
    (("ＮＢＡ你最喜欢谁", "科比"), "为什么喜欢他", "为什么喜欢科比"),
    (("我今年有三只猫",), "它们 几岁了", "三只猫几岁了"),
    (("百年孤独挺好看",), "作者是谁呀", "百年孤独的作者是谁呀"),
    (("爱❤\ufe0f你", "嗯"), "爱谁", "爱❤\ufe0f你"),
    (("晚安",), "早上好", "早上好"),
]

VISIBLE = "西安明天天气吗NBAnbaé１2，。 😀❤½℃⑴"
TURNS = st.text(st.sampled_from(VISIBLE + "\u200b\u200d\u0301\ufe0f\t\u3000"), max_size=12)
CONVERSATIONS = st.builds(Conversation, st.lists(TURNS, max_size=4).map(tuple), TURNS)


def encode(*turns: str, **changes: object) -> Source:
    """Encodes a conversation whose last turn is the utterance."""
    features = (
        Features(FeaturesConfig.model_validate(CONFIG.model_dump() | changes), VOCABULARY) if changes else FEATURES
    )
    return features.encode(Conversation(turns[:-1], turns[-1]))


def position(source: Source, surface: str, which: int = 0) -> int:
    return [i for i, other in enumerate(source.surfaces) if other == surface][which]


def words_of(source: Source, turn_id: int) -> list[str]:
    return [s for s, t in zip(source.surfaces, source.turn_ids, strict=True) if s is not None and t == turn_id]


def restore(source: Source, positions: Sequence[int]) -> str:
    return FEATURES.restore(source, positions)[0]


def assert_spans_tell_the_truth(
    conversation: Conversation, text: str, spans: Sequence[Span], bank: Sequence[str]
) -> None:
    turns = (*conversation.history, conversation.utterance)
    covered = 0
    for span in spans:
        assert text[covered : span.start] in ("", " ")
        assert span.start < span.end
        covered = span.end
        piece = text[span.start : span.end]
        if span.origin is Origin.FUNCTION_WORD:
            assert piece in bank
            assert (span.turn, span.source_start, span.source_end) == (-1, 0, 0)
        else:
            assert (span.turn == len(conversation.history)) == (span.origin is Origin.UTTERANCE)
            assert span.turn >= 0
            assert piece == turns[span.turn][span.source_start : span.source_end]
    assert covered == len(text)
    assert not spans or spans[0].start == 0


# The layout


def test_bank_then_turns_with_their_ends_then_the_utterance_with_the_end() -> None:
    source = encode("西安天气", "是吗", "明天")
    assert source.surfaces == ("的", "是", "ok", "西安", "天气", None, "是", "吗", None, "明天", None)
    known = {word: index for index, word in enumerate(VOCABULARY.words)}
    expected = [known["的"], known["是"], UNK, known["西安"], known["天气"], EOT, known["是"], known["吗"], EOT]
    assert source.word_ids.tolist() == [*expected, known["明天"], EOS]
    assert source.turn_ids.tolist() == [5, 5, 5, 3, 3, 3, 2, 2, 2, UTTERANCE_TURN, UTTERANCE_TURN]
    assert source.copy_ids.tolist() == [0, 1, 2, 3, 4, 5, 1, 7, 8, 9, 10]
    assert (source.end, source.utterance_positions, source.truncated) == (10, [9], False)


def test_characters_are_those_of_the_word_cut_and_padded() -> None:
    source = encode("哈利波特", "吗")
    characters = VOCABULARY.characters
    assert source.character_ids[0].tolist() == [characters.index("的"), PAD]
    assert source.character_ids[BANK].tolist() == [UNK, UNK]
    assert source.character_ids[source.end].tolist() == [PAD, PAD]
    assert source.character_ids.shape == (len(source), CONFIG.characters_per_token)


def test_all_arrays_are_int32_of_one_length() -> None:
    source = encode("西安天气", "明天")
    for name in ARRAY_NAMES:
        array = getattr(source, name)
        assert array.dtype == np.int32
        assert len(array) == len(source) == len(source.surfaces) == len(source.places)


@pytest.mark.parametrize("older", [(), ("西安",), ("西安", "是")])
def test_the_previous_turn_has_the_same_id_in_every_conversation(older: tuple[str, ...]) -> None:
    source = encode(*older, "西安天气", "明天")
    assert words_of(source, UTTERANCE_TURN) == ["明天"]
    assert words_of(source, UTTERANCE_TURN + 1) == ["西安", "天气"]
    assert words_of(source, CONFIG.max_turn_id) == ["的", "是", "ok"]


def test_the_bank_has_an_id_that_no_turn_has() -> None:
    source = encode("西安", "今天", "天气", "明天")
    assert sorted(set(source.turn_ids.tolist())) == [1, 2, 3, 4, CONFIG.max_turn_id]


def test_equal_words_share_a_copy_id_across_case_and_width() -> None:
    source = encode("ＮＢＡ西安", "nba", "NBA Nba")
    first = position(source, "nba")
    assert [source.copy_ids[i] for i, s in enumerate(source.surfaces) if s == "nba"] == [first] * 4


def test_a_word_of_the_bank_that_is_said_shares_its_copy_id() -> None:
    source = encode("OK是吗", "明天")
    assert source.copy_ids[position(source, "ok", 1)] == 2
    assert source.copy_ids[position(source, "是", 1)] == 1


def test_turn_ends_share_no_copy_id() -> None:
    source = encode("西安", "今天", "明天")
    ends = [i for i, surface in enumerate(source.surfaces) if surface is None]
    assert [source.copy_ids[i] for i in ends] == ends


def test_places_name_the_characters_of_every_word() -> None:
    conversation = Conversation((" ＮＢＡ 西安", "", "今天"), "明天 Nba")
    source = FEATURES.encode(conversation)
    turns = (*conversation.history, conversation.utterance)
    said = [turns[place[0]][place[1].start : place[1].end] for place in source.places if place]
    assert said == ["ＮＢＡ", "西安", "今天", "明天", "Nba"]


def test_character_mode_has_one_position_for_each_chinese_character() -> None:
    source = encode("西安", "明天", granularity=Granularity.CHARACTER)
    assert source.surfaces[BANK:] == ("西", "安", None, "明", "天", None)


# What is left out


@pytest.mark.parametrize("empty", ["", "  ", "\u200b", "\t\r\n"])
def test_empty_turns_are_skipped_and_take_no_id(empty: str) -> None:
    assert (
        encode("西安", empty, "今天", empty, "明天").turn_ids.tolist()
        == encode("西安", "今天", "明天").turn_ids.tolist()
    )
    assert not encode(empty, empty, empty, empty, empty, "明天").truncated


def test_turns_beyond_the_limit_are_left_out_oldest_first() -> None:
    source = encode("西安", "今天", "天气", "吗", "明天")
    assert words_of(source, 4) == ["今天"]
    assert "西安" not in source.surfaces
    assert source.truncated


def test_as_many_turns_as_the_limit_are_read() -> None:
    assert not encode("西安", "今天", "天气", "明天").truncated


@pytest.mark.parametrize("nothing", ["", " ", "\u200b"])
def test_leaving_out_turns_without_words_is_no_truncation(nothing: str) -> None:
    assert not encode(nothing, "西安", "今天", "天气", "明天").truncated


def test_a_history_that_is_too_long_loses_its_oldest_words() -> None:
    source = encode("西安 " * 6 + "今天", "天气 " * 6, "明天 " * 5)
    # 20 positions: 5 + end for the utterance, 6 + end for the turn before it, 6 + end for what is left of the oldest.
    assert len(source) == BANK + CONFIG.max_source_tokens
    assert words_of(source, 3) == ["西安"] * 5 + ["今天"]
    assert words_of(source, 2) == ["天气"] * 6
    assert words_of(source, 1) == ["明天"] * 5
    assert source.truncated


def test_a_history_that_just_fits_is_whole() -> None:
    source = encode("西安 " * 6, "天气 " * 6, "明天 " * 5)
    assert len(source) == BANK + CONFIG.max_source_tokens
    assert not source.truncated


def test_an_older_turn_without_room_for_a_word_is_left_out() -> None:
    source = encode("西安", "天气 " * 12, "明天 " * 5)
    assert sorted(set(source.turn_ids.tolist())) == [1, 2, CONFIG.max_turn_id]
    assert len(words_of(source, 2)) == 12
    assert source.truncated


def test_an_utterance_without_room_for_history_is_read_alone() -> None:
    source = encode("西安", "明天 " * 8, max_source_tokens=10)
    assert source.truncated
    assert source.nothing_to_do
    assert words_of(source, UTTERANCE_TURN) == ["明天"] * 8


def test_a_model_without_history_turns_reads_none() -> None:
    source = encode("西安", "明天", max_history_turns=0)
    assert source.truncated
    assert source.nothing_to_do


def test_an_utterance_at_the_limit_is_read_and_one_beyond_it_refused() -> None:
    assert len(encode("西安", "明天 " * 8).utterance_positions) == 8
    with pytest.raises(UtteranceTooLongError, match="at most 8 tokens, found 9"):
        encode("西安", "明天 " * 9)


def test_the_refusal_of_a_long_utterance_does_not_repeat_it() -> None:
    with pytest.raises(UtteranceTooLongError) as refused:
        encode("西安", "秘密 " * 9)
    assert "秘密" not in str(refused.value)


@settings(max_examples=200, deadline=None)
@given(turns=st.lists(st.lists(st.sampled_from(["西安", "天气", "?"]), max_size=9), max_size=6), said=st.integers(0, 8))
def test_whatever_is_left_out_the_end_of_the_conversation_is_read(turns: list[list[str]], said: int) -> None:
    source = encode(*map(" ".join, turns), "明天 " * said)
    read = [place[0] for place in source.places if place]
    heard = [word for turn in turns for word in turn]
    kept = [s for s, place in zip(source.surfaces, source.places, strict=True) if place and place[0] < len(turns)]
    assert kept == heard[len(heard) - len(kept) :]
    assert read == sorted(read)
    assert len(source) <= BANK + CONFIG.max_source_tokens
    assert len(source.utterance_positions) == said
    assert source.truncated == (len(kept) < len(heard))


# Nothing to do


@pytest.mark.parametrize("history", [(), ("",), (" ", "\u200b")])
def test_without_history_the_bank_is_masked_and_there_is_nothing_to_do(history: tuple[str, ...]) -> None:
    source = encode(*history, "明天")
    assert source.turn_ids.tolist() == [PADDING_TURN] * BANK + [UTTERANCE_TURN] * 2
    assert source.nothing_to_do


@pytest.mark.parametrize("utterance", ["", " \t", "\u200b"])
def test_without_an_utterance_there_is_nothing_to_do(utterance: str) -> None:
    assert encode("西安", utterance).nothing_to_do


def test_with_history_and_utterance_there_is_something_to_do() -> None:
    assert not encode("西安", "明天").nothing_to_do


# Targets and the text they restore


@pytest.mark.parametrize(("history", "utterance", "reference"), REWRITES, ids=[row[2] for row in REWRITES])
@pytest.mark.parametrize("granularity", list(Granularity))
def test_what_a_reference_is_aligned_with_restores_it(
    history: tuple[str, ...], utterance: str, reference: str, granularity: Granularity
) -> None:
    features = Features(FeaturesConfig(granularity=granularity), VOCABULARY)
    conversation = Conversation(history, utterance)
    source = features.encode(conversation)
    target = features.target(source, reference)
    assert target is not None
    assert target[-1] == source.end
    text, spans = features.restore(source, target[:-1])
    assert text.replace(" ", "") == reference.replace(" ", "")
    assert_spans_tell_the_truth(conversation, text, spans, features.config.function_words)


def test_the_casing_of_the_user_is_restored_whatever_the_reference_has() -> None:
    source = SHIPPED.encode(Conversation(("你看ＮＢＡ和iPhone吗",), "好看吗"))
    target = SHIPPED.target(source, "nba和IPHONE好看吗")
    assert target is not None
    assert SHIPPED.restore(source, target[:-1])[0] == "ＮＢＡ和iPhone好看吗"


def test_a_target_follows_the_rule_of_places() -> None:
    source = encode("天气", "西安天气", "明天天气")
    target = FEATURES.target(source, "西安明天天气")
    assert target == [position(source, "西安"), *source.utterance_positions, source.end]


def test_the_target_of_an_untouched_utterance_is_its_own_positions() -> None:
    source = encode("明天西安", "明天天气是ok的")
    assert FEATURES.target(source, "明天天气是OK的") == [*source.utterance_positions, source.end]


def test_a_reference_with_a_word_that_nobody_said_has_no_target() -> None:
    assert FEATURES.target(encode("西安", "明天"), "北京明天") is None


def test_function_words_are_there_only_if_something_was_said_before() -> None:
    assert FEATURES.target(encode("西安", "明天"), "是明天的") is not None
    assert FEATURES.target(encode("明天"), "是明天的") is None


def test_the_words_of_a_turn_that_was_left_out_have_no_target() -> None:
    assert FEATURES.target(encode("西安", "今天", "天气", "吗", "明天"), "西安明天") is None


# Text and spans


def test_an_untouched_utterance_comes_back_to_the_letter() -> None:
    conversation = Conversation(("西安",), " \u3000明天\u200b  Nba\u200d \t❤\ufe0f ")
    source = FEATURES.encode(conversation)
    text, spans = FEATURES.restore(source, source.utterance_positions)
    assert text == conversation.utterance
    assert spans == (Span(0, len(text), Origin.UTTERANCE, 1, 0, len(text)),)


def test_words_said_side_by_side_come_back_with_what_stood_between_them() -> None:
    source = encode("你看Harry\u00a0 Potter吗", "明天")
    start = position(source, "harry")
    assert restore(source, [start, start + 1, *source.utterance_positions]) == "Harry\u00a0 Potter明天"


def test_latin_words_and_numbers_from_two_places_are_kept_apart_by_a_space() -> None:
    source = encode("NBA", "15", "iPhone明天")
    nba, number, phone, tomorrow = (position(source, word) for word in ("nba", "15", "iphone", "明天"))
    assert restore(source, [phone, number, nba]) == "iPhone 15 NBA"
    assert restore(source, [phone, tomorrow, number, tomorrow]) == "iPhone明天15明天"


@pytest.mark.parametrize("word", ["ＮＢＡ", "cafe\u0301"], ids=["full width", "accent at the end"])
def test_odd_latin_words_are_kept_apart_too(word: str) -> None:
    source = encode(f"{word}，{word}", "明天")
    first, second = BANK, BANK + 2
    assert restore(source, [first, first]) == f"{word} {word}"
    assert restore(source, [second, first, first + 1]) == f"{word} {word}，"


def test_words_of_the_bank_are_written_one_by_one() -> None:
    source = encode("西安", "明天")
    text, spans = FEATURES.restore(source, [0, 1, 2, 2])
    assert text == "的是ok ok"
    assert [(span.origin, span.turn, span.start, span.end) for span in spans] == [
        (Origin.FUNCTION_WORD, -1, 0, 1),
        (Origin.FUNCTION_WORD, -1, 1, 2),
        (Origin.FUNCTION_WORD, -1, 2, 4),
        (Origin.FUNCTION_WORD, -1, 5, 7),
    ]


def test_a_run_does_not_reach_from_the_bank_into_the_history() -> None:
    source = encode("西安", "明天")
    _, spans = FEATURES.restore(source, [BANK - 1, BANK])
    assert [span.origin for span in spans] == [Origin.FUNCTION_WORD, Origin.HISTORY]


def test_turns_are_counted_from_the_oldest_even_if_some_are_not_read() -> None:
    source = encode("西安", "", "今天", "天气", "吗", "明天")
    _, spans = FEATURES.restore(source, [position(source, "今天"), position(source, "明天")])
    assert [(span.turn, span.origin) for span in spans] == [(2, Origin.HISTORY), (5, Origin.UTTERANCE)]


@settings(max_examples=400, deadline=None)
@given(conversation=CONVERSATIONS, data=st.data())
def test_spans_cover_any_rewrite_and_name_where_it_was_copied(conversation: Conversation, data: st.DataObject) -> None:
    source = SHIPPED.encode(conversation)
    writable = [i for i, surface in enumerate(source.surfaces) if surface is not None]
    positions = data.draw(st.lists(st.sampled_from(writable), min_size=1, max_size=10))
    text, spans = SHIPPED.restore(source, positions)
    assert_spans_tell_the_truth(conversation, text, spans, SHIPPED.config.function_words)
    written = "".join(source.surfaces[i] or "" for i in positions)
    assert normalize(text).replace(" ", "") == written


@pytest.mark.parametrize("features", [SHIPPED, BY_DICTIONARY], ids=["names", "dictionary"])
@settings(max_examples=300, deadline=None)
@given(conversation=CONVERSATIONS)
@example(conversation=Conversation(("⑴",), "½ 明天\u3000"))
@example(conversation=Conversation(("22",), "2 2"))  # a word of the history spells it in fewer words
def test_any_utterance_is_its_own_reference(features: Features, conversation: Conversation) -> None:
    source = features.encode(conversation)
    target = features.target(source, conversation.utterance)
    assert target is not None
    *positions, end = target
    spelled = "".join(source.surfaces[i] or "" for i in positions)
    assert spelled == normalize(conversation.utterance).replace(" ", "")
    assert end == source.end
    assert features.restore(source, source.utterance_positions)[0] == conversation.utterance


# Reading the model's answers


def test_an_answer_becomes_a_rewrite_with_confidence_and_gates() -> None:
    source = encode("西安", "明天")
    positions = np.array([position(source, "西安"), position(source, "明天"), -1, -1], np.int32)
    rewrite = FEATURES.rewrite(source, positions, math.log(0.25), np.array([0.75, 0.5, 0, 0], np.float32))
    spans = (Span(0, 2, Origin.HISTORY, 0, 0, 2), Span(2, 4, Origin.UTTERANCE, 1, 0, 2))
    assert rewrite == Rewrite("西安明天", spans, pytest.approx(0.25), (0.75, 0.5))


@pytest.mark.parametrize("log_prob", [0.0, 1e-6, 1e-3])
def test_a_confidence_is_at_most_one(log_prob: float) -> None:
    source = encode("西安", "明天")
    assert FEATURES.rewrite(source, [BANK], log_prob).confidence == 1.0


@pytest.mark.parametrize(
    "positions",
    [[], [-1, -1], [99], [BANK, 99], [BANK, -2], [BANK, -1, BANK], [BANK + 1], [BANK, BANK + 3]],
    ids=["none", "ends alone", "beyond", "one beyond", "negative", "gap", "end of a turn", "end of the utterance"],
)
def test_positions_that_cannot_be_copied_are_refused(positions: list[int]) -> None:
    source = encode("西安", "明天")
    with pytest.raises(ValueError, match=r"expected .*position.*, found"):
        FEATURES.rewrite(source, positions, -0.5)


@pytest.mark.parametrize("log_prob", [math.nan, 0.1, math.inf])
def test_what_is_no_log_probability_is_refused(log_prob: float) -> None:
    with pytest.raises(ValueError, match="expected a log-probability, found"):
        FEATURES.rewrite(encode("西安", "明天"), [BANK], log_prob)


# Withholding


def calibrated_features(**calibration: float) -> Features:
    return Features(CONFIG.model_copy(update={"calibration": Calibration(**calibration)}), VOCABULARY)


def test_a_confidence_is_calibrated() -> None:
    source = encode("西安", "明天")
    rewrite = calibrated_features(slope=2.0).rewrite(source, [BANK], math.log(0.6))
    assert rewrite.confidence == pytest.approx(0.36 / (0.36 + 0.16))


@pytest.mark.parametrize(("least", "withheld"), [(0.0, False), (0.24, False), (0.26, True), (1.0, True)])
def test_a_rewrite_below_the_least_confidence_is_withheld(least: float, withheld: bool) -> None:
    features = calibrated_features(min_confidence=least)
    source = encode("西安", " 明天\u3000吗")
    rewrite = features.rewrite(source, [BANK, BANK + 2], math.log(0.25), [0.9, 0.1])
    assert rewrite.text == "西安明天"
    trusted = features.trusted(source, rewrite)
    if withheld:
        whole = Span(0, 5, Origin.UTTERANCE, 1, 0, 5)
        assert trusted == Rewrite(" 明天\u3000吗", (whole,), pytest.approx(0.75))
    else:
        assert trusted is rewrite


def test_a_rewrite_as_sure_as_the_least_confidence_is_given() -> None:
    features = calibrated_features(min_confidence=0.25)
    source = encode("西安", "明天")
    rewrite = Rewrite("西安明天", (), 0.25)
    assert features.trusted(source, rewrite) is rewrite


def test_a_rewrite_that_loses_most_of_a_long_turn_is_withheld() -> None:
    features = calibrated_features()
    source = encode("西安", "明天 后天 大后天 都 下雨 吗")
    rewrite = features.rewrite(source, [BANK, BANK + 2], math.log(0.9))
    assert features.trusted(source, rewrite) == Rewrite.unchanged(source.conversation, pytest.approx(0.1))


@pytest.mark.parametrize("log_prob", [-9.0, -0.1])
def test_an_answer_that_changes_nothing_is_never_withheld(log_prob: float) -> None:
    features = calibrated_features(slope=0.5, intercept=-1.0, min_confidence=1.0)
    source = encode("西安", "明天 吗")
    rewrite = features.rewrite(source, source.utterance_positions, log_prob, [0.1, 0.2])
    assert features.trusted(source, rewrite) is rewrite


def test_an_unchanged_rewrite_of_nothing_has_no_span() -> None:
    assert Rewrite.unchanged(Conversation(("西安",), ""), 1.0) == Rewrite("", (), 1.0)


# Batches


def test_a_batch_pads_every_array_with_zeros_to_the_longest() -> None:
    short, long = encode("西安", "明天"), encode("西安天气", "明天吗")
    batch = collate([short, long])
    assert tuple(batch) == ARRAY_NAMES
    for name in ARRAY_NAMES:
        assert batch[name].shape[:2] == (2, len(long))
        assert batch[name].dtype == np.int32
        assert np.array_equal(batch[name][0, : len(short)], getattr(short, name))
        assert np.array_equal(batch[name][1], getattr(long, name))
        assert not batch[name][0, len(short) :].any()
    assert batch["character_ids"].shape[2] == CONFIG.characters_per_token


def test_a_batch_is_padded_to_the_length_asked_for() -> None:
    source = encode("西安", "明天")
    assert collate([source], 30)["word_ids"].shape == (1, 30)
    assert collate([source], len(source))["word_ids"].shape == (1, len(source))


def test_a_batch_is_never_cut() -> None:
    source = encode("西安", "明天")
    with pytest.raises(ValueError, match=f"expected at most {len(source) - 1} positions, found {len(source)}"):
        collate([source], len(source) - 1)


def test_rows_are_padded_with_the_value_asked_for() -> None:
    assert pad([np.array([1, 2]), np.array([3])], value=-1).tolist() == [[1, 2], [3, -1]]


@pytest.mark.parametrize(("length", "expected"), [(1, 8), (8, 8), (9, 16), (16, 16)])
def test_lengths_are_rounded_up_to_the_next_step(length: int, expected: int) -> None:
    assert round_up(length, 8) == expected


def test_encoding_twice_gives_the_same_source() -> None:
    first, second = (encode("西安 NBA", "明天") for _ in range(2))
    for field in dataclasses.fields(Source):
        assert np.array_equal(
            np.array(getattr(first, field.name), object), np.array(getattr(second, field.name), object)
        )
