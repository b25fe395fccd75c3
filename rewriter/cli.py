"""The command ``rewriter``. Each command parses, builds configuration, calls one function and returns a status."""

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.tokenizer import Granularity
from rewriter.vocabulary import MAX_WORDS

if TYPE_CHECKING:
    from rewriter.batch import RewriteFunction

app = typer.Typer(
    help="Makes chat turns self-contained, by copying words from where they were said.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Here, and not in ``artefact``: help must come up without NumPy and pydantic.
PRETRAINED = Path(__file__).parent / "pretrained" / "zh"
RECIPE = Path(__file__).parent / "recipes" / "zh.toml"

Model = Annotated[Path, typer.Option(help="Model folder.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


@app.command()
def prepare(
    corpora: Annotated[
        list[Path],
        typer.Argument(
            metavar="CORPUS...",
            help="Conversations with rewrites: columns of history turns, utterance, reference; or .jsonl records. "
            "The first file gives validation too, the others are for training alone.",
        ),
    ],
    output: Annotated[Path | None, typer.Option(help="Folder for the arrays.")] = None,
    from_dialogues: Annotated[
        list[Path] | None,
        typer.Option(help='Unannotated conversations to learn from first: JSON Lines of {"turns": [text, …]}.'),
    ] = None,
    granularity: Annotated[
        Granularity | None, typer.Option(help="What a token is; default: names, or as --for-model has it.")
    ] = None,
    for_model: Annotated[
        Path | None,
        typer.Option(
            help="Model folder whose training is to go on: its features and, before others, its words are kept, and of "
            "several references the one that it finds likeliest is learnt."
        ),
    ] = None,
    max_words: Annotated[
        int, typer.Option(min=0, help="Words with an embedding of their own; 0: those of --for-model and no others.")
    ] = MAX_WORDS,
    validation_lines: Annotated[int, typer.Option(min=1, help="Lines kept for validation, from the end.")] = 1000,
    check: Annotated[
        bool, typer.Option("--check", help="Only look for faults: words nobody said, repetitions, leaks between files.")
    ] = False,
    force: Force = False,
) -> None:
    """Turn corpora into arrays for training, or check them."""
    _log_to_stderr()
    if check:
        _check(corpora)
        return
    if output is None:
        raise ValueError("expected --output, the folder for the arrays, found none")
    if granularity and for_model:
        raise ValueError("expected --granularity or --for-model, whose tokens are known, found both")
    from rewriter import preparation
    from rewriter.config import FeaturesConfig
    from rewriter.dataset import REPORT_FILE

    _refuse_to_overwrite(output / REPORT_FILE, force)
    counts = preparation.prepare(
        corpora[0],
        output,
        extra_paths=corpora[1:],
        dialogue_paths=from_dialogues or (),
        validation_lines=validation_lines,
        max_words=max_words,
        config=FeaturesConfig(granularity=granularity or Granularity.NAMES),
        model=for_model,
    )
    typer.echo(json.dumps(counts, indent=2))


def _check(corpora: list[Path]) -> None:
    from rewriter.checking import check_corpora

    faults = check_corpora(corpora)
    for fault in faults:
        typer.echo(fault)
    if faults:
        raise typer.Exit(1)
    typer.echo(f"{len(corpora)} files, no faults")


@app.command()
def attach(
    excerpts: Annotated[list[Path], typer.Argument(help="Rewrites without their text: corpus/zh/standoff/*.jsonl.")],
    dialogues: Annotated[
        list[Path],
        typer.Option(help='The conversations: JSON Lines of {"turns": [text, …]}, gzipped or not; or a corpus, .txt.'),
    ],
    output: Annotated[Path, typer.Option(help="Corpus, .jsonl, for `prepare`, `calibrate` and `evaluate`.")],
    force: Force = False,
) -> None:
    """Join rewrites that are kept apart from their text with the conversations that they belong to."""
    from rewriter import standoff
    from rewriter.corpus import read_conversations, write_corpus

    if output.suffix != ".jsonl":
        raise ValueError(f"expected --output to be named .jsonl, found {output.name}")
    _refuse_to_overwrite(output, force)
    output.parent.mkdir(parents=True, exist_ok=True)
    wanted = [(path, excerpt) for path in excerpts for excerpt in standoff.read_excerpts(path)]
    conversations = (turns for path in dialogues for turns in read_conversations(path))
    made = standoff.attach([excerpt for _, excerpt in wanted], conversations)
    if all(of_excerpt is None for of_excerpt in made):
        raise ValueError(f"expected conversations with one of {len(wanted)} excerpts, found none of them")
    write_corpus([example for of_excerpt in made for example in of_excerpt or ()], output)
    for path in excerpts:
        of_file = [of_excerpt for (source, _), of_excerpt in zip(wanted, made, strict=True) if source == path]
        found = [of_excerpt for of_excerpt in of_file if of_excerpt is not None]
        typer.echo(f"{path}: {len(found)} of {len(of_file)} excerpts found, {sum(map(len, found))} turns")


@app.command()
def train(
    prepared: Annotated[Path, typer.Argument(help="What `prepare` wrote.")],
    output: Annotated[Path, typer.Option(help="Folder for checkpoints, curves and the model; run again to go on.")],
    recipe: Annotated[Path, typer.Option(help="Sizes of the model and stages of its training.")] = RECIPE,
    begin_with: Annotated[
        Path | None, typer.Option(help="Model folder to go on from; `prepare --for-model` it first. Default: nothing.")
    ] = None,
) -> None:
    """Train a model; a run that was killed goes on where it was."""
    from rewriter.config import Recipe
    from rewriter.training import train_recipe

    _log_to_stderr()
    best = train_recipe(prepared, output, Recipe.load(recipe), begin_with)
    typer.echo(f"the best model is in {best}")


@app.command()
def evaluate(
    data: Annotated[Path, typer.Argument(help="Conversations with references, as for `prepare`.")],
    output: Annotated[Path, typer.Option(help="Report, JSON.")],
    model: Model = PRETRAINED,
    beam_size: Annotated[int, typer.Option(min=1, help="1 is greedy.")] = 1,
    errors: Annotated[Path | None, typer.Option(help="Text file for the errors, side by side.")] = None,
    details: Annotated[Path | None, typer.Option(help="JSON Lines, one a line of the corpus, for `compare`.")] = None,
    analyse: Annotated[
        bool, typer.Option("--analyse", help="Print the break-down too: pronouns, lengths, distances, kinds of word.")
    ] = False,
    force: Force = False,
) -> None:
    """Compare rewrites with references."""
    from rewriter import evaluation
    from rewriter.corpus import read_corpus
    from rewriter.inference import Rewriter
    from rewriter.results import write_results

    _log_to_stderr()
    for path in (output, errors, details):
        if path is not None:
            _refuse_to_overwrite(path, force)
            path.parent.mkdir(parents=True, exist_ok=True)
    corpus = read_corpus(data)
    for error in corpus.errors:
        typer.echo(error, err=True)
    found = evaluation.evaluate(Rewriter.load(model, beam_size), corpus)
    evaluation.write_report(output, found.report)
    if errors is not None:
        evaluation.write_errors(errors, found.results)
    if details is not None:
        write_results(details, found.results)
    typer.echo(evaluation.summary(found.report, analyse))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="What `evaluate --details` wrote.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The same for another model, of the same corpus.")],
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the paired bootstrap.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same lines.")] = 0,
    examples: Annotated[int, typer.Option(min=0, help="Lines to show that only A, and only B, got right.")] = 0,
) -> None:
    """Say whether one of two evaluations is better, or only luckier."""
    from rewriter import comparison
    from rewriter.results import read_results

    found = comparison.compare(read_results(first), read_results(second), resamples, seed)
    typer.echo(comparison.describe(found, examples))


