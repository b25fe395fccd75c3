"""Tokens know the characters they were made of, whatever people type."""

import time
import unicodedata
from functools import lru_cache

import jieba
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewriter.tokenizer import Granularity, Token, Tokenizer, normalize

# The characters that break tokenizers, often enough to meet each other, among any others there are.
AWKWARD = (
    "西安天气ABab09ＡＢ１，。…—（）()#.%+- \t\r\n\u3000\u00a0\u2028\u0085\u200b\u200d"
    "\ufeff\u00ad\u202e\u0301\u0308\u20e3\ufe0f\x00\x1b\U0001f468\U0001f469\U0001f1e8\U0001f3fd❤İßﬁ½℃⑴㍿ﷺ´가각กิд\U00020bb7\U0010ffff\ue000"
)
TEXTS = st.text(st.one_of(st.sampled_from(AWKWARD), st.characters()), max_size=40)

words = Tokenizer(Granularity.WORD)
characters = Tokenizer(Granularity.CHARACTER)
dictionary = Tokenizer(Granularity.DICTIONARY)

every_granularity = pytest.mark.parametrize(
    "tokenizer", [words, characters, dictionary], ids=["words", "characters", "dictionary"]
)


@lru_cache(maxsize=1)
def jieba_words() -> set[str]:
    with jieba.get_dict_file() as lines:
        return {line.decode("utf-8").split()[0] for line in lines}


def pieces(text: str, tokenizer: Tokenizer = words) -> list[str]:
    """The characters of the text that each token names."""
    return [text[token.start : token.end] for token in tokenizer.tokenize(text)]


def surfaces(text: str, tokenizer: Tokenizer = words) -> list[str]:
    return [token.surface for token in tokenizer.tokenize(text)]


@every_granularity
@settings(max_examples=400, deadline=None)
@given(text=TEXTS)
@example(text="⑴½杯25℃")
@example(text="\u0301❤\ufe0f\ufe0f")
@example(text="a\ud83db")
def test_tokens_of_any_text_follow_each_other_inside_it(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.tokenize(text)
    ends = [0, *(token.end for token in tokens)]
    for end, token in zip(ends, tokens, strict=False):
        assert end <= token.start < token.end <= len(text)
        assert token.surface
        assert not any(character.isspace() for character in token.surface)
        assert token.surface == normalize(text[token.start : token.end]).replace(" ", "")


@every_granularity
@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_no_character_with_a_meaning_of_its_own_is_lost(tokenizer: Tokenizer, text: str) -> None:
    assert "".join(surfaces(text, tokenizer)) == normalize(text).replace(" ", "")
    named = {index for token in tokenizer.tokenize(text) for index in range(token.start, token.end)}
    left_out = "".join(character for index, character in enumerate(text) if index not in named)
    assert normalize(left_out) == ""


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_normalizing_twice_is_normalizing_once(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_every_surface_can_be_stored_as_a_line_of_utf_8(text: str) -> None:
    for surface in surfaces(text):
        assert surface.encode("utf-8").splitlines() == [surface.encode("utf-8")]


def test_chinese_is_cut_into_words_with_their_offsets() -> None:
    assert words.tokenize("西安明天有雨吗") == [
        Token("西安", 0, 2),
        Token("明天", 2, 4),
        Token("有雨", 4, 6),
        Token("吗", 6, 7),
    ]


def test_character_mode_splits_chinese_words_and_keeps_the_others_whole() -> None:
    text = "明天买iPhone15，3.5元"
    assert pieces(text, characters) == ["明", "天", "买", "iPhone15", "，", "3.5", "元"]


def test_dictionary_mode_guesses_no_words() -> None:
    # jieba's HMM takes 墨竹 and 李小福 for words; a name that is guessed here may be cut in two in the next turn.
    assert pieces("欧阳墨竹是李小福的朋友") == ["欧阳", "墨竹", "是", "李小福", "的", "朋友"]
    guessless = ["欧阳", "墨", "竹", "是", "李", "小", "福", "的", "朋友"]
    assert pieces("欧阳墨竹是李小福的朋友", dictionary) == guessless


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from("今天气西安明日本人学生活动物理想法国家长大小米饭店员工作业青柠鲨鱼龘𠮷")))
def test_dictionary_mode_cuts_no_word_that_the_dictionary_has_not(text: str) -> None:
    assert {word for word in surfaces(text, dictionary) if len(word) > 1} <= jieba_words()


def test_character_mode_splits_rare_characters_outside_the_basic_plane() -> None:
    assert pieces("\U00020bb7野家", characters) == ["\U00020bb7", "野", "家"]


def test_full_width_and_capital_forms_are_compared_in_their_plain_form_and_kept_as_typed() -> None:
    text = "ＮＢＡ球星 NBA １２３"
    assert pieces(text) == ["ＮＢＡ", "球星", "NBA", "１２３"]
    assert surfaces(text) == ["nba", "球星", "nba", "123"]


