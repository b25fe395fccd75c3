import csv
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from rewriter.artefact import save_artefact
from rewriter.config import Calibration
from rewriter.conversation import Conversation
from rewriter.explanation import END, Explanation, draw, explain, find_font, write_table
from rewriter.features import Features
from rewriter.inference import rewrite_greedily

CONVERSATION = tiny.EXAMPLES[1].conversation
CHANGED = tiny.EXAMPLES[2].conversation
SEED = 30  # ends most rewrites early, and changes the second of these two
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
# Of a model that is never sure enough.
DOUBTFUL = tiny.FEATURES.model_copy(update={"calibration": Calibration(min_confidence=1.0)})


def _explained(**changes: Any) -> Explanation:
    return explain(tiny.model(seed=SEED, **SMALL, **changes), tiny.features(), CONVERSATION)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return _explained()


def _rgb(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(path))[..., :3]


def test_lambda_and_both_attentions_are_those_of_the_rewrite(explanation: Explanation) -> None:
    answer = rewrite_greedily(tiny.model(seed=SEED, **SMALL), tiny.arrays(tiny.sources()[1]))
    count = int((np.array(answer["positions"])[0] >= 0).sum())
    assert count > 0 and explanation.written[-1] == END and len(explanation.written) == count + 1
    np.testing.assert_allclose(explanation.gates["λ"][:count], np.array(answer["history_gate"])[0, :count], rtol=1e-4)
    assert np.log(explanation.probabilities).sum() == pytest.approx(np.array(answer["log_prob"])[0], rel=1e-3)
    for side in (explanation.in_utterance, ~explanation.in_utterance):
        np.testing.assert_allclose(explanation.weights[:, side].sum(-1), 1.0, rtol=1e-5)
    # p(y = w) = lambda * a_h + (1 - lambda) * a_u over the places of w: the equation, from what is shown.
    lambdas = explanation.gates["λ"][:, None]
    mixed = np.where(explanation.in_utterance, 1 - lambdas, lambdas) * explanation.weights
    for t, word in enumerate(explanation.written):
        same = [s for s, place in enumerate(explanation.places) if place == word]
        assert mixed[t, same].sum() == pytest.approx(explanation.probabilities[t], rel=1e-4)


def test_every_place_says_where_it_stands(explanation: Explanation) -> None:
    found = list(zip(explanation.places, explanation.turns, explanation.in_utterance, strict=True))
    assert found == [
        *((word, -1, False) for word in ("的", "是", "在")),
        *((word, 0, False) for word in ("北京", "今天", "冷", "吗")),
        *((word, 1, False) for word in ("今天", "很", "冷")),
        *((word, 2, True) for word in ("明天", "呢", END)),
    ]


@pytest.mark.parametrize(
    ("output", "gates"), [("ptr_net", ["on history"]), ("ptr_gen", ["on history", "p_gen"]), ("gen", [])]
)
def test_models_without_lambda_show_what_they_have(output: str, gates: list[str], tmp_path: Path) -> None:
    found = _explained(output=output)
    assert list(found.gates) == gates
    assert all(((gate >= 0) & (gate <= 1)).all() for gate in found.gates.values())
    total = found.weights.sum(-1)
    if output == "gen":
        assert (total < 1).all() and (found.weights > 0).any()
    else:
        np.testing.assert_allclose(total, 1.0, rtol=1e-5)
        np.testing.assert_allclose(found.weights[:, ~found.in_utterance].sum(-1), found.gates["on history"], rtol=1e-4)
    draw(tmp_path / "map.png", found)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_without_history_there_is_nothing_to_explain() -> None:
    with pytest.raises(ValueError, match="expected a history and an utterance, found nothing to rewrite"):
        explain(tiny.model(), tiny.features(), Conversation((), "明天呢"))


