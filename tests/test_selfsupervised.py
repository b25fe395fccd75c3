"""Examples made from conversations that nobody annotated."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.conversation import Conversation, Example
from rewriter.selfsupervised import _PEOPLE, _PLACES, _THINGS, _TIMES, ExampleMaker, _shared_phrases, is_content_word
from rewriter.tokenizer import Granularity, Token, Tokenizer

TOKENIZER = Tokenizer(Granularity.WORD)
WORDS = st.sampled_from(("钢琴", "上海", "的", "在"))
PRONOUNS = {*_PEOPLE, *_PLACES, *_THINGS, *_TIMES}
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


def make(seed: int = 1, rounds: int = 1, pronoun_share: float = 0.5, untouched_share: float = 0.2) -> list[Example]:
    maker = ExampleMaker(TOKENIZER, seed, pronoun_share, untouched_share)
    return [e for _ in range(rounds) for turns in DIALOGUES for e in maker.incomplete(maker.excerpts(turns))]


def squeezed(text: str) -> str:
    return "".join(text.split())


def with_a_gap(text: str, said: Sequence[str]) -> set[str]:
    """The text with any phrase that stands in the history taken out, or a pronoun in its place."""
    ranges = [(start, end) for start in range(len(text)) for end in range(start + 1, len(text) + 1)]
    taken_out = [(start, end) for start, end in ranges if any(text[start:end] in turn for turn in said)]
    return {text[:start] + gap + text[end:] for start, end in taken_out for gap in ("", *PRONOUNS)}


def number_of_gaps(example: Example) -> int:
    """How many phrases of the history were taken out, as few as will explain it; 9 if more than two."""
    said = [squeezed(turn) for turn in example.conversation.history]
    utterance, reference = squeezed(example.conversation.utterance), squeezed(example.reference)
    if utterance == reference:
        return 0
    once = with_a_gap(reference, said)
    if utterance in once:
        return 1
    return 2 if any(utterance in with_a_gap(text, said) for text in once) else 9


def test_what_was_taken_out_stands_in_the_history() -> None:
    changed = [example for example in make(rounds=60) if example.conversation.utterance != example.reference]
    assert len(changed) > 200
    gaps = [number_of_gaps(example) for example in changed]
    assert set(gaps) == {1, 2}


def test_two_phrases_are_left_out_at_times() -> None:
    maker = ExampleMaker(TOKENIZER, seed=4, pronoun_share=0.0)
    made = [maker.corrupt(["我喜欢钢琴", "我住在上海"], "钢琴在上海多少钱") for _ in range(400)]
    utterances = [example.conversation.utterance for example in made if example]
    assert {example.reference for example in made if example} == {"钢琴在上海多少钱"}
    assert set(utterances) == {"在上海多少钱", "钢琴多少钱", "钢琴在多少钱", "在多少钱", "多少钱"}
    both = sum("钢琴" not in utterance and "上海" not in utterance for utterance in utterances)
    assert both / 400 == pytest.approx(0.15, abs=0.06)


def test_where_a_second_phrase_would_leave_nothing_one_is_left_out() -> None:
    maker = ExampleMaker(TOKENIZER, seed=4, pronoun_share=0.0)
    made = [maker.corrupt(["钢琴", "上海"], "上海钢琴") for _ in range(100)]
    assert {example.conversation.utterance for example in made if example} == {"上海", "钢琴"}


def test_something_of_the_reference_is_always_left() -> None:
    for example in make(rounds=20, pronoun_share=0.0):
        assert example.conversation.utterance.strip()


def test_references_are_last_clauses_of_excerpts() -> None:
    maker = ExampleMaker(TOKENIZER, seed=3)
    for turns in DIALOGUES * 5:
        excerpts = maker.excerpts(turns)
        assert {example.reference for example in maker.incomplete(excerpts)} <= {e.reference for e in excerpts}


def test_the_same_seed_makes_the_same_examples() -> None:
    assert make(seed=5, rounds=3) == make(seed=5, rounds=3)


def test_another_seed_makes_other_examples() -> None:
    assert make(seed=5, rounds=3) != make(seed=6, rounds=3)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_untouched_examples_is_the_one_asked_for(share: float) -> None:
    excerpts = [Example(Conversation(("我家有钢琴",), "钢琴多少钱"), "钢琴多少钱")] * 1000
    examples = list(ExampleMaker(TOKENIZER, 1, untouched_share=share).incomplete(excerpts))
    untouched = sum(example.conversation.utterance == example.reference for example in examples)
    assert untouched / 1000 == pytest.approx(share, abs=0.05)


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
    [("上海", _PLACES), ("周杰伦", _PEOPLE), ("老师", _PEOPLE), ("昨天", _TIMES), ("钢琴", _THINGS)],
    ids=["place", "name", "person", "time", "thing"],
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


@pytest.mark.parametrize("turns", [[], ["我有一台钢琴"], ["", "", ""], ["，。", "钢琴！"], ["今天下雨", "好吧"]])
def test_a_conversation_in_which_nothing_can_be_taken_out_makes_no_examples(turns: list[str]) -> None:
    maker = ExampleMaker(TOKENIZER, seed=1, untouched_share=0.0)
    assert list(maker.incomplete(maker.excerpts(turns))) == []


@settings(max_examples=200, deadline=None)
@given(words=st.lists(WORDS, max_size=7), said=st.lists(st.lists(WORDS, max_size=7), max_size=3))
def test_shared_phrases_are_all_those_that_stand_in_one_turn_and_mean_something(
    words: list[str], said: list[list[str]]
) -> None:
    expected = [
        (start, end)
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
        if any(map(is_content_word, words[start:end]))
        and any(turn[place : place + end - start] == words[start:end] for turn in said for place in range(len(turn)))
    ]
    assert _shared_phrases([Token(word, 0, 1) for word in words], said) == expected


def test_turns_are_cut_at_their_punctuation_and_lose_it() -> None:
    maker = ExampleMaker(TOKENIZER, seed=1)
    turns = ["《流浪地球》这部电影你看过没有呀？", "流浪地球这部电影我上个星期看过了。还想再看一次流浪地球这部电影！"]
    said = {turn for _ in range(20) for e in maker.excerpts(turns) for turn in (*e.conversation.history, e.reference)}
    assert said == {"流浪地球这部电影你看过没有呀", "流浪地球这部电影我上个星期看过了", "还想再看一次流浪地球这部电影"}


def test_a_moved_phrase_is_a_turn_of_its_own_or_stands_between_two_words_of_one() -> None:
    maker = ExampleMaker(TOKENIZER, seed=1, pronoun_share=0.0)
    made = [maker.move(["今天下雨"], "我有钢琴") for _ in range(200)]
    assert {example.conversation.utterance for example in made if example} == {"我有"}
    assert {example.conversation.history for example in made if example} == {
        ("钢琴", "今天下雨"),
        ("今天下雨", "钢琴"),
        ("钢琴今天下雨",),
        ("今天钢琴下雨",),
        ("今天下雨钢琴",),
    }


def test_phrases_of_other_conversations_stand_beside_a_moved_one_and_before_what_is_left_as_it_is() -> None:
    maker = ExampleMaker(TOKENIZER, seed=1, pronoun_share=0.0, untouched_share=0.5)
    first = Example(Conversation(("今天下雨",), "我有钢琴"), "我有钢琴")
    second = Example(Conversation(("明天放假",), "去上海"), "去上海")
    made = list(maker.incomplete([first, second] * 200))
    said = ["".join(example.conversation.history) for example in made if example.reference == "去上海"]
    assert 0.2 < sum("钢琴" in history for history in said) / len(said) < 0.9
    untouched = [example for example in made if example.conversation.utterance == example.reference]
    assert any("钢琴" in "".join(e.conversation.history) for e in untouched if e.reference == "去上海")
    assert not any("钢琴" in turn for e in untouched for turn in e.conversation.history if e.reference == "我有钢琴")


@pytest.mark.parametrize(
    ("history", "reference"),
    [
        ([], "我有钢琴"),
        (["今天下雨"], "钢琴"),
        (["今天下雨"], ""),
        (["今天下雨"], "的了吗"),
        (["我的钢琴"], "我有钢琴"),
    ],
    ids=["no history", "nothing would be left", "empty", "only function words", "it was said"],
)
def test_nothing_is_moved_where_nothing_can_be(history: list[str], reference: str) -> None:
    maker = ExampleMaker(TOKENIZER, seed=1)
    assert {maker.move(history, reference) for _ in range(50)} == {None}


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


def test_excerpts_are_neighbouring_clauses_as_they_were_said() -> None:
    for turns in DIALOGUES:
        clauses = [squeezed(turn) for turn in turns]
        said = "".join(clauses).replace("，", "").replace("？", "").replace("。", "")
        for example in ExampleMaker(TOKENIZER, seed=2).excerpts(turns):
            stretch = [squeezed(turn) for turn in (*example.conversation.history, example.conversation.utterance)]
            assert example.reference == example.conversation.utterance
            assert 2 <= len(stretch) <= 10
            assert "".join(stretch) in said


def test_a_conversation_gives_an_excerpt_and_one_more_for_three_turns_at_most_and_none_of_a_single_clause() -> None:
    long = [f"第{number}天我们去爬山" for number in range(30)]
    made = [len(ExampleMaker(TOKENIZER, seed).excerpts(long)) for seed in range(20)]
    # Thirty clauses are fifteen stretches at most and three at least.
    assert all(3 <= count <= 11 for count in made)
    assert max(made) > 3
    assert ExampleMaker(TOKENIZER, seed=1).excerpts(["我们去爬山"]) == []
    assert ExampleMaker(TOKENIZER, seed=1).excerpts([]) == []