def test_half_width_katakana_and_its_voicing_mark_stay_together_in_the_text() -> None:
    assert "".join(pieces("ｶﾞﾝﾀﾞﾑ")) == "ｶﾞﾝﾀﾞﾑ"


def test_a_family_emoji_is_copied_with_its_joiners_when_copied_whole() -> None:
    text = "我家\U0001f468\u200d\U0001f469\u200d\U0001f467好"
    tokens = words.tokenize(text)
    family = [token for token in tokens if token.surface in "\U0001f468\U0001f469\U0001f467"]
    assert len(family) == 3
    assert text[family[0].start : family[-1].end] == "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("爱❤\ufe0f你", ["爱", "❤\ufe0f", "你"]),
        ("第1\ufe0f\u20e3名", ["第", "1\ufe0f\u20e3", "名"]),
        ("cafe\u0301", ["cafe\u0301"]),
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
    ],
    ids=["variation selector", "keycap", "accent at the end", "accent before a space"],
)
def test_a_token_keeps_the_marks_on_its_last_character(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize("invisible", ["\u200b", "\u200d", "\ufeff", "\u202c"])
def test_a_token_does_not_keep_what_joins_or_parts_it_from_the_next(invisible: str) -> None:
    # A joiner copied along would melt two emoji into one wherever they are copied to.
    assert pieces(f"\U0001f468{invisible}\U0001f469好{invisible}") == ["\U0001f468", "\U0001f469", "好"]


@pytest.mark.parametrize("invisible", ["\u200b", "\u200c", "\u200d", "\ufeff", "\u00ad", "\u2060", "\ufe0e"])
def test_a_mark_without_width_does_not_tell_words_apart(invisible: str) -> None:
    text = f"西{invisible}安"
    assert words.tokenize(text) == [Token("西安", 0, 3)]


@pytest.mark.parametrize(
    "text", ["", " ", "\t\r\n", "\u3000\u00a0\u2003", "\u200b\u200d\ufeff", "\x00\x1f\x7f", "\u0301\ufe0f"]
)
def test_a_turn_without_visible_characters_has_no_tokens(text: str) -> None:
    assert words.tokenize(text) == []
    assert normalize(text) == ""


def test_control_characters_and_line_ends_separate_words() -> None:
    text = "北京\r\n天气\x00 ab\x1bcd"
    assert words.tokenize(text) == [Token("北京", 0, 2), Token("天气", 4, 6), Token("ab", 8, 10), Token("cd", 11, 13)]


def test_the_turkish_capital_i_is_one_letter() -> None:
    assert words.tokenize("İstanbul好") == [Token("istanbul", 0, 8), Token("好", 8, 9)]


def test_a_ligature_belongs_to_the_word_around_it() -> None:
    assert words.tokenize("ﬁne") == [Token("fine", 0, 3)]
    assert words.tokenize("oﬀ") == [Token("off", 0, 2)]


@every_granularity
@pytest.mark.parametrize(
    ("text", "surface"), [("½", "1⁄2"), ("℃", "°c"), ("⑴", "(1)"), ("㍿", "株式会社"), ("…", "...")]
)
def test_one_character_that_normalizes_to_several_is_one_token(tokenizer: Tokenizer, text: str, surface: str) -> None:
    assert tokenizer.tokenize(f"好{text}的") == [Token("好", 0, 1), Token(surface, 1, 2), Token("的", 2, 3)]


def test_mixed_scripts_keep_their_characters() -> None:
    text = "用Python写КНДР的안녕APP、ไทย😀v2.0"
    assert "".join(pieces(text)) == text
    assert {"python", "app", "的"} <= set(surfaces(text))


@pytest.mark.parametrize(
    "emoji", ["\U0001fa77", "\U0001fae8", "\ue415"], ids=["pink heart", "shaking face", "private use"]
)
def test_emoji_that_this_python_does_not_know_are_words(emoji: str) -> None:
    assert surfaces(f"真好听{emoji}") == [*surfaces("真好听"), emoji]


def test_half_of_a_surrogate_pair_is_no_word() -> None:
    assert words.tokenize("好\ud83d的") == [Token("好", 0, 1), Token("的", 2, 3)]


def test_no_character_of_unicode_normalizes_to_something_invisible_in_a_word() -> None:
    for code in range(0x20000):
        normalized = normalize(chr(code))
        assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Mn", "Me") for c in normalized), hex(code)


@pytest.mark.parametrize("unit", ["今天天气不错，", "龘", "a", " ", "😀", "\u0301"])
def test_a_very_long_text_is_read_in_full(unit: str) -> None:
    text = unit * (12_000 // len(unit))
    started = time.process_time()
    assert "".join(surfaces(text)) == normalize(text).replace(" ", "")
    assert time.process_time() - started < 10
