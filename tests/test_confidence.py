"""Calibrating a model folder: what is measured, what is written, and what a service then withholds."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from typer.testing import CliRunner

from rewriter import confidence
from rewriter.artefact import load_features, load_model, preprocessing_fingerprint, save_artefact
from rewriter.calibration import calibrated, expected_calibration_error, fit, reliability
from rewriter.cli import app
from rewriter.confidence import Outcomes, calibrate, rewrite_all
from rewriter.config import Calibration, FeaturesConfig
from rewriter.conversation import Conversation, Example, Rewrite
from rewriter.features import Features
from rewriter.inference import Rewriter

# A model of random weights that ends every rewrite early.
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
CONVERSATIONS = tuple(
    Conversation((f"你喜欢{thing}吗", answer), question)
    for thing in ("梅西", "北京", "喝茶", "红楼梦")
    for answer, question in (("我很喜欢", "他几岁"), ("看过两遍", "作者是谁"), ("今天很冷", "明天呢"))
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    save_artefact(folder, tiny.model(seed=30, **LAYERS), tiny.FEATURES, tiny.VOCABULARY)
    return folder


@pytest.fixture(scope="module")
def rewrites(plain: Path) -> list[Rewrite]:
    """What the model makes of CONVERSATIONS: it changes some of the turns."""
    found = Rewriter.load(plain).rewrite(CONVERSATIONS)
    changed = [rewrite.text != c.utterance for rewrite, c in zip(found, CONVERSATIONS, strict=True)]
    assert True in changed and False in changed
    return found


@pytest.fixture(scope="module")
def examples(rewrites: list[Rewrite]) -> list[Example]:
    """Two of three rewrites are right; two turns need nothing, and as utterances some of the references too."""
    annotated = [
        Example(conversation, rewrite.text if index % 3 else "你很冷", ("我很冷",) if index % 2 else ())
        for index, (conversation, rewrite) in enumerate(zip(CONVERSATIONS, rewrites, strict=True))
    ]
    return [*annotated, tiny.EXAMPLES[3], Example(Conversation((), "早上好"), "早上好")]


@pytest.fixture(scope="module")
def calibrated_model(
    plain: Path, examples: list[Example], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """The folder of the model, that of the report, and the report."""
    model, output = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("reports") / "new"
    for path in plain.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    return model, output, calibrate(model, examples, output, most_wrongly_changed=0.1)


def test_the_report_and_two_plots_are_written(calibrated_model: tuple[Path, Path, dict[str, Any]]) -> None:
    _, output, report = calibrated_model
    assert json.loads((output / "calibration.json").read_text(encoding="utf-8")) == report
    for name in ("reliability.png", "trade_off.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")
    assert len(list(output.iterdir())) == 3
    assert [point["threshold"] for point in report["trade_off"]] == [number / 100 for number in range(100)]


def test_the_calibration_is_written_into_the_folder_and_nothing_else_changes(
    calibrated_model: tuple[Path, Path, dict[str, Any]], plain: Path
) -> None:
    model, _, report = calibrated_model
    config, vocabulary = load_features(model)
    assert config.calibration == Calibration(
        slope=report["slope"], intercept=report["intercept"], min_confidence=report["min_confidence"]
    )
    assert config.calibration != Calibration()
    assert config.model_copy(update={"calibration": Calibration()}) == tiny.FEATURES
    assert preprocessing_fingerprint(config, vocabulary) == preprocessing_fingerprint(*load_features(plain))
    for path in plain.iterdir():
        assert path.name == "features.json" or (model / path.name).read_bytes() == path.read_bytes()
    assert load_model(model).config == load_model(plain).config


def test_a_folder_without_calibration_has_one_that_changes_nothing(tmp_path: Path) -> None:
    stored = json.loads(tiny.FEATURES.model_dump_json(exclude={"calibration"}))
    assert "calibration" not in stored
    (tmp_path / "features.json").write_text(json.dumps(stored), encoding="utf-8")
    assert FeaturesConfig.load(tmp_path / "features.json") == tiny.FEATURES


def test_the_threshold_is_the_lowest_that_changes_few_enough(
    calibrated_model: tuple[Path, Path, dict[str, Any]],
) -> None:
    _, _, report = calibrated_model
    shares = {point["threshold"]: point["wrongly_changed"] for point in report["trade_off"]}
    chosen = report["min_confidence"]
    assert shares[chosen] <= 0.1
    assert chosen > 0 and all(share > 0.1 for threshold, share in shares.items() if threshold < chosen)


def test_a_model_withholds_changes_below_its_threshold_and_nothing_else(plain: Path, rewrites: list[Rewrite]) -> None:
    scaling = Calibration(slope=0.5, intercept=0.2)
    certainty = [calibrated(rewrite.confidence, scaling) for rewrite in rewrites]
    is_changed = [rewrite.text != c.utterance for rewrite, c in zip(rewrites, CONVERSATIONS, strict=True)]
    least, *_, most = sorted(sure for sure, changed in zip(certainty, is_changed, strict=True) if changed)
    calibration = scaling.model_copy(update={"min_confidence": (least + most) / 2})
    features = Features(tiny.FEATURES.model_copy(update={"calibration": calibration}), tiny.VOCABULARY)
    found = Rewriter(load_model(plain), features).rewrite(CONVERSATIONS)
    withheld = [changed and sure < (least + most) / 2 for sure, changed in zip(certainty, is_changed, strict=True)]
    assert 0 < sum(withheld) < sum(is_changed)
    for index, conversation in enumerate(CONVERSATIONS):
        if withheld[index]:
            assert found[index] == Rewrite.unchanged(conversation, pytest.approx(1 - certainty[index], rel=1e-4))
        else:
            assert (found[index].text, found[index].spans) == (rewrites[index].text, rewrites[index].spans)
            assert found[index].confidence == pytest.approx(certainty[index], rel=1e-4)


def test_more_conversations_than_a_batch_holds_are_rewritten_alike(plain: Path, rewrites: list[Rewrite]) -> None:
    found = Rewriter.load(plain).rewrite(CONVERSATIONS * 6)
    assert [rewrite.text for rewrite in found] == [rewrite.text for rewrite in rewrites] * 6
    assert [rewrite.confidence for rewrite in found] == pytest.approx([r.confidence for r in rewrites] * 6, rel=1e-3)


def test_of_several_beams_only_the_best_is_withheld_and_never_one_that_changes_nothing(plain: Path) -> None:
    config = tiny.FEATURES.model_copy(update={"calibration": Calibration(min_confidence=1.0)})
    model = load_model(plain)
    everything = [*CONVERSATIONS, Conversation((), "早上好")]
    plainly = Rewriter(model, tiny.features(), beam_size=2).candidates(everything)
    found = Rewriter(model, Features(config, tiny.VOCABULARY), beam_size=2).candidates(everything)
    kept = 0
    for conversation, before, after in zip(everything, plainly, found, strict=True):
        assert after[0].text == conversation.utterance
        assert after[1:] == [rewrite for rewrite in before[1:] if rewrite.text != after[0].text]
        if before[0].text == conversation.utterance:
            kept += 1
            assert after[0] == before[0]
        else:
            assert after[0].confidence == pytest.approx(1 - before[0].confidence)
    assert 0 < kept < len(everything)


def test_a_trusting_rewriter_withholds_nothing(plain: Path, rewrites: list[Rewrite]) -> None:
    config = tiny.FEATURES.model_copy(update={"calibration": Calibration(min_confidence=1.0)})
    found = Rewriter(load_model(plain), Features(config, tiny.VOCABULARY), trusting=True).rewrite(CONVERSATIONS)
    assert [rewrite.text for rewrite in found] == [rewrite.text for rewrite in rewrites]


def test_a_withheld_best_is_not_listed_twice(plain: Path) -> None:
    """Where the model's second best is the utterance, that is what the best one has become."""
    config = tiny.FEATURES.model_copy(update={"calibration": Calibration(min_confidence=1.0)})
    rewriter = Rewriter(load_model(plain), Features(config, tiny.VOCABULARY), beam_size=2)
    source = rewriter.features.encode(CONVERSATIONS[0])
    positions = np.full((1, 2, 16), -1, np.int32)
    positions[0, 0, 0] = 4
    positions[0, 1, : len(source.utterance_positions)] = source.utterance_positions
    rewriter._predict = lambda source: {
        "positions": positions,
        "log_prob": np.array([[-0.5, -1.0]]),
        "finished": np.array([[True, True]]),
    }
    [candidates] = rewriter.candidates(CONVERSATIONS[:1])
    assert [candidate.text for candidate in candidates] == [CONVERSATIONS[0].utterance]