@app.command()
def calibrate(
    data: Annotated[list[Path], typer.Argument(help="Corpora the model was not trained on.")],
    model: Annotated[Path, typer.Option(help="Model folder; its calibration is replaced.")],
    output: Annotated[Path, typer.Option(help="Folder for the report and the plots.")],
    most_wrongly_changed: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the turns that need nothing that may be changed.")
    ] = 0.02,
    force: Force = False,
) -> None:
    """Make a model's confidence mean what it says, and choose below which a rewrite is withheld."""
    from rewriter import confidence
    from rewriter.corpus import read_corpus

    _log_to_stderr()
    _refuse_to_overwrite(output / confidence.REPORT_FILE, force)
    corpora = [read_corpus(path) for path in data]
    for corpus in corpora:
        for error in corpus.errors:
            typer.echo(error, err=True)
    examples = [example for corpus in corpora for example in corpus.examples]
    report = confidence.calibrate(model, examples, output, most_wrongly_changed)
    for key, value in report.items():
        if isinstance(value, float):
            typer.echo(f"{key:<35} {value:.4f}")


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
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt; implied by the files below.")] = False,
    ca_file: Annotated[Path | None, typer.Option(help="Authorities that know the server, PEM.")] = None,
    certificate_file: Annotated[Path | None, typer.Option(help="Certificate to show the server, PEM.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Token to show the server.")] = None,
) -> None:
    """Rewrite one turn and show in colour what was copied from the history."""
    from rewriter.conversation import Conversation
    from rewriter.terminal import colored

    conversation = Conversation(tuple(history or ()), utterance)
    if server:
        from serving.asking import ask

        answer = ask(
            server,
            conversation,
            tls=tls,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            token_file=token_file,
        )
        typer.echo(colored(answer.text, answer.spans))
    else:
        [found] = _in_process(model)([conversation])
        typer.echo(colored(found.text, found.spans))


