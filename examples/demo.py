"""Starts the service on a free port, rewrites conversations over gRPC and prints where every piece was copied from."""

import sys
from pathlib import Path

import typer

from rewriter.conversation import Conversation, Origin, Span
from rewriter.samples import SAMPLES
from rewriter.terminal import colored
from serving.answer import Answer
from serving.client import Rewriter
from serving.local import running_service


def main(model_dir: Path) -> None:
    with running_service(model_dir) as service, Rewriter(service.address, timeout_seconds=5) as rewriter:
        rewriter.wait_until_healthy()
        model = rewriter.model_info()
        typer.echo(f"{model.name} version {model.version} at {service.address}\n")
        for kind, conversation in SAMPLES:
            show(kind, conversation, rewriter.rewrite(conversation.history, conversation.utterance))


def show(kind: str, conversation: Conversation, answer: Answer) -> None:
    typer.echo(f"[{kind}]")
    for turn in conversation.history:
        typer.echo(f"    {turn}")
    typer.echo(f"  > {conversation.utterance}")
    rewrite = colored(answer.text, answer.spans)
    typer.echo(f"  = {rewrite}   {answer.outcome.name}, confidence {answer.confidence:.2f}")  # no colours into a file
    typer.echo(f"    {', '.join(_origin(span, answer.text, len(conversation.history)) for span in answer.spans)}\n")


def _origin(span: Span, text: str, utterance_turn: int) -> str:
    piece = text[span.start : span.end]
    if span.origin is Origin.FUNCTION_WORD:
        return f"{piece} (function word)"
    turn = "utterance" if span.turn == utterance_turn else f"turn {span.turn + 1}"
    return f"{piece} ({turn}, {span.source_start}:{span.source_end})"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