def test_calibrating_again_fits_the_probabilities_of_the_model_not_the_last_confidence(
    calibrated_model: tuple[Path, Path, dict[str, Any]], examples: list[Example], tmp_path: Path
) -> None:
    model, _, report = calibrated_model
    assert calibrate(model, examples, tmp_path, most_wrongly_changed=0.1) == report


# Without a model


def outcomes(**changes: np.ndarray) -> Outcomes:
    """Four turns to restore, all changed and the first three rightly; four that need nothing, two of them changed."""
    fields = {
        "examples": np.arange(8),
        "asked": np.ones(8, bool),
        "probabilities": np.array([0.9, 0.8, 0.7, 0.2, 0.9, 0.6, 0.5, 0.3]),
        "changed": np.array([1, 1, 1, 1, 0, 0, 1, 1], bool),
        "right": np.array([1, 1, 1, 0, 1, 1, 0, 0], bool),
        "needs_nothing": np.array([0, 0, 0, 0, 1, 1, 1, 1], bool),
    }
    return Outcomes(**{**fields, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.FEATURES.save(tmp_path / "features.json")
    return tmp_path


@pytest.mark.parametrize(
    ("most", "above"),
    [(1.0, None), (0.5, None), (0.49, 0.3), (0.25, 0.3), (0.24, 0.5), (0.0, 0.5)],
)
def test_the_threshold_lies_just_above_the_changes_that_are_too_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: float, above: float | None
) -> None:
    """``above`` is the probability of the surest change that must not be made, if one must not."""
    monkeypatch.setattr(confidence, "rewrite_all", lambda model, examples: outcomes())
    report = calibrate(folder, [], folder / "report", most)
    scaling = load_config(folder).calibration
    threshold = 0.0 if above is None else math.floor(100 * calibrated(above, scaling) + 1) / 100
    assert scaling.min_confidence == report["min_confidence"] == pytest.approx(threshold)


@pytest.mark.parametrize("most", [0.0, 0.01])
def test_where_no_threshold_will_do_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: float
) -> None:
    """The model is sure of all its changes, and most of them are right: but not where nothing is needed."""
    found = outcomes(probabilities=np.full(8, 1.0), right=np.array([1, 1, 1, 0, 1, 1, 0, 1], bool))
    monkeypatch.setattr(confidence, "calibrated", lambda probability, scaling: probability)
    monkeypatch.setattr(confidence, "rewrite_all", lambda model, examples: found)
    before = (folder / "features.json").read_bytes()
    with pytest.raises(ValueError, match=f"expected a threshold .* at most {most} .*, found that 0.99 still .* 0.5000"):
        calibrate(folder, [], folder / "report", most)
    assert (folder / "features.json").read_bytes() == before
    assert not (folder / "report").exists()


