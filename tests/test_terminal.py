import re

import typer

from rewriter.conversation import Origin, Span
from rewriter.terminal import colored


def test_only_what_was_copied_from_elsewhere_is_coloured() -> None:
    spans = (
        Span(0, 2, Origin.HISTORY, 0, 0, 2),
        Span(2, 3, Origin.FUNCTION_WORD, -1, 0, 0),
        Span(4, 6, Origin.UTTERANCE, 1, 0, 2),
    )
    shown = colored("西安的 天气", spans)
    assert re.sub(r"\x1b\[\d+m", "", shown) == "西安的 天气"
    assert shown == typer.style("西安", fg="green") + typer.style("的", fg="yellow") + " " + "天气\x1b[0m"
