from rewriter.restorations import (
    PRONOUNS,
    Restoration,
    resolved_pronouns,
    restorations,
    restored_pieces,
    restored_texts,
    units,
)


def test_a_pronoun_a_latin_word_and_a_number_are_one_unit_each() -> None:
    assert units("他们用Python 3.11写这个") == ["他们", "用", "python", "3.11", "写", "这个"]


def test_a_word_that_only_looks_as_if_it_held_a_pronoun_holds_none() -> None:
    assert units("其他吉他") == ["其他", "吉他"]
    assert not PRONOUNS & {"其他", "吉他"}


def test_a_replaced_pronoun_and_an_inserted_piece_are_told_apart() -> None:
    assert restorations("他为什么喜欢", "小王为什么喜欢爬山") == (
        Restoration(place=0, pronouns=(0,), text="小王"),
        Restoration(place=6, pronouns=(), text="爬山"),
    )


def test_a_noun_that_goes_with_its_demonstrative_is_replaced_with_it() -> None:
    # 这 部 电 影 好 看 吗: the pronoun is the first unit, all four are replaced.
    assert restorations("这部电影好看吗", "红楼梦好看吗") == (Restoration(0, (0,), "红楼梦"),)


def test_words_put_before_a_pronoun_that_stays_are_a_piece() -> None:
    assert resolved_pronouns("那里冷吗", "北京那里冷吗") == frozenset()
    assert restored_pieces("那里冷吗", "北京那里冷吗") == {(0, "北京")}


def test_a_replaced_word_that_is_no_pronoun_counts_as_a_piece_in_its_place() -> None:
    # With and without the particle the words go in at the same place, so that they count as the same piece.
    assert restored_pieces("为什么呢", "为什么辞职") == restored_pieces("为什么呢", "为什么辞职呢") == {(3, "辞职")}


def test_every_replaced_pronoun_counts_at_its_place() -> None:
    assert resolved_pronouns("他喜欢她吗", "小王喜欢小李吗") == {(0, "小王"), (3, "小李")}


def test_what_is_only_left_out_and_punctuation_restore_nothing() -> None:
    assert restorations("那明天呢", "明天呢？") == ()
    assert restorations("这个真好", "真好") == ()


def test_case_spaces_and_width_make_no_difference() -> None:
    assert restorations("买 ＮＢＡ 球衣", "买nba球衣") == ()


def test_latin_words_stay_apart_in_restored_texts() -> None:
    assert restored_texts("那里冷吗", "New York冷吗") == ("new york",)


def test_a_text_restores_nothing_in_itself() -> None:
    for text in ("他为什么喜欢这个", "", "OK 3.5元"):
        assert restorations(text, text) == ()