def test_an_example_is_in_one_half_and_a_turn_that_no_model_was_asked_for_in_neither(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, asked = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([1, 1, 1, 1, 0, 1, 1, 1], bool)
    found = outcomes(examples=numbers, asked=asked)
    monkeypatch.setattr(confidence, "rewrite_all", lambda model, examples: found)
    report = calibrate(folder, [], folder / "report", 0.1)
    assert (report["slope"], report["intercept"]) == fit(found.probabilities[[0, 2, 6]], found.right[[0, 2, 6]])
    assert sum(group["count"] for group in report["reliability"]) == 4


def test_the_calibration_is_fitted_on_every_second_example_and_measured_on_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = outcomes()
    monkeypatch.setattr(confidence, "rewrite_all", lambda model, examples: found)
    report = calibrate(folder, [], folder / "report", 0.1)
    assert (report["slope"], report["intercept"]) == fit(found.probabilities[::2], found.right[::2])
    assert sum(group["count"] for group in report["reliability"]) == 4
    before = expected_calibration_error(reliability(found.probabilities[1::2], found.right[1::2]))
    assert report["expected_calibration_error_before"] == pytest.approx(before)
    assert (report["trade_off"][0]["changed"], report["trade_off"][0]["wrongly_changed"]) == (1.0, 0.5)


def test_a_model_that_is_always_wrong_is_left_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence, "rewrite_all", lambda model, examples: outcomes(right=np.zeros(8, bool)))
    before = (folder / "features.json").read_bytes()
    with pytest.raises(ValueError, match="expected right and wrong rewrites, found 0 right and 4 wrong"):
        calibrate(folder, [], folder / "report", most_wrongly_changed=0.1)
    assert (folder / "features.json").read_bytes() == before
    assert not (folder / "report").exists()