@app.command()
def explain(
    utterance: Annotated[str, typer.Argument(help="The incoming turn.")],
    output: Annotated[Path, typer.Option(help="Heat maps, PNG.")],
    history: Annotated[list[str] | None, typer.Option(help="An earlier turn; repeat, oldest first.")] = None,
    model: Model = PRETRAINED,
    table: Annotated[Path | None, typer.Option(help="The same numbers, .json or .tsv.")] = None,
    font: Annotated[Path | None, typer.Option(help="Font for the words; default: any installed one that fits.")] = None,
    force: Force = False,
) -> None:
    """Draw where the model looked for each word of a rewrite, and lambda."""
    from rewriter import explanation
    from rewriter.artefact import load_features, load_model
    from rewriter.conversation import Conversation
    from rewriter.features import Features

    for path in (output, table):
        if path is not None:
            _refuse_to_overwrite(path, force)
    conversation = Conversation(tuple(history or ()), utterance)
    found = explanation.explain(load_model(model), Features(*load_features(model)), conversation)
    if table is not None:
        explanation.write_table(table, found)
    typer.echo(found.text)
    if found.withheld:
        typer.echo(f"withheld: {found.withheld}")
    legend = explanation.draw(output, found, font)
    if legend:
        typer.echo("no installed font has these characters (see --font), so the words are numbered:")
        typer.echo("\n".join(legend))


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
    model_dir: Annotated[Path | None, typer.Option(help="What `export` wrote; or the key model_dir.")] = None,
    host: Annotated[str | None, typer.Option(help="Default: loopback.")] = None,
    port: Annotated[int | None, typer.Option(help="Default: 8600; 0 picks a free one.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Server processes. Default: 1.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="REWRITER_CONFIG", help="TOML file of settings.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, see docs/settings.md; repeat.")
    ] = None,
    check_config: Annotated[
        bool, typer.Option("--check-config", help="Look at all settings and their files, print them, start nothing.")
    ] = False,
) -> None:
    """Run the gRPC front service. Settings: --config, then REWRITER_* variables, then flags; the later wins."""
    from serving import settings

    # Until the service can read its settings anew: they are read now.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    named = {"model_dir": model_dir, "host": host, "port": port, "workers": workers}
    flags = {key: value for key, value in named.items() if value is not None}
    flags |= settings.parse_flags(assignments or ())
    loaded = settings.load(flags, config)
    if check_config:
        from serving.check_config import report

        raise typer.Exit(report(loaded))
    if loaded.settings.workers > 1:
        from serving.processes.run import run as run_workers

        raise typer.Exit(run_workers(loaded.settings, flags, config))
    from serving.server import run

    run(loaded.settings, lambda: settings.load(flags, config).settings)


def main() -> None:
    """Entry point: bad input ends in one line and status 2, not in a stack trace."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        app()
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:
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