def test_both_tables_hold_all_the_numbers(explanation: Explanation, tmp_path: Path) -> None:
    write_table(tmp_path / "table.tsv", explanation)
    write_table(tmp_path / "table.json", explanation)
    with (tmp_path / "table.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    described = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert described["text"] == explanation.text
    weights = np.array([step["weights"] for step in described["steps"]])
    np.testing.assert_allclose(weights, explanation.weights)
    np.testing.assert_allclose(np.array([float(row["weight"]) for row in rows]).reshape(weights.shape), weights)
    first = rows[0]
    assert (first["step"], first["word"], first["place"]) == ("0", explanation.written[0], "的")
    assert (first["side"], first["turn"]) == ("history", "-1")
    assert float(first["λ"]) == pytest.approx(described["steps"][0]["λ"]) == pytest.approx(explanation.gates["λ"][0])


def test_a_rewrite_that_a_service_would_withhold_is_shown_with_the_reason(tmp_path: Path) -> None:
    features, model = Features(DOUBTFUL, tiny.VOCABULARY), tiny.model(seed=SEED, **SMALL)
    unfinished, unchanged, found = (explain(model, features, example.conversation) for example in tiny.EXAMPLES[:3])
    assert unfinished.withheld == "no word or no end found"
    assert (unchanged.text, unchanged.withheld) == (CONVERSATION.utterance, "")
    plain = explain(model, tiny.features(), CHANGED)
    assert found.text == plain.text != CHANGED.utterance
    assert found.withheld == f"confidence {plain.probabilities.prod():.3f} < 1.00"
    assert plain.withheld == ""
    write_table(tmp_path / "table.json", found)
    assert json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["withheld"] == found.withheld


def test_without_a_font_the_words_are_numbered_and_named_in_the_legend(
    explanation: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewriter.explanation.find_font", lambda characters: None)
    legend = draw(tmp_path / "map.png", explanation)
    names = [line.split()[1] for line in legend]
    written = list(explanation.written)
    assert names[: len(written)] == written
    assert [line.split()[0] for line in legend] == [str(number) for number in range(1, len(legend) + 1)]
    # The bank's words only where something points to them.
    drawn = [s for s, turn in enumerate(explanation.turns) if turn >= 0 or explanation.weights[:, s].max() > 0.01]
    assert names[len(written) :] == [explanation.places[s] for s in drawn]
    assert _rgb(tmp_path / "map.png").std() > 0.01


def _font(path: Path, characters: str) -> Path:
    """A font in which each of these characters is a square."""
    pen = TTGlyphPen(None)
    for number, corner in enumerate(((0, 0), (0, 800), (800, 800), (800, 0))):
        (pen.lineTo if number else pen.moveTo)(corner)
    pen.closePath()
    square = pen.glyph()
    names = [".notdef", *(f"u{ord(character):x}" for character in characters)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(c): name for c, name in zip(characters, names[1:], strict=True)})
    builder.setupGlyf(dict.fromkeys(names, square))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": path.stem, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    return path


def test_the_font_is_one_that_has_all_the_characters(explanation: Explanation, tmp_path: Path) -> None:
    assert "DejaVu" in str(find_font("Messi (end)", [tmp_path]))
    assert find_font("梅西", [tmp_path]) is None
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    _font(tmp_path / "half.ttf", "梅")
    whole = _font(tmp_path / "whole-Regular.ttf", "梅西球")
    assert find_font("梅西", [tmp_path]) == whole
    letters = "".join(dict.fromkeys("".join([explanation.text, *explanation.places])))
    assert draw(tmp_path / "map.png", explanation, _font(tmp_path / "all.ttf", letters)) == []


def test_dollar_signs_are_no_formula(explanation: Explanation, tmp_path: Path) -> None:
    priced = dataclasses.replace(
        explanation,
        text="$5_$10",
        written=("$^$",) * len(explanation.written),
        places=("$_$",) * len(explanation.places),
    )
    draw(tmp_path / "map.png", priced)
    assert _rgb(tmp_path / "map.png").std() > 0.01


def test_the_command_draws_writes_and_prints(tmp_path: Path) -> None:
    save_artefact(tmp_path / "model", tiny.model(seed=SEED, **SMALL), DOUBTFUL, tiny.VOCABULARY)
    picture, table = tmp_path / "map.png", tmp_path / "table.tsv"
    turns = [argument for turn in CHANGED.history for argument in ("--history", turn)]
    command = [sys.executable, "-m", "rewriter", "explain", CHANGED.utterance, *turns]
    command += ["--model", str(tmp_path / "model"), "--output", str(picture), "--table", str(table)]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert finished.returncode == 0, finished.stderr
    text, withheld = finished.stdout.splitlines()[:2]
    assert text == _explained_from(tmp_path / "model").text
    assert withheld.startswith("withheld: confidence 0.") and withheld.endswith(" < 1.00")
    assert picture.read_bytes().startswith(b"\x89PNG") and table.read_text(encoding="utf-8").startswith("step\tword\t")
    again = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert again.returncode == 2 and "--force" in again.stderr


def _explained_from(folder: Path) -> Explanation:
    from rewriter.artefact import load_model

    return explain(load_model(folder), tiny.features(), CHANGED)