def test_the_command_calibrates_a_folder_and_refuses_to_overwrite_the_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora, output, given = (folder / "a.txt", folder / "b.txt"), folder / "report", []
    for corpus in corpora:
        corpus.write_text("一列\n北京冷吗\t明天呢\t北京明天冷吗\n", encoding="utf-8")

    def rewrite_all(model: Path, examples: list[Example]) -> Outcomes:
        given.append((model, examples))
        return outcomes()

    monkeypatch.setattr(confidence, "rewrite_all", rewrite_all)
    arguments = ["calibrate", *map(str, corpora), "--model", str(folder), "--output", str(output)]
    done = CliRunner().invoke(app, [*arguments, "--most-wrongly-changed", "1"])
    assert done.exit_code == 0, done.output
    assert given == [(folder, [Example(Conversation(("北京冷吗",), "明天呢"), "北京明天冷吗")] * 2)]
    assert all(f"{corpus}:1: expected" in done.output for corpus in corpora)
    report = json.loads((output / "calibration.json").read_text(encoding="utf-8"))
    printed = dict(line.split() for line in done.stdout.splitlines() if ":" not in line)
    assert printed == {key: f"{value:.4f}" for key, value in report.items() if isinstance(value, float)}
    assert load_config(folder).calibration.min_confidence == 0.0

    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, ValueError) and "--force overwrites it" in str(again.exception)
    assert CliRunner().invoke(app, [*arguments, "--force"]).exit_code == 0
    assert load_config(folder).calibration.min_confidence > 0.0


def load_config(folder: Path) -> FeaturesConfig:
    return FeaturesConfig.load(folder / "features.json")


class FakeRewriter:
    """Restores 北京 in one turn and spoils one that needs nothing; as sure of each as it has characters."""

    def __init__(self, model: Any, features: Features, trusting: bool) -> None:
        assert features.config.calibration == Calibration() and trusting

    def rewrite(self, conversations: list[Conversation]) -> list[Rewrite]:
        answers = {"明天呢": "北京明天呢", "梅西几岁": "梅西梅西几岁"}
        texts = [answers.get(c.utterance, c.utterance) for c in conversations]
        return [Rewrite(text, (), len(text) / 10) for text in texts]


def test_references_are_measured_as_turns_that_need_nothing_but_none_twice(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confidence, "Rewriter", FakeRewriter)
    outcomes = rewrite_all(
        plain,
        [
            Example(Conversation(("北京冷吗",), "明天呢"), "北京明天冷吗", ("北京 明天呢",)),
            Example(Conversation(("梅西",), "他几岁"), "梅西几岁"),
            Example(Conversation((), "早上好"), "早上好", kind="greeting"),
        ],
    )
    # Then 北京明天冷吗 and 梅西几岁 as utterances; 早上好 is among the examples already.
    np.testing.assert_array_equal(outcomes.examples, [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(outcomes.asked, [True, True, False, True, True])
    np.testing.assert_allclose(outcomes.probabilities, [0.5, 0.3, 0.3, 0.6, 0.6])
    np.testing.assert_array_equal(outcomes.changed, [True, False, False, False, True])
    np.testing.assert_array_equal(outcomes.right, [True, False, True, True, False])
    np.testing.assert_array_equal(outcomes.needs_nothing, [False, False, True, True, True])
