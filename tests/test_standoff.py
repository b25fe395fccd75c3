"""Rewrites that are kept apart from their text find it again, and nothing else."""

from pathlib import Path

import pytest

from rewriter.conversation import Conversation, Example
from rewriter.corpus import read_corpus, write_corpus
from rewriter.standoff import Excerpt, Judgement, attach, cut, fingerprint, read_excerpts, spell

TURNS = ["你好，周末去哪里玩？", "去云栖慢谷吧，那里有电瓶车。", "它几点关门？", "五点。", "谢谢，它远吗？"]


def _excerpt(turns: list[str], rewrites: dict[int, list[str]], **fields: object) -> Excerpt:
    judgements = tuple(
        Judgement(turn=index, kind="pronoun", rewrites=tuple(tuple(cut(turns, index, text)) for text in texts))
        for index, texts in rewrites.items()
    )
    return Excerpt(
        begins=fingerprint(turns[:2]), whole=fingerprint(turns), turns=len(turns), judgements=judgements, **fields
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
    assert spell(TURNS, cut(TURNS, index, text)) == text


def test_pieces_tell_where_each_word_was_said() -> None:
    assert cut(TURNS, 2, "云栖慢谷的几点关门？") == [(1, 1, 5), "的", (2, 1, 6)]


def test_of_equal_places_the_latest_is_told() -> None:
    assert cut(["猫很好", "猫很小", "它多大"], 2, "猫多大") == [(1, 0, 1), (2, 1, 3)]


def test_an_excerpt_becomes_examples_wherever_it_stands() -> None:
    excerpt = _excerpt(TURNS, {2: ["云栖慢谷几点关门？", "云栖慢谷的电瓶车几点关门？"]}, unsure=(4,))
    [(found, examples)] = attach([excerpt], [["别的话", "不是这个"], ["嗨", *TURNS, "不远。"]])
    assert found is excerpt
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
    [(_, examples)] = attach([_excerpt(turns, {}, judged_from=10)], [turns])
    assert [e.conversation for e in examples] == [Conversation(tuple(turns[2:10]), turns[10])]


def test_turns_of_our_own_follow_an_excerpt() -> None:
    history, utterance = TURNS[:2], "它多大"
    pieces = tuple(cut([*history, utterance], 2, "云栖慢谷多大"))
    excerpt = _excerpt(
        history, {}, judged_from=2, next_turns=[{"utterance": utterance, "kind": "pronoun", "rewrites": [pieces]}]
    )
    [(_, examples)] = attach([excerpt], [TURNS])
    assert examples == [Example(Conversation(tuple(history), utterance), "云栖慢谷多大", kind="pronoun")]


def test_an_excerpt_is_found_once_and_only_with_all_its_turns() -> None:
    excerpt = _excerpt(TURNS, {})
    assert len(list(attach([excerpt], [TURNS, TURNS]))) == 1
    assert list(attach([excerpt], [TURNS[:-1], [*TURNS[:-1], "谢谢，它远吗"], [TURNS[0]], []])) == []


def test_excerpts_that_begin_alike_are_told_apart() -> None:
    longer, shorter = _excerpt(TURNS, {}), _excerpt(TURNS[:3], {})
    assert {found.turns for found, _ in attach([longer, shorter], [TURNS])} == {3, 5}


def test_excerpts_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "excerpts.jsonl"
    excerpts = [_excerpt(TURNS, {2: ["云栖慢谷的几点关门？"]}), _excerpt(TURNS[1:], {}, unsure=(2,), judged_from=2)]
    path.write_text("".join(e.model_dump_json(exclude_defaults=True) + "\n" for e in excerpts), encoding="utf-8")
    assert read_excerpts(path) == excerpts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "the line: Invalid JSON"),
        ('{"begins": "a", "whole": "b"}', "turns: Field required"),
        ('{"begins": "a", "whole": "b", "turns": 2, "text": "c"}', "text: Extra inputs are not permitted"),
    ],
)
def test_what_is_no_excerpt_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "excerpts.jsonl"
    path.write_text(_excerpt(TURNS, {}).model_dump_json() + f"\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"{path}:2: expected an excerpt; {message}"):
        read_excerpts(path)


def test_examples_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    excerpt = _excerpt(TURNS, {2: ["云栖慢谷几点关门？"]})
    [(_, examples)] = attach([excerpt], [TURNS])
    write_corpus(examples, path)
    assert read_corpus(path).examples == tuple(examples)
