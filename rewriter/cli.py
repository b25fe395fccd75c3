"""The command ``rewriter``. Each command parses, builds configuration, calls one function and returns a status."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rewriter.batch import RewriteFunction

app = typer.Typer(
    help="Makes chat turns self-contained, by copying words from where they were said.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PRETRAINED = Path(__file__).parent / "pretrained" / "zh"
RECIPE = Path(__file__).parent / "recipes" / "zh.toml"

Model = Annotated[Path, typer.Option(help="Model folder.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


@app.command()
def prepare(
    corpus: Annotated[
        Path, typer.Argument(help="Conversations, one a line: history turns, utterance, reference; tabs between.")
    ],
    output: Annotated[Path, typer.Option(help="Folder for the arrays.")],
    dialogues: Annotated[
        list[Path] | None,
        typer.Option(help='Unannotated conversations to learn from first: JSON Lines of {"turns": [text, …]}.'),
    ] = None,
    validation_lines: Annotated[int, typer.Option(min=1, help="Lines kept for validation, from the end.")] = 1000,
    force: Force = False,
) -> None:
    """Turn a corpus into arrays for training."""
    from rewriter import preparation

    _log_to_stderr()
    _refuse_to_overwrite(output / preparation.REPORT_FILE, force)
    counts = preparation.prepare(corpus, output, dialogue_paths=dialogues or (), validation_lines=validation_lines)
    typer.echo(json.dumps(counts, indent=2))


@app.command()
def train(
    prepared: Annotated[Path, typer.Argument(help="What `prepare` wrote.")],
    output: Annotated[Path, typer.Option(help="Folder for checkpoints, curves and the model; run again to go on.")],
    recipe: Annotated[Path, typer.Option(help="Sizes of the model and stages of its training.")] = RECIPE,
) -> None:
    """Train a model; a run that was killed goes on where it was."""
    from rewriter.config import Recipe
    from rewriter.training import train_recipe

    _log_to_stderr()
    best = train_recipe(prepared, output, Recipe.load(recipe))
    typer.echo(f"the best model is in {best}")


@app.command()
def evaluate(
    data: Annotated[Path, typer.Argument(help="Conversations with references, as for `prepare`.")],
    output: Annotated[Path, typer.Option(help="Report, JSON.")],
    model: Model = PRETRAINED,
    beam_size: Annotated[int, typer.Option(min=1, help="1 is greedy.")] = 1,
    errors: Annotated[Path | None, typer.Option(help="Text file for the errors, side by side.")] = None,
    force: Force = False,
) -> None:
    """Compare rewrites with references."""
    from rewriter import evaluation
    from rewriter.corpus import read_corpus
    from rewriter.inference import Rewriter

    _log_to_stderr()
    _refuse_to_overwrite(output, force)
    corpus = read_corpus(data)
    for error in corpus.errors:
        typer.echo(error, err=True)
    found = evaluation.evaluate(Rewriter.load(model, beam_size), corpus)
    evaluation.write_report(output, found.report)
    if errors is not None:
        evaluation.write_errors(errors, corpus, found.rewrites)
    for key, value in found.report.items():
        typer.echo(f"{key:<20} {value:.4f}" if isinstance(value, float) else f"{key:<20} {value}")


@app.command()
def export(
    output: Annotated[Path, typer.Option(help="Folder of versions, as TF Serving reads it.")],
    model: Model = PRETRAINED,
    version: Annotated[int | None, typer.Option(min=1, help="Default: the next free number.")] = None,
) -> None:
    """Write a TF Serving version directory, checked against the live model in a fresh process."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    from rewriter.export import export as export_model

    typer.echo(str(export_model(model, output, version)))


@app.command()
def rewrite(
    utterance: Annotated[str, typer.Argument(help="The incoming turn.")],
    history: Annotated[list[str] | None, typer.Option(help="An earlier turn; repeat, oldest first.")] = None,
    model: Model = PRETRAINED,
    server: Annotated[
        str | None, typer.Option(help="host:port of a running service; default: in this process.")
    ] = None,
) -> None:
    """Rewrite one turn and show in colour what was copied from the history."""
    from rewriter.terminal import colored

    turns = history or []
    if server:
        from serving.client import Rewriter

        with Rewriter(server) as client:
            answer = client.rewrite(turns, utterance)
        typer.echo(colored(answer.text, answer.spans))
    else:
        from rewriter.conversation import Conversation

        [found] = _in_process(model)([Conversation(tuple(turns), utterance)])
        typer.echo(colored(found.text, found.spans))


@app.command()
def batch(
    input_path: Annotated[
        Path, typer.Argument(metavar="IN", help="JSON Lines of utterances with history, or of conversations.")
    ],
    output: Annotated[Path, typer.Option(help="The same records, with their rewrites.")],
    model: Model = PRETRAINED,
    force: Force = False,
) -> None:
    """Rewrite logged conversations."""
    from rewriter.batch import rewrite_file

    _log_to_stderr()
    _refuse_to_overwrite(output, force)
    counts = rewrite_file(input_path, output, _in_process(model))
    typer.echo(
        f"{counts.records} records, {counts.turns} turns, {counts.unchanged} of them unchanged; {counts.errors} errors"
    )
    if counts.errors:
        raise typer.Exit(1)


@app.command()
def serve(
    model_dir: Annotated[Path, typer.Option(envvar="REWRITER_MODEL_DIR", help="What `export` wrote.")],
    host: Annotated[str | None, typer.Option(help="Default: REWRITER_HOST or loopback.")] = None,
    port: Annotated[int | None, typer.Option(help="Default: REWRITER_PORT or 8600; 0 picks a free one.")] = None,
) -> None:
    """Run the gRPC front service. All its settings are REWRITER_* variables (see serving/config.py)."""
    from serving.config import ServerSettings
    from serving.server import run

    given: dict[str, Any] = {"model_dir": model_dir, "host": host, "port": port}
    run(ServerSettings(**{key: value for key, value in given.items() if value is not None}))


def main() -> None:
    """Entry point: bad input ends in one line and status 2, not in a stack trace."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        app()
    except (ValueError, OSError, RuntimeError) as error:
        typer.echo(f"rewriter: {error}", err=True)
        raise SystemExit(2) from None


def _in_process(model: Path) -> "RewriteFunction":
    from rewriter.inference import Rewriter

    return Rewriter.load(model).rewrite


def _refuse_to_overwrite(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise ValueError(f"{path} exists; --force overwrites it")


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(message)s")
