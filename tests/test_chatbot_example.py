import runpy
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parent.parent / "examples" / "chatbot_pipeline.py"
REWRITES = {"明天有雨吗": "西安明天有雨吗", "它的作者是谁呀": "百年孤独的作者是谁呀"}
TURNS = ["西安今天的天气怎么样", "明天有雨吗", "你看过百年孤独吗", "它的作者是谁呀"]


def talk(rewrite: Any) -> list[str]:
    example = runpy.run_path(str(EXAMPLE))
    return [answer for _, answer in example["talk"](TURNS, rewrite)]


def test_the_bot_follows_a_conversation_only_with_the_rewriter_before_it() -> None:
    with_rewriter = talk(lambda history, turn: REWRITES.get(turn, turn))
    alone = talk(lambda history, turn: turn)
    assert (with_rewriter[1], with_rewriter[3]) == ("西安明天有小雨。", "我查一下《百年孤独》的作者。")
    assert alone[1] == alone[3] == "我没听懂，可以说得完整一点吗？"


def test_the_rewriter_is_given_the_turns_of_both_sides() -> None:
    seen: list[list[str]] = []

    def noting(history: list[str], turn: str) -> str:
        seen.append(history)
        return turn

    talk(noting)
    assert seen[0] == []
    assert seen[1] == ["西安今天的天气怎么样", "西安今天有小雨。"]
