"""The command as its user runs it: in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from rewriter.standoff import fingerprint

CORPUS = "\n".join(
    "\t\t".join((*example.conversation.history, example.conversation.utterance, example.reference))
    for example in tiny.EXAMPLES
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rewriter", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "KERAS_BACKEND": "tensorflow"})


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rewriter.artefact import save_artefact

    folder = tmp_path_factory.mktemp("model")
    save_artefact(folder, tiny.model(), tiny.FEATURES, tiny.VOCABULARY)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS + "\n", encoding="utf-8")
    return path


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from rewriter.cli import app; from typer.testing import CliRunner\n"
        "result = CliRunner().invoke(app, ['--help']); assert result.exit_code == 0, result.output\n"
        "print(sorted({'tensorflow', 'keras', 'jieba', 'numpy', 'grpc', 'pydantic'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


def test_every_documented_command_has_help() -> None:
    output = run("--help").stdout
    for command in ("prepare", "train", "evaluate", "compare", "calibrate", "export", "rewrite", "batch", "serve"):
        assert f" {command} " in output


def test_bad_input_ends_in_one_line_that_names_it(tmp_path: Path) -> None:
    finished = run("evaluate", str(tmp_path / "missing.txt"), "--output", str(tmp_path / "report.json"))
    assert finished.returncode == 2
    assert "missing.txt" in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr


def test_a_report_is_not_overwritten_without_force(corpus: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("precious", encoding="utf-8")
    for outputs in (
        [report],
        [tmp_path / "new.json", "--errors", report],
        [tmp_path / "new.json", "--details", report],
    ):
        finished = run("evaluate", str(corpus), "--output", *map(str, outputs))
        assert finished.returncode == 2
        assert "--force" in finished.stderr
    assert report.read_text(encoding="utf-8") == "precious"
    assert not (tmp_path / "new.json").exists()


def test_evaluate_writes_every_metric_and_the_errors_side_by_side(
    model_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    report, errors = tmp_path / "new" / "report.json", tmp_path / "errors.txt"
    arguments = ("evaluate", str(corpus), "--model", str(model_folder), "--output", str(report))
    finished = run(*arguments, "--errors", str(errors))
    assert finished.returncode == 0, finished.stderr
    found = json.loads(report.read_text(encoding="utf-8"))
    keys = ["em", "bleu1", "bleu2", "bleu4", "rouge1", "rouge2", "rougeL", "f1", "f2", "f3", "negative_em"]
    assert all(0 <= found[key] <= 1 for key in keys)
    assert found["lines"] == 4
    # Random weights rewrite nothing well: the listing shows what each line should have been.
    assert found["em"] < 1
    assert "  reference  " in errors.read_text(encoding="utf-8")


def test_details_of_two_evaluations_can_be_compared(model_folder: Path, corpus: Path, tmp_path: Path) -> None:
    details = tmp_path / "details.jsonl"
    arguments = ("evaluate", str(corpus), "--model", str(model_folder), "--output", str(tmp_path / "report.json"))
    finished = run(*arguments, "--details", str(details), "--analyse")
    assert finished.returncode == 0, finished.stderr
    assert "coreference" in finished.stdout
    assert "coreference" in json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["analysis"]["classes"]
    assert len(details.read_text(encoding="utf-8").splitlines()) == 4
    compared = run("compare", str(details), str(details), "--resamples", "50", "--examples", "1")
    assert compared.returncode == 0, compared.stderr
    assert [line.split()[-1] for line in compared.stdout.splitlines() if line.startswith(("em", "f"))] == ["1.0000"] * 4
    refused = run(*arguments, "--details", str(details))
    assert refused.returncode == 2
    assert "--force" in refused.stderr


def test_batch_rewrites_a_file_and_fails_if_a_record_could_not_be_read(model_folder: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": 1, "history": [], "utterance": "早上好"}\n{"id": 2}\n', encoding="utf-8")
    finished = run("batch", str(source), "--model", str(model_folder), "--output", str(target))
    assert finished.returncode == 1
    assert "2 records, 1 turns, 1 of them unchanged; 1 errors" in finished.stdout
    first, second = (json.loads(line) for line in target.read_text(encoding="utf-8").splitlines())
    assert first == {"id": 1, "history": [], "utterance": "早上好", "rewrite": "早上好", "confidence": 1.0}
    assert second["id"] == 2
    assert "history" in second["error"]


def test_rewrite_prints_the_rewrite(model_folder: Path) -> None:
    finished = run("rewrite", "--model", str(model_folder), "早上好")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == "早上好"


def test_prepare_takes_further_corpora_dialogues_and_a_granularity(corpus: Path, tmp_path: Path) -> None:
    further, dialogues, output = tmp_path / "more.jsonl", tmp_path / "dialogues.jsonl", tmp_path / "prepared"
    further.write_text(
        '{"history": ["杭州好玩吗"], "utterance": "怎么去", "rewrite": ["怎么去杭州"]}\n', encoding="utf-8"
    )
    dialogues.write_text('{"turns": ["我想去杭州看西湖", "杭州的西湖很美"]}\n', encoding="utf-8")
    arguments = ("prepare", str(corpus), str(further), "--output", str(output), "--validation-lines", "2")
    finished = run(*arguments, "--from-dialogues", str(dialogues), "--granularity", "character")
    assert finished.returncode == 0, finished.stderr
    counts = json.loads(finished.stdout)
    assert (counts["train"], counts["extra"], counts["excerpts"]) == (2, 1, 1)
    assert json.loads((output / "features.json").read_text(encoding="utf-8"))["granularity"] == "character"
    assert "杭" in (output / "words.txt").read_text(encoding="utf-8").split()
    refused = run(*arguments)
    assert refused.returncode == 2
    assert "--force" in refused.stderr


def test_prepare_cuts_words_of_the_dictionary_and_repeated_names_unless_told_otherwise(
    corpus: Path, tmp_path: Path
) -> None:
    assert run("prepare", str(corpus), "--output", str(tmp_path / "a"), "--validation-lines", "2").returncode == 0
    assert json.loads((tmp_path / "a" / "features.json").read_text(encoding="utf-8"))["granularity"] == "names"


def test_attach_joins_rewrites_with_their_conversations(tmp_path: Path) -> None:
    turns = ["我想去云栖慢谷", "那里很美", "它远吗"]
    excerpts, dialogues, output = (
        tmp_path / "excerpts.jsonl",
        tmp_path / "dialogues.jsonl",
        tmp_path / "new" / "lines.jsonl",
    )
    rewrites = {"turn": 2, "kind": "pronoun", "rewrites": [[[0, 3, 7], [2, 1, 3]]]}
    found = {"begins": fingerprint(turns[:2]), "whole": fingerprint(turns), "length": 3, "judgements": [rewrites]}
    lost = {"begins": "0" * 16, "whole": "0" * 16, "length": 2}
    excerpts.write_text(json.dumps(found) + "\n" + json.dumps(lost) + "\n", encoding="utf-8")
    dialogues.write_text(json.dumps({"turns": turns}) + "\n", encoding="utf-8")
    arguments = ("attach", str(excerpts), "--dialogues", str(dialogues), "--output", str(output))
    finished = run(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"{excerpts}: 1 of 2 excerpts found, 2 turns\n"
    _, last = output.read_text(encoding="utf-8").splitlines()
    assert json.loads(last)["rewrite"] == ["云栖慢谷远吗"]
    refused = run(*arguments)
    assert (refused.returncode, "exists; --force overwrites it" in refused.stderr) == (2, True)
    dialogues.write_text('{"turns": ["别的", "话"]}\n', encoding="utf-8")
    refused = run(*arguments, "--force")
    assert refused.returncode == 2
    assert "expected conversations with one of 2 excerpts, found none of them" in refused.stderr
    assert len(output.read_text(encoding="utf-8").splitlines()) == 2
    refused = run("attach", str(excerpts), "--dialogues", str(dialogues), "--output", str(tmp_path / "lines.txt"))
    assert "expected --output to be named .jsonl, found lines.txt" in refused.stderr


def test_prepare_and_train_go_on_from_a_model(corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    prepared, recipe, output = tmp_path / "prepared", tmp_path / "recipe.toml", tmp_path / "out"
    arguments = ("prepare", str(corpus), "--output", str(prepared), "--validation-lines", "2")
    refused = run(*arguments, "--for-model", str(model_folder), "--granularity", "word")
    assert refused.returncode == 2
    assert "expected --granularity or --for-model, whose tokens are known, found both" in refused.stderr
    assert run(*arguments, "--for-model", str(model_folder)).returncode == 0
    words = (prepared / "words.txt").read_bytes()
    known = (model_folder / "words.txt").read_bytes()
    assert words.startswith(known) and len(words) > len(known)
    sizes = json.loads((model_folder / "config.json").read_text(encoding="utf-8"))
    model = "\n".join(f"{name} = {json.dumps(value)}" for name, value in sizes.items())
    recipe.write_text(
        f'[model]\n{model}\n[stages.only]\ndata = [{{path = "train"}}]\nvalidation = "validation"\nepochs = 1\n',
        encoding="utf-8",
    )
    train = ("train", str(prepared), "--output", str(output), "--recipe", str(recipe))
    trained = run(*train, "--begin-with", str(model_folder))
    assert trained.returncode == 0, trained.stderr
    assert json.loads((output / "initial.json").read_text(encoding="utf-8"))["weights.npz"]
    assert (output / "only" / "best" / "weights.npz").is_file()


def test_prepare_without_a_folder_to_write_to_says_so(corpus: Path) -> None:
    finished = run("prepare", str(corpus))
    assert finished.returncode == 2
    assert finished.stderr.strip() == "rewriter: expected --output, the folder for the arrays, found none"


def test_prepare_checks_corpora_and_writes_nothing(corpus: Path, tmp_path: Path) -> None:
    good = run("prepare", "--check", str(corpus))
    assert (good.returncode, good.stdout) == (0, "1 files, no faults\n")
    bad = tmp_path / "bad.txt"
    bad.write_text("我有猫\t几岁了\t狗几岁了\n一列\n", encoding="utf-8")
    finished = run("prepare", "--check", str(corpus), str(bad), "--output", str(tmp_path / "out"))
    assert finished.returncode == 1
    first, second = finished.stdout.splitlines()
    assert first.startswith(f"{bad}:2: expected history turns, utterance and reference")
    assert second == f"{bad}:1: expected a rewrite of words that were said, found '狗几岁了'"
    assert not (tmp_path / "out").exists()


def test_prepare_reports_what_it_wrote(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "prepared"
    finished = run("prepare", str(corpus), "--output", str(output), "--validation-lines", "2")
    assert finished.returncode == 0, finished.stderr
    counts = json.loads(finished.stdout)
    assert counts["train"] == counts["validation"] == 2
    assert (output / "train.npz").is_file()
