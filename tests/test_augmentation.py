"""Other names in the same conversations, longer conversations, and longer turns."""

from collections import Counter
from pathlib import Path

import pytest

from rewriter.augmentation import lengthen, swap_words
from rewriter.checking import check_corpora
from rewriter.config import FeaturesConfig
from rewriter.conversation import Conversation, Example
from rewriter.features import Features
from rewriter.selfsupervised import part_of_speech
from rewriter.tokenizer import Granularity, Tokenizer
from rewriter.vocabulary import Vocabulary

TOKENIZER = Tokenizer(Granularity.DICTIONARY)
XIAN = Example(Conversation(("你去过西安吗", "去过西安两次"), "那里好玩吗"), "西安好玩吗")
CHENGDU = Example(Conversation(("成都怎么样",), "好玩吗"), "成都好玩吗")
# 苏轼 and 杜甫 are people; 钢琴 is a thing; 楼上 is said in the utterance alone.
EXAMPLES = (
    XIAN,
    CHENGDU,
    Example(Conversation(("苏轼是哪里人",), "他写过什么"), "苏轼写过什么"),
    Example(Conversation(("我在读杜甫", "杜甫写得真好"), "他多大了"), "杜甫多大了"),
    Example(Conversation(("我家有一台钢琴",), "多少钱"), "钢琴多少钱"),
    Example(Conversation(("北京今天冷吗", "今天很冷"), "楼上呢"), "北京楼上冷吗"),
    Example(Conversation(("你想看什么电影", "我想看红楼梦"), "和电影一样吗"), "红楼梦和电影一样吗"),
    Example(Conversation(("你在干嘛",), "早上好"), "早上好"),
)


def swaps(*examples: Example, seeds: int = 40) -> list[Example]:
    return [made for seed in range(seeds) for made in swap_words(examples, TOKENIZER, seed)]


def test_a_place_is_replaced_by_another_one_wherever_it_stands() -> None:
    assert set(swaps(XIAN, CHENGDU)) == {
        Example(Conversation(("你去过成都吗", "去过成都两次"), "那里好玩吗"), "成都好玩吗"),
        Example(Conversation(("西安怎么样",), "好玩吗"), "西安好玩吗"),
    }


def test_people_places_and_things_stay_what_they_are() -> None:
    made = swaps(*EXAMPLES)
    kinds = Counter(part_of_speech(word) for word in ("西安", "成都", "北京", "苏轼", "杜甫", "钢琴"))
    assert kinds == {"ns": 3, "nr": 2, "n": 1}
    questions = {example.reference.removesuffix("写过什么") for example in made if "写过什么" in example.reference}
    assert questions == {"杜甫"}
    assert {e.reference.removesuffix("好玩吗") for e in made if "好玩吗" in e.reference} == {"西安", "成都", "北京"}


def test_every_swapped_example_can_be_copied_and_swapped_back() -> None:
    features = Features(FeaturesConfig(granularity=Granularity.DICTIONARY), Vocabulary.build(Counter(), 5))
    nouns = {token.surface for e in EXAMPLES for token in TOKENIZER.tokenize(e.reference)}
    made = swaps(*EXAMPLES)
    assert len(made) > 100
    for example in set(made):
        assert features.target(features.encode(example.conversation), example.reference) is not None, example
        assert any(_replaced(example, new, old) in EXAMPLES for new in nouns for old in nouns if new != old), example


def _replaced(example: Example, old: str, new: str) -> Example:
    history = tuple(turn.replace(old, new) for turn in example.conversation.history)
    return Example(
        Conversation(history, example.conversation.utterance.replace(old, new)), example.reference.replace(old, new)
    )


def test_no_swapped_example_has_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "swapped.txt"
    rows = [(*e.conversation.history, e.conversation.utterance, e.reference) for e in dict.fromkeys(swaps(*EXAMPLES))]
    path.write_text("\n".join(map("\t".join, rows)), encoding="utf-8")
    assert check_corpora([path]) == []


def test_the_same_seed_swaps_the_same_words_and_another_seed_others() -> None:
    first, second, other = (list(swap_words(EXAMPLES, TOKENIZER, seed)) for seed in (3, 3, 4))
    assert first == second
    assert first != other


def test_words_are_drawn_as_often_as_they_are_named() -> None:
    often = [Example(Conversation(("北京怎么样",), f"{n}月呢"), f"北京{n}月呢") for n in "一二三四五六七八九"]
    drawn = Counter(
        made.reference[:2] for made in swaps(CHENGDU, XIAN, *often, seeds=300) if made.reference.endswith("好玩吗")
    )
    # 成都 becomes 北京 nine times as often as 西安; so does 西安, nine times as often as 成都.
    assert drawn["北京"] / (drawn["西安"] + drawn["成都"]) == pytest.approx(9, rel=0.4)


@pytest.mark.parametrize(
    "example",
    [
        Example(Conversation(("今天很冷",), "西安呢"), "西安今天冷吗"),
        Example(Conversation((), "西安好玩吗"), "西安好玩吗"),
        Example(Conversation(("你在干嘛",), "早上好"), "早上好"),
        Example(Conversation(("西安和成都哪个好",), "前面那个呢"), "西安呢"),
        Example(Conversation(("我养了猫",), "可爱吗"), "猫可爱吗"),
    ],
    ids=["not said before", "no history", "no noun", "both said already", "one character"],
)
def test_an_example_without_a_word_to_swap_gives_none(example: Example) -> None:
    dog = Example(Conversation(("我养了狗",), "它几岁"), "狗几岁")
    made = swaps(example, XIAN, CHENGDU, dog)
    assert {e.conversation.utterance for e in made} <= {"那里好玩吗", "好玩吗"}


def test_nothing_gives_nothing() -> None:
    assert swaps() == []


def test_a_word_is_found_however_it_was_typed() -> None:
    typed = Example(Conversation(("你看ＮＢＡ吗", "Nba很好看"), "几点开始"), "NBA几点开始")
    other = Example(Conversation(("我买了iPhone",), "贵吗"), "iPhone贵吗")
    assert set(swaps(typed, other)) == {
        Example(Conversation(("你看iphone吗", "iphone很好看"), "几点开始"), "iphone几点开始"),
        Example(Conversation(("我买了nba",), "贵吗"), "nba贵吗"),
    }


def test_a_longer_conversation_has_turns_of_others_before_or_after_its_own_and_the_same_answer() -> None:
    places = set()
    for seed in range(40):
        for before, after in zip(EXAMPLES, lengthen(EXAMPLES, seed), strict=True):
            history, longer = before.conversation.history, after.conversation.history
            assert (after.conversation.utterance, after.reference) == (before.conversation.utterance, before.reference)
            assert 2 <= len(longer) - len(history) <= 8
            own_last, own_first = longer[-len(history) :] == history, longer[: len(history)] == history
            assert own_last or own_first
            places.add((own_last, own_first))
            others = longer[: -len(history)] if own_last else longer[len(history) :]
            assert set(others) <= {turn for example in EXAMPLES for turn in example.conversation.history}
    assert {(True, False), (False, True)} <= places


def test_only_what_has_a_history_is_made_longer() -> None:
    alone = Example(Conversation((), "早上好"), "早上好")
    assert list(lengthen([alone], 1)) == []
    assert len(list(lengthen([alone, XIAN], 1))) == 1
    assert list(lengthen(EXAMPLES, 3)) == list(lengthen(EXAMPLES, 3))
