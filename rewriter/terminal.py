"""A rewrite in colour: what was copied from the history stands out."""

from collections.abc import Sequence

import typer

from rewriter.conversation import Origin, Span

_COLORS = {Origin.HISTORY: "green", Origin.FUNCTION_WORD: "yellow", Origin.UTTERANCE: None}


def colored(text: str, spans: Sequence[Span]) -> str:
    """Green from the history, yellow from the function words, plain from the utterance."""
    pieces, end = [], 0
    for span in spans:
        pieces += [text[end : span.start], typer.style(text[span.start : span.end], fg=_COLORS[span.origin])]
        end = span.end
    return "".join(pieces) + text[end:]
