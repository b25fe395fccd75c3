"""Examples made from conversations that nobody annotated."""

import random
from collections.abc import Sequence

import pytest

from rewriter.conversation import Example
from rewriter.selfsupervised import _PEOPLE, _PLACES, _THINGS, ExampleMaker, is_content_word
from rewriter.tokenizer import Tokenizer

TOKENIZER = Tokenizer()
PRONOUNS = {*_PEOPLE, *_PLACES, *_THINGS}
DIALOGUES = [
    ["周末想去爬香山", "香山的红叶现在好看吗？", "红叶最好看的时候是十月底。", "那十月底我们去香山看红叶吧"],
    ["你喜欢看什么电影", "我喜欢看科幻电影，比如流浪地球", "流浪地球的导演是谁", "流浪地球的导演是郭帆"],
    [
        "帮我订一张去上海的火车票",
        "上海的火车票今天卖完了",
        "那就订明天去上海的火车票",
        "好的，明天去上海的火车票订好了",
    ],
    ["我家的猫最近不爱吃饭", "猫不爱吃饭要看医生", "附近哪里有给猫看病的医生", "附近有三家宠物医院给猫看病"],
    ["iPhone15多少钱", "iPhone15现在卖五千多", "五千多的iPhone15有优惠吗", "优惠之后iPhone15只要四千八"],
    ["今天的晚饭吃火锅怎么样", "火锅太辣了，我想吃饺子", "饺子是买现成的还是自己包", "自己包的饺子比现成的饺子好吃"],
]


def make(seed: int = 1, rounds: int = 1, pronoun_share: float = 0.35, untouched_share: float = 0.3) -> list[Example]:
    maker = ExampleMaker(TOKENIZER, seed, pronoun_share, untouched_share)
    return [example for _ in range(rounds) for turns in DIALOGUES for example in maker.from_dialogue(turns, most=9)]


def squeezed(text: str) -> str:
    return "".join(text.split())


def phrases_taken_out(example: Example) -> set[tuple[str, str]]:
    """All the (phrase, what stands in its place) that turn the reference into the utterance."""
    utterance, reference = squeezed(example.conversation.utterance), squeezed(example.reference)
    found = set()
    for gap in ("", *PRONOUNS):
        size = len(reference) - len(utterance) + len(gap)
        for start in range(len(reference) - size + 1 if size > 0 else 0):
            if reference[:start] + gap + reference[start + size :] == utterance:
                found.add((reference[start : start + size], gap))
    return found


def test_what_was_taken_out_stands_in_the_history() -> None:
    changed = [example for example in make(rounds=20) if example.conversation.utterance != example.reference]
    assert len(changed) > 200
    for example in changed:
        said = [squeezed(turn) for turn in example.conversation.history]
        assert any(phrase in turn for phrase, _ in phrases_taken_out(example) for turn in said), example


def test_something_of_the_reference_is_always_left() -> None:
    for example in make(rounds=20, pronoun_share=0.0):
        assert example.conversation.utterance.strip()


def test_a_reference_is_a_clause_of_a_later_turn_and_history_was_said_before_it() -> None:
    for turns in DIALOGUES:
        maker = ExampleMaker(TOKENIZER, seed=3)
        for example in maker.from_dialogue(turns, most=9):
            index = next(i for i, turn in enumerate(turns) if example.reference in turn)
            assert index >= 1
            for said in example.conversation.history:
                assert any(squeezed(said) in squeezed(turn).replace("，", "") for turn in turns[:index])


def test_the_same_seed_makes_the_same_examples() -> None:
    assert make(seed=5, rounds=3) == make(seed=5, rounds=3)


def test_another_seed_makes_other_examples() -> None:
    assert make(seed=5, rounds=3) != make(seed=6, rounds=3)


def test_no_more_examples_are_made_than_asked_for() -> None:
    for most in range(4):
        maker = ExampleMaker(TOKENIZER, seed=1)
        assert len(list(maker.from_dialogue(DIALOGUES[0], most))) <= most
    assert len(list(ExampleMaker(TOKENIZER, seed=1).from_dialogue(DIALOGUES[0], 1))) == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_untouched_examples_is_the_one_asked_for(share: float) -> None:
    examples = make(rounds=60, untouched_share=share)
    untouched = sum(example.conversation.utterance == example.reference for example in examples)
    assert untouched / len(examples) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("share", [0.0, 0.35, 1.0])
