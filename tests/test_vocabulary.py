"""The word lists: what an id means never changes by accident."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriter.vocabulary import BOS, EOS, EOT, PAD, SPECIAL_CHARACTERS, SPECIAL_WORDS, UNK, Vocabulary

ODD_WORDS = ("a\u2028b", "a\u0085b", "a\x0bb", "a\x0cb", "a\x1cb", "a\rb", "\r", " ", "\u3000", "", "ÿ", "\U0001f600")


def vocabulary(
    words: tuple[str, ...] = ("西安", "天气"), characters: tuple[str, ...] = tuple("西安天气")
) -> Vocabulary:
    return Vocabulary(SPECIAL_WORDS + words, SPECIAL_CHARACTERS + characters)


def test_special_entries_have_the_first_ids() -> None:
    assert [vocabulary().word_id(word) for word in SPECIAL_WORDS] == [PAD, UNK, BOS, EOS, EOT] == [0, 1, 2, 3, 4]
    assert SPECIAL_CHARACTERS[PAD] == "<pad>"
    assert SPECIAL_CHARACTERS[UNK] == "<unk>"


def test_an_id_is_an_index_into_the_list() -> None:
    words = vocabulary()
    assert [words.words[words.word_id(word)] for word in ("西安", "天气")] == ["西安", "天气"]
    assert [words.characters[i] for i in words.character_ids("天安", 2)] == ["天", "安"]


def test_what_is_on_no_list_is_unknown() -> None:
    assert vocabulary().word_id("上海") == UNK
    assert vocabulary().character_ids("上安", 2)[0] == UNK


def test_characters_are_cut_and_padded_to_the_length_asked_for() -> None:
    words = vocabulary()
    assert words.character_ids("西安", 4) == [2, 3, PAD, PAD]
    assert words.character_ids("西安天气", 3) == [2, 3, 4]
    assert words.character_ids("", 2) == [PAD, PAD]


def test_the_most_frequent_words_are_kept_and_special_ones_count() -> None:
    built = Vocabulary.build(Counter({"少": 1, "多": 9, "中": 5}), max_words=len(SPECIAL_WORDS) + 2)
    assert built.words == (*SPECIAL_WORDS, "多", "中")


@pytest.mark.parametrize("max_words", [0, 3, len(SPECIAL_WORDS)])
def test_without_room_for_words_only_the_special_ones_are_kept(max_words: int) -> None:
    assert Vocabulary.build(Counter({"多": 9, "中": 5, "少": 1}), max_words=max_words).words == SPECIAL_WORDS


def test_characters_count_as_often_as_their_words_and_rare_ones_are_left_out() -> None:
    built = Vocabulary.build(Counter({"天天": 1, "天气": 2, "雨": 1}), max_words=100)
    assert built.characters == (*SPECIAL_CHARACTERS, "天", "气")
    everything = Vocabulary.build(Counter({"天天": 1, "天气": 2, "雨": 1}), max_words=100, min_character_count=1)
    assert everything.characters == (*SPECIAL_CHARACTERS, "天", "气", "雨")


def test_an_extended_vocabulary_begins_with_what_there_was() -> None:
    begun = Vocabulary.build(Counter({"天气": 2, "多": 9}), max_words=len(SPECIAL_WORDS) + 1)
    extended = begun.extended(Counter({"雨天": 3, "多": 99, "上海": 2, "妈": 1}), max_words=len(begun.words) + 2)
    assert extended.words == (*begun.words, "雨天", "上海")
    assert extended.characters == (*begun.characters, "雨", "上", "海")


def test_a_vocabulary_begins_with_another_if_all_its_ids_mean_the_same() -> None:
    begun = Vocabulary.build(Counter({"天气": 9, "雨": 5}), max_words=7)
    assert begun.extended(Counter({"妈": 2}), max_words=8).begins_with(begun) and begun.begins_with(begun)
    assert not begun.begins_with(begun.extended(Counter({"妈": 2}), max_words=8))
    assert not Vocabulary.build(Counter({"天气": 5, "雨": 9}), max_words=9).begins_with(begun)


def test_a_vocabulary_without_room_still_gets_to_know_characters() -> None:
    begun = Vocabulary.build(Counter({"多": 9}), max_words=len(SPECIAL_WORDS) + 1)
    extended = begun.extended(Counter({"？": 2}), max_words=0)
    assert extended == Vocabulary(begun.words, (*begun.characters, "？"))


@given(st.permutations([("甲", 2), ("乙", 2), ("丙", 2), ("b", 2), ("a", 2), ("丁", 7)]))
def test_ties_do_not_depend_on_the_order_of_the_data(counts: list[tuple[str, int]]) -> None:
    built = Vocabulary.build(Counter(dict(counts)), max_words=9)
    assert built.words == (*SPECIAL_WORDS, "丁", "a", "b", "丙")


def test_the_same_lists_have_the_same_fingerprint() -> None:
    assert vocabulary().fingerprint == vocabulary().fingerprint
    assert len(vocabulary().fingerprint) == 64


@pytest.mark.parametrize(
    "changed",
    [
        vocabulary(words=("天气", "西安")),
        vocabulary(words=("西安", "天氣")),
        vocabulary(words=("西安",)),
        vocabulary(words=("西安", "天气", "雨")),
        vocabulary(words=("西安天气",)),
        vocabulary(characters=tuple("安西天气")),
        vocabulary(characters=tuple("西安天")),
        vocabulary(words=("西安", "天气", "西"), characters=tuple("安天气")),
    ],
    ids=[
        "order",
        "a word",
        "one less",
        "one more",
        "two joined",
        "characters' order",
        "a character less",
        "moved over",
    ],
)
def test_any_change_changes_the_fingerprint(changed: Vocabulary) -> None:
    assert changed.fingerprint != vocabulary().fingerprint


def test_the_fingerprint_is_the_one_that_stored_models_carry() -> None:
    assert vocabulary().fingerprint == "d0719a727209a4f0fd0ba6122518e187fdef3d2c533f264e7b0004a5c5ea3e0b"


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    odd = Vocabulary(SPECIAL_WORDS + ODD_WORDS, (*SPECIAL_CHARACTERS, "\u2028", "\u0085", "\r", "\x0c", " "))
    odd.save(tmp_path)
    assert Vocabulary.load(tmp_path) == odd
    assert Vocabulary.load(tmp_path).fingerprint == odd.fingerprint


def test_an_empty_entry_at_the_end_survives(tmp_path: Path) -> None:
    odd = vocabulary(words=("西安", ""))
    odd.save(tmp_path)
    assert Vocabulary.load(tmp_path) == odd


def test_files_hold_one_entry_a_line_in_utf_8(tmp_path: Path) -> None:
    vocabulary().save(tmp_path)
    assert (tmp_path / "words.txt").read_bytes() == "<pad>\n<unk>\n<bos>\n<eos>\n<eot>\n西安\n天气\n".encode()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "expected the words to start with"),
        ("西安\n天气\n".encode(), "expected the words to start with"),
        (b"\x80\x04\x95", "utf-8"),
        (b"<pad>\n<unk>\n<bos>\n<eos>\n<eot>\nab\nab\n", r"each once, found \['ab'\]"),
    ],
    ids=["empty", "another list", "no text", "a word twice"],
)
def test_a_wrong_file_is_refused_with_its_place_and_reason(tmp_path: Path, content: bytes, complaint: str) -> None:
    vocabulary().save(tmp_path)
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(ValueError, match=complaint) as refused:
        Vocabulary.load(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_swapped_files_are_refused(tmp_path: Path) -> None:
    vocabulary().save(tmp_path)
    (tmp_path / "words.txt").rename(tmp_path / "other")
    (tmp_path / "characters.txt").rename(tmp_path / "words.txt")
    (tmp_path / "other").rename(tmp_path / "characters.txt")
    with pytest.raises(ValueError, match="expected the words to start with"):
        Vocabulary.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    vocabulary().save(tmp_path)
    (tmp_path / "characters.txt").unlink()
    with pytest.raises(FileNotFoundError, match="characters.txt"):
        Vocabulary.load(tmp_path)


def test_an_entry_that_would_be_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        vocabulary(words=("西\n安",))


def test_characters_without_their_special_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="expected the characters to start with"):
        Vocabulary(SPECIAL_WORDS, ("西", "安"))
