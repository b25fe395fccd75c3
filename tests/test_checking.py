"""Faults of corpora: each is found, in its line, and there are no others."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rewriter.checking import check_corpora
from rewriter.config import FeaturesConfig

OWN_CORPUS = Path(__file__).parent.parent / "corpus" / "zh"
# Every rewrite is in the words of its conversation or the bank's; every kind is what it says.
GOOD: list[dict[str, Any]] = [
    {
        "history": ["你喜欢梅西吗", "喜欢"],
        "utterance": "他几岁",
        "rewrite": ["梅西几岁", "梅西的几岁"],
        "kind": "pronoun",
    },
    {"history": ["北京冷吗", "很冷"], "utterance": "明天呢", "rewrite": ["北京明天冷吗"], "kind": "omission"},
    {"history": ["你在干嘛"], "utterance": "早上好", "rewrite": ["早上好"], "kind": "greeting"},
    {"history": [], "utterance": "ＮＢＡ 几点开始", "rewrite": ["nba几点开始"], "kind": "complete"},
    {"history": ["你在干嘛"], "utterance": "吃饭了", "rewrite": ["你吃饭了"]},
]


def write(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def rows(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(line.replace(" ", "\t") for line in lines), encoding="utf-8")
    return path


def test_good_files_have_no_faults(tmp_path: Path) -> None:
    columns = rows(tmp_path / "validation.txt", "你会游泳吗 会一点 在哪里学的 在哪里学的游泳")
    assert check_corpora([write(tmp_path / "train.jsonl", GOOD), columns]) == []
    assert check_corpora([]) == []


def test_our_own_corpus_has_no_faults() -> None:
    paths = sorted(OWN_CORPUS.glob("*.jsonl"))
    assert len(paths) >= 2
    assert check_corpora(paths) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"utterance": ""}, "expected a record of history, utterance and rewrite"),
        ({"kind": "joke"}, "expected a record of history, utterance and rewrite"),
        ({"rewrite": ["梅西多大"]}, "expected a rewrite of words that were said, found '梅西多大'"),
        ({"rewrite": ["梅西几岁", "内马尔几岁"]}, "expected a rewrite of words that were said, found '内马尔几岁'"),
        ({"kind": "greeting"}, "expected the utterance for a rewrite (greeting), found another text"),
        (
            {"kind": "complete", "rewrite": ["他几岁", "梅西几岁"]},
            "expected the utterance for a rewrite (complete), found another text",
        ),
        ({"rewrite": ["他几岁"]}, "expected something restored (pronoun), found the utterance"),
        ({"rewrite": ["梅西几岁", "他 几岁"]}, "expected something restored (pronoun), found the utterance"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
@pytest.mark.parametrize("line", [1, 3])
def test_each_fault_is_found_once_in_its_line(tmp_path: Path, changes: dict[str, Any], fault: str, line: int) -> None:
    records = [*GOOD[1:3], *GOOD[4:]]
    records.insert(line - 1, GOOD[0] | changes)
    path = write(tmp_path / "train.jsonl", records)
    [found] = check_corpora([path])
    assert found.startswith(f"{path}:{line}: {fault}")


def test_words_of_the_bank_may_be_added_and_no_others(tmp_path: Path) -> None:
    path = rows(tmp_path / "train.txt", "你看过三体吗 看过 作者是谁 三体的作者是谁")
    assert check_corpora([path]) == []
    [found] = check_corpora([path], FeaturesConfig(function_words=("了",)))
    assert found == f"{path}:1: expected a rewrite of words that were said, found '三体的作者是谁'"


def test_a_word_of_the_bank_counts_as_a_whole(tmp_path: Path) -> None:
    path = rows(tmp_path / "train.txt", "我有猫 几岁了 已经几岁了", "我有狗 多大了 经多大了")
    [found] = check_corpora([path], FeaturesConfig(function_words=("已经",)))
    assert found.startswith(f"{path}:2: ")


def test_a_conversation_that_stands_there_twice_is_named_with_the_first_place(tmp_path: Path) -> None:
    first = rows(tmp_path / "train.txt", "我有猫 几岁了 猫几岁了", "我有狗 几岁了 狗几岁了")
    second = rows(tmp_path / "test.txt", "我有ＮＢＡ票 多少钱 票多少钱", "我有nba票 多少钱 nba票多少钱")
    assert check_corpora([first, second]) == [f"{second}:2: the same conversation as {second}:1"]


def test_a_leak_is_named_with_both_places(tmp_path: Path) -> None:
    train = rows(tmp_path / "train.txt", "你好 我有猫 几岁了 猫几岁了", "下雨了 我有狗 多大了 狗多大了")
    last_turns = rows(tmp_path / "a.txt", "在吗 我有鸟 叫什么 鸟叫什么", "在吗 我有猫 几岁了 猫几岁了")
    history = rows(tmp_path / "b.txt", "下雨了 我有狗 哪来的 狗哪来的")
    assert check_corpora([train, last_turns]) == [f"{last_turns}:2: the same last turns as {train}:1, in another part"]
    assert check_corpora([train, history]) == [f"{history}:1: the same history as {train}:2, in another part"]


def test_a_conversation_in_two_parts_is_a_repetition_and_a_leak(tmp_path: Path) -> None:
    train, test = (rows(tmp_path / name, "我有猫 几岁了 猫几岁了") for name in ("train.txt", "test.txt"))
    assert check_corpora([train, test]) == [
        f"{test}:1: the same conversation as {train}:1",
        f"{test}:1: the same last turns as {train}:1, in another part",
    ]


@pytest.mark.parametrize(
    "line",
    ["我有猫 多大了 猫多大了", "我有狗 几岁了 狗几岁了", "下雨了 我有狗 几岁了 狗几岁了", "你好 多大了 你好多大了"],
    ids=["one turn of history", "the utterance", "the utterance, later", "the first turn"],
)
def test_what_any_two_conversations_may_share_is_no_leak(tmp_path: Path, line: str) -> None:
    train = rows(tmp_path / "train.txt", "我有猫 几岁了 猫几岁了", "你好 在吗 几岁了 你几岁了")
    assert check_corpora([train, rows(tmp_path / "test.txt", line)]) == []


def test_conversations_of_one_part_may_share_their_turns(tmp_path: Path) -> None:
    train = rows(tmp_path / "train.txt", "你好 我有猫 几岁了 猫几岁了", "你好 我有猫 多大了 猫多大了")
    assert check_corpora([train, rows(tmp_path / "test.txt", "你好 我有狗 几岁了 狗几岁了")]) == []
