import pytest

from rewriter.word_kinds import WORD_KINDS, kind_of_tag, words_with_kinds


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        *[("nr", "name"), ("nrt", "name"), ("nrfg", "name"), ("nz", "name"), ("nt", "name"), ("eng", "name")],
        *[("ns", "place"), ("s", "place")],
        *[("m", "number_or_time"), ("mq", "number_or_time"), ("q", "number_or_time"), ("tg", "number_or_time")],
        *[("n", "other_noun"), ("ng", "other_noun"), ("an", "other_noun"), ("j", "other_noun")],
        *[("v", "verb"), ("vn", "verb"), ("vshi", "verb")],
        *[("a", "other"), ("ad", "other"), ("uj", "other"), ("r", "other"), ("x", "other"), ("e", "other")],
    ],
)
def test_tags_become_kinds(tag: str, kind: str) -> None:
    assert kind_of_tag(tag) == kind
    assert kind in WORD_KINDS


def test_words_come_with_their_kinds_and_punctuation_is_none() -> None:
    assert words_with_kinds("昨天，北京的天气") == [
        ("昨天", "number_or_time"),
        ("北京", "place"),
        ("的", "other"),
        ("天气", "other_noun"),
    ]
    assert words_with_kinds(" 。！") == []
