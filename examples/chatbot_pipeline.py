"""A toy chatbot that knows single turns only, made to follow a conversation by the rewriter before it.

    python examples/chatbot_pipeline.py [HOST:PORT]

Type a turn and press return; end with Ctrl-D. The bot keeps the turns; the rewriter keeps nothing.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from serving.client import Rewriter

PATTERNS = (
    (
        re.compile(r"(?P<place>[\u4e00-\u9fff]{2,3}?)(?P<day>今天|明天|后天).*(?:雨|天气)"),
        "{place}{day}有小雨。",
    ),
    (re.compile(r"《?(?P<book>百年孤独|红楼梦|三体)》?.*(?:作者|谁写)"), "我查一下《{book}》的作者。"),
)
MAX_HISTORY_TURNS = 6


def reply(turn: str) -> str:
    """Answers one turn, with no idea of what was said before."""
    for pattern, answer in PATTERNS:
        if match := pattern.search(turn):
            return answer.format(**match.groupdict())
    return "我没听懂，可以说得完整一点吗？"


def talk(turns: Iterable[str], rewrite: Callable[[Sequence[str], str], str]) -> Iterator[tuple[str, str]]:
    """Yields (self-contained turn, answer) for each turn of one user."""
    history: list[str] = []
    for turn in turns:
        complete = rewrite(history[-MAX_HISTORY_TURNS:], turn)
        answer = reply(complete)
        history += [turn, answer]
        yield complete, answer


def main(target: str) -> None:
    with Rewriter(target) as rewriter:
        rewriter.wait_until_healthy()
        for complete, answer in talk(map(str.strip, sys.stdin), rewriter.rewrite_or_original):
            print(f"({complete})\n{answer}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8600")
