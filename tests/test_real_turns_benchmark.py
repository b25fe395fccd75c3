"""Turns are drawn from each file alike, and verdicts are counted by the confidence of what was changed."""

import json
from pathlib import Path

import pytest

from benchmarks.real_turns import count, sample


def _dialogues(directory: Path, name: str, conversations: int) -> Path:
    path = directory / name
    lines = [json.dumps({"turns": [f"{name} {n} {turn}" for turn in range(9)]}) for n in range(conversations)]
    path.write_text("\n".join([*lines, json.dumps({"turns": ["alone"]})]), encoding="utf-8")
    return path


def test_as_many_turns_of_each_file_with_what_was_said_just_before(tmp_path: Path) -> None:
    paths = [_dialogues(tmp_path, "a", 40), _dialogues(tmp_path, "b", 30)]
    turns = sample(paths, 30)
    assert [turn["source"] for turn in turns] == ["a"] * 30 + ["b"] * 30
    assert [turn["id"] for turn in turns] == list(range(60))
    for turn in turns:
        name, number, index = turn["utterance"].split()
        before = range(max(0, int(index) - 6), int(index))
        assert turn["history"] == [f"{name} {number} {earlier}" for earlier in before]
        assert turn["history"]
    assert turns == sample(paths, 30)
    with pytest.raises(ValueError, match=r"b: expected 31 conversations of two turns or more, found 30"):
        sample(paths, 31)


def test_what_was_changed_is_counted_from_each_threshold_on_its_readers_in_equal_parts() -> None:
    turns = [
        {"id": 0, "utterance": "多少钱", "rewrite": "门票多少钱", "confidence": 0.5},
        {"id": 1, "utterance": "他呢", "rewrite": "小王呢", "confidence": 0.2},
        {"id": 2, "utterance": "好的", "rewrite": "好的", "confidence": 0.9},
        {"id": 3, "utterance": "几点", "rewrite": "门票几点", "confidence": 0.9},
    ]
    verdicts = [(0, "right"), (0, "partial"), (1, "wrong"), (1, "wrong"), (2, "fine")]
    found = count(turns, [{"id": number, "verdict": verdict} for number, verdict in verdicts])
    assert found[0.18] == {"right": 0.5, "partial": 0.5, "unneeded": 0.0, "wrong": 1.0}
    assert found[0.25] == found[0.5] == {"right": 0.5, "partial": 0.5, "unneeded": 0.0, "wrong": 0.0}
    assert sum(found[0.6].values()) == 0
