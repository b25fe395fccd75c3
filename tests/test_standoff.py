"""Rewrites that are kept apart from their text find it again, and nothing else."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rewriter.config import FeaturesConfig
from rewriter.conversation import Conversation, Example
from rewriter.standoff import Excerpt, Judgement, attach, cut, fingerprint, read_excerpts, spell

STANDOFF = Path(__file__).parents[1] / "corpus" / "zh" / "standoff"
TURNS = ["你好，周末去哪里玩？", "去云栖慢谷吧，那里有电瓶车。", "它几点关门？", "五点。", "谢谢，它远吗？"]


def _excerpt(turns: list[str], rewrites: dict[int, list[str]], **fields: object) -> Excerpt:
    judgements = tuple(
        Judgement(turn=index, kind="pronoun", rewrites=tuple(tuple(cut(turns, index, text)) for text in texts))
        for index, texts in rewrites.items()
    )
    return Excerpt(
        **{
            "begins": fingerprint(turns[:2]),
            "whole": fingerprint(turns),
            "length": len(turns),
            "judgements": judgements,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (2, "云栖慢谷几点关门？"),
        (2, "去云栖慢谷的电瓶车几点关门？"),
        (2, "它几点关门？"),
        (4, "谢谢，云栖慢谷的电瓶车远吗？"),
        (4, "远吗，云栖慢谷？"),
    ],
)
def test_the_pieces_of_a_rewrite_spell_it(index: int, text: str) -> None:
    pieces = cut(TURNS, index, text)
    assert spell(TURNS, pieces) == text
    assert {piece for piece in pieces if isinstance(piece, str)} <= {"的"}


def test_pieces_tell_where_each_word_was_said() -> None:
    assert cut(TURNS, 2, "云栖慢谷的几点关门？") == [(1, 1, 5), "的", (2, 1, 6)]


def test_of_equal_places_the_latest_is_told() -> None:
    assert cut(["猫很好", "小猫和大猫", "它多大"], 2, "猫多大") == [(1, 4, 5), (2, 1, 3)]


def test_an_excerpt_becomes_examples_wherever_it_stands() -> None:
    excerpt = _excerpt(TURNS, {2: ["云栖慢谷几点关门？", "云栖慢谷的电瓶车几点关门？"]}, unsure=(4,))
    [examples] = attach([excerpt], [["别的话", "不是这个"], ["嗨", *TURNS, "不远。"]])
    assert examples is not None
    assert [(e.conversation, e.references, e.kind) for e in examples] == [
        (Conversation((TURNS[0],), TURNS[1]), (TURNS[1],), "complete"),
        (
            Conversation(tuple(TURNS[:2]), TURNS[2]),
            ("云栖慢谷几点关门？", "云栖慢谷的电瓶车几点关门？"),
            "pronoun",
        ),
        (Conversation(tuple(TURNS[:3]), TURNS[3]), (TURNS[3],), "complete"),
    ]


def test_turns_that_were_only_history_make_no_examples_and_history_has_eight_turns() -> None:
    turns = [f"第{number}句" for number in range(11)]
    [examples] = attach([_excerpt(turns, {}, judged_from=10)], [turns])
    assert [e.conversation for e in examples or ()] == [Conversation(tuple(turns[2:10]), turns[10])]


def test_turns_of_our_own_follow_an_excerpt() -> None:
    history, utterance = TURNS[:2], "它多大"
    pieces = cut([*history, utterance], 2, "云栖慢谷多大")
    own = {"utterance": utterance, "kind": "pronoun", "rewrites": [pieces]}
    greeting = {"utterance": "早", "kind": "greeting", "rewrites": [[[2, 0, 1]]]}
    [examples] = attach([_excerpt(history, {}, judged_from=2, next_turns=[own, greeting])], [TURNS])
    assert examples == [
        Example(Conversation(tuple(history), utterance), "云栖慢谷多大", kind="pronoun"),
        Example(Conversation(tuple(history), "早"), "早", kind="greeting"),
    ]


def test_an_excerpt_is_found_only_with_all_its_turns_and_the_others_keep_their_places() -> None:
    whole, other = _excerpt(TURNS, {}), _excerpt(["别的话", "不是这个"], {}, unsure=(1,))
    assert attach([whole, other], [TURNS[:-1], [*TURNS[:-1], "谢谢，它远吗"], [TURNS[0]], []]) == [None, None]
    first, second = attach([other, whole], [TURNS, TURNS, ["别的话", "不是这个"]])
    assert first == []
    assert second is not None
    assert len(second) == 4


def test_excerpts_that_begin_alike_are_told_apart() -> None:
    longer, shorter = attach([_excerpt(TURNS, {}), _excerpt(TURNS[:3], {})], [TURNS])
    assert (len(longer or ()), len(shorter or ())) == (4, 2)


def test_excerpts_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "excerpts.jsonl"
    separator = {"utterance": "一\u2028二", "kind": "complete", "rewrites": [[[5, 0, 3]]]}
    excerpts = [
        _excerpt(TURNS, {2: ["云栖慢谷的几点关门？"]}, next_turns=[separator]),
        _excerpt(TURNS[1:], {}, unsure=(2,), judged_from=2),
    ]
    lines = "\n\n".join(excerpt.model_dump_json(exclude_defaults=True) for excerpt in excerpts)
    path.write_text("\ufeff" + lines + "\n", encoding="utf-8")
    assert read_excerpts(path) == excerpts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "the line: Invalid JSON"),
        (b"\xff", "the line: Invalid JSON"),
        (b'{"begins": "a", "whole": "b"}', "length: Field required"),
        (b'{"begins": "a", "whole": "b", "length": 2, "text": "c"}', "text: Extra inputs are not permitted"),
        (b'{"begins": "a", "whole": "b", "length": 1}', "length: Input should be greater than or equal to 2"),
    ],
)
def test_what_is_no_excerpt_is_named_with_its_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "excerpts.jsonl"
    path.write_bytes(_excerpt(TURNS, {}).model_dump_json().encode() + b"\n" + line + b"\n")
    with pytest.raises(ValueError, match=f"{path}:2: expected an excerpt; {message}"):
        read_excerpts(path)


@pytest.mark.parametrize("piece", [(3, 0, 1), (-1, 0, 1), (1, 3, 3), (1, -2, 1), ""])
def test_pieces_stand_in_the_turn_or_before_it(piece: tuple[int, int, int] | str) -> None:
    with pytest.raises(ValidationError, match="expected pieces of the turn 2|at least 1 character"):
        _excerpt(TURNS, {}, judgements=[{"turn": 2, "kind": "pronoun", "rewrites": [[piece]]}])


def test_pieces_are_of_turns_that_are_read_as_history() -> None:
    far = {"turn": 10, "kind": "pronoun", "rewrites": [[[1, 0, 1]]]}
    with pytest.raises(ValidationError, match="expected pieces of the turn 10 or of the 8 before it"):
        Excerpt(begins="a", whole="b", length=11, judgements=[far])  # type: ignore[list-item]


@pytest.mark.parametrize("unsure", [(0,), (5,), (2,), (3, 3)])
def test_a_turn_is_judged_once_and_there(unsure: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="expected turns from 1 to 4 once each"):
        _excerpt(TURNS, {2: ["云栖慢谷几点关门？"]}, unsure=unsure)


def test_a_piece_beyond_the_end_of_its_turn_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a piece of '五点。', found characters 0 to 4"):
        spell(TURNS, [(3, 0, 4)])


@pytest.mark.parametrize("path", sorted(STANDOFF.glob("*.jsonl")), ids=lambda path: path.stem)
def test_what_is_shipped_adds_nothing_but_function_words(path: Path) -> None:
    function_words = {*FeaturesConfig().function_words, " "}
    excerpts = read_excerpts(path)
    rewritten = [of for excerpt in excerpts for of in (*excerpt.judgements, *excerpt.next_turns)]
    added = {piece for of in rewritten for pieces in of.rewrites for piece in pieces if isinstance(piece, str)}
    assert len(rewritten) > 100
    assert {*"".join(added)} <= function_words


def test_no_conversation_is_in_two_parts() -> None:
    parts = [{excerpt.whole for excerpt in read_excerpts(path)} for path in sorted(STANDOFF.glob("real_*.jsonl"))]
    assert len(parts) == 3
    assert len(set.union(*parts)) == sum(map(len, parts))