def test_the_share_of_pronouns_is_the_one_asked_for(share: float) -> None:
    maker = ExampleMaker(TOKENIZER, seed=2, pronoun_share=share)
    # The one phrase that is shared is a noun, which a pronoun can stand for.
    made = [maker.corrupt(["我家有一台钢琴"], "钢琴多少钱") for _ in range(400)]
    gaps = [example.conversation.utterance.removesuffix("多少钱") for example in made if example]
    assert len(gaps) == 400
    assert set(gaps) <= {"", *_THINGS}
    assert sum(map(bool, gaps)) / 400 == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize(
    ("phrase", "pronouns"),
    [("上海", _PLACES), ("周杰伦", _PEOPLE), ("钢琴", _THINGS)],
    ids=["place", "person", "thing"],
)
def test_places_people_and_things_have_their_own_pronouns(phrase: str, pronouns: Sequence[str]) -> None:
    maker = ExampleMaker(TOKENIZER, seed=2, pronoun_share=1.0)
    made = [maker.corrupt([f"我喜欢{phrase}"], f"{phrase}怎么样") for _ in range(60)]
    assert {example.conversation.utterance.removesuffix("怎么样") for example in made if example} == set(pronouns)


def test_a_verb_is_left_out_without_a_pronoun() -> None:
    maker = ExampleMaker(TOKENIZER, seed=2, pronoun_share=1.0)
    made = maker.corrupt(["你会游泳吗"], "他游泳")
    assert made is not None
    assert made.conversation.utterance == "他"


@pytest.mark.parametrize(
    ("history", "reference"),
    [
        ([], "钢琴多少钱"),
        (["今天下雨"], "钢琴多少钱"),
        (["的了吗"], "钢琴的了吗"),
        (["我有钢琴"], "钢琴"),
        ([""], "钢琴多少钱"),
        (["钢琴"], ""),
    ],
    ids=[
        "no history",
        "nothing shared",
        "only function words shared",
        "nothing would be left",
        "empty turn",
        "empty reference",
    ],
)
def test_nothing_is_made_when_nothing_can_be_taken_out(history: list[str], reference: str) -> None:
    assert ExampleMaker(TOKENIZER, seed=1).corrupt(history, reference) is None


@pytest.mark.parametrize("turns", [[], ["我有一台钢琴"], ["今天下雨", "钢琴多少钱"], ["", "", ""], ["，。", "钢琴！"]])
def test_a_conversation_that_shares_nothing_makes_no_examples(turns: list[str]) -> None:
    assert list(ExampleMaker(TOKENIZER, seed=1).from_dialogue(turns, most=5)) == []


def test_history_holds_one_to_four_turns() -> None:
    turns = [f"第{n}次去香山看红叶" for n in "一二三四五六七八"]
    maker = ExampleMaker(TOKENIZER, seed=1)
    lengths = {len(e.conversation.history) for _ in range(30) for e in maker.from_dialogue(turns, most=7)}
    assert lengths == {1, 2, 3, 4}


def test_turns_are_cut_at_their_punctuation_and_lose_it() -> None:
    maker = ExampleMaker(TOKENIZER, seed=1)
    turns = ["《流浪地球》这部电影你看过没有呀？", "流浪地球这部电影我上个星期看过了。还想再看一次流浪地球这部电影！"]
    references = {example.reference for _ in range(20) for example in maker.from_dialogue(turns, most=5)}
    assert references == {"流浪地球这部电影我上个星期看过了", "还想再看一次流浪地球这部电影"}


def test_what_is_taken_out_of_a_spaced_sentence_leaves_single_spaces() -> None:
    maker = ExampleMaker(TOKENIZER, seed=1, pronoun_share=0.0)
    made = maker.corrupt(["I like Python"], "is Python hard")
    assert made is not None
    assert made.conversation.utterance == "is hard"


@pytest.mark.parametrize("word", ["钢琴", "北京", "游泳", "漂亮", "猫", "iphone", "15", "流浪地球二"])
def test_words_with_a_meaning_are_worth_leaving_out(word: str) -> None:
    assert is_content_word(word)


@pytest.mark.parametrize("word", ["的", "了", "吗", "，", "...", "我", "😀"])
def test_words_without_a_meaning_of_their_own_are_not(word: str) -> None:
    assert not is_content_word(word)


def test_making_examples_leaves_the_global_generator_alone() -> None:
    random.seed(7)
    expected = random.random()
    random.seed(7)
    make()
    assert random.random() == expected
