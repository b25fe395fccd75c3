"""A rewrite in colour: what was copied from the history stands out."""

from collections.abc import Sequence

import click

from rewriter.conversation import Origin, Span

_STYLES = {
    Origin.HISTORY: {"fg": "green", "bold": True},
    Origin.FUNCTION_WORD: {"fg": "yellow"},
    Origin.UTTERANCE: {},
}


def colored(text: str, spans: Sequence[Span]) -> str:
    """Green from the history, yellow from the function words, plain from the utterance."""
    pieces, end = [], 0
    for span in spans:
        pieces += [text[end : span.start], click.style(text[span.start : span.end], **_STYLES[span.origin])]
        end = span.end
    return "".join(pieces) + text[end:]
