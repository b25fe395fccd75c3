import json
from collections.abc import Sequence
from pathlib import Path

from rewriter.batch import BatchCounts, rewrite_file
from rewriter.conversation import Conversation, Rewrite


def _shout(conversations: Sequence[Conversation]) -> list[Rewrite]:
    """Stands for a model: writes the turn before in front, or leaves a turn without history alone."""
    return [Rewrite((c.history[-1] if c.history else "") + c.utterance, (), 0.5) for c in conversations]


def _run(tmp_path: Path, *lines: str) -> tuple[list[dict], BatchCounts]:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    counts = rewrite_file(source, target, _shout)
    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()], counts


def test_records_come_out_in_their_order_with_all_their_fields(tmp_path: Path) -> None:
    lines = [json.dumps({"id": i, "history": ["北京"], "utterance": f"{i}度吗", "channel": "app"}) for i in range(600)]
    records, counts = _run(tmp_path, *lines)
    assert [record["id"] for record in records] == list(range(600))
    assert records[599] == {
        "id": 599,
        "history": ["北京"],
        "utterance": "599度吗",
        "channel": "app",
        "rewrite": "北京599度吗",
        "confidence": 0.5,
    }
    assert counts == BatchCounts(records=600, errors=0, turns=600, unchanged=0)


def test_every_turn_of_a_whole_conversation_is_rewritten_from_the_turns_before_it(tmp_path: Path) -> None:
    turns = [{"speaker": "A", "text": "北京"}, {"speaker": "B", "text": "冷"}, {"speaker": "A", "text": "吗"}]
    records, counts = _run(tmp_path, json.dumps({"id": "x", "turns": turns}))
    assert [turn["rewrite"] for turn in records[0]["turns"]] == ["北京", "北京冷", "冷吗"]
    assert records[0]["turns"][1]["speaker"] == "B"
    assert counts == BatchCounts(records=1, errors=0, turns=3, unchanged=1)


def test_a_record_that_cannot_be_read_keeps_its_place_and_says_why(tmp_path: Path) -> None:
    good = json.dumps({"history": [], "utterance": "你好"})
    bad = json.dumps({"id": 7, "history": "北京", "utterance": "冷吗"})
    records, counts = _run(tmp_path, good, bad, "{not json", "[1]", good)
    assert "line 2: history: " in records[1]["error"]
    assert records[1]["id"] == 7
    assert records[1]["utterance"] == "冷吗"
    assert records[2]["error"].startswith("line 3: expected JSON")
    assert records[2]["line"] == "{not json"
    assert records[3]["error"] == "line 4: expected an object, found list"
    assert [records[i]["rewrite"] for i in (0, 4)] == ["你好", "你好"]
    assert counts == BatchCounts(records=5, errors=3, turns=2, unchanged=2)


def test_half_a_surrogate_pair_comes_out_as_it_came_in_and_ends_nothing(tmp_path: Path) -> None:
    good = json.dumps({"history": [], "utterance": "你好", "name": "\ud83d😀"})
    half = {"id": "\ud83d", "history": ["北京"], "utterance": "冷吗\ud83d"}
    records, counts = _run(tmp_path, good, json.dumps(half), good)
    assert records[1] == half | {"rewrite": "北京冷吗\ud83d", "confidence": 0.5}
    assert [(records[i]["rewrite"], records[i]["name"]) for i in (0, 2)] == [("你好", "\ud83d😀")] * 2
    assert counts == BatchCounts(records=3, errors=0, turns=3, unchanged=2)


def test_no_half_written_output_is_left_where_the_model_fails(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"history": [], "utterance": "你好"}) + "\n", encoding="utf-8")

    def fail(conversations: Sequence[Conversation]) -> list[Rewrite]:
        raise RuntimeError("no model")

    try:
        rewrite_file(source, target, fail)
    except RuntimeError:
        assert not target.exists()
    else:
        raise AssertionError("expected the model's error to come through")


def test_a_long_conversation_is_rewritten_whole_in_pieces(tmp_path: Path) -> None:
    turns = [{"text": str(number)} for number in range(2500)]
    asked: list[int] = []

    def note(conversations: Sequence[Conversation]) -> list[Rewrite]:
        asked.append(len(conversations))
        return _shout(conversations)

    (tmp_path / "in.jsonl").write_text(json.dumps({"turns": turns}) + "\n", encoding="utf-8")
    counts = rewrite_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl", note)
    record = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert record["turns"][2499]["rewrite"] == "24982499"
    assert counts == BatchCounts(records=1, errors=0, turns=2500, unchanged=1)
    assert sum(asked) == 2500 and max(asked) < 2500
