"""Calibrates a model folder on a corpus it was not trained on, and draws what its confidence is worth."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewriter.artefact import FEATURES_FILE, load_features, load_model
from rewriter.calibration import TradeOff, calibrated, expected_calibration_error, fit, reliability, trade_off
from rewriter.config import Calibration, FeaturesConfig
from rewriter.conversation import Conversation, Example
from rewriter.corpus import untouched
from rewriter.features import Features, UtteranceTooLongError
from rewriter.inference import Rewriter
from rewriter.metrics import metric_tokens

REPORT_FILE = "calibration.json"
RELIABILITY_FILE = "reliability.png"
TRADE_OFF_FILE = "trade_off.png"


@dataclass(frozen=True)
class Outcomes:
    """One entry a rewrite, (N,) each."""

    examples: np.ndarray  # int, the index of the example: its utterance and its reference have the same
    asked: np.ndarray  # bool, the model was asked: there was something to do, of a length that it reads
    probabilities: np.ndarray  # the model's, of exactly this rewrite
    changed: np.ndarray  # bool, the rewrite is not the utterance
    right: np.ndarray  # bool, it is one of the references
    needs_nothing: np.ndarray  # bool, the utterance is one of the references


def rewrite_all(model: Path, examples: Sequence[Example]) -> Outcomes:
    """Rewrites the examples, and their references as utterances that need nothing, with nothing withheld."""
    config, vocabulary = load_features(model)
    plain = config.model_copy(update={"calibration": Calibration()})
    features = Features(plain, vocabulary)
    rewriter = Rewriter(load_model(model), features, trusting=True)
    given = {example.conversation for example in examples}
    negatives = [(index, e) for index, e in enumerate(untouched(examples)) if e.conversation not in given]
    numbered = [*enumerate(examples), *negatives]
    everything = [example for _, example in numbered]
    rewrites = rewriter.rewrite([example.conversation for example in everything])
    texts = [metric_tokens(rewrite.text) for rewrite in rewrites]
    utterances = [metric_tokens(example.conversation.utterance) for example in everything]
    references = [[metric_tokens(text) for text in example.references] for example in everything]
    return Outcomes(
        examples=np.array([index for index, _ in numbered], int),
        asked=np.array([_is_asked(features, example.conversation) for example in everything], bool),
        probabilities=np.array([rewrite.confidence for rewrite in rewrites]),
        changed=np.array([text != utterance for text, utterance in zip(texts, utterances, strict=True)]),
        right=np.array([text in accepted for text, accepted in zip(texts, references, strict=True)]),
        needs_nothing=np.array([u in accepted for u, accepted in zip(utterances, references, strict=True)]),
    )


def _is_asked(features: Features, conversation: Conversation) -> bool:
    try:
        return not features.encode(conversation).nothing_to_do
    except UtteranceTooLongError:
        return False


def calibrate(model: Path, examples: Sequence[Example], output: Path, most_wrongly_changed: float) -> dict[str, Any]:
    """Fits the calibration, picks the lowest threshold that changes at most this share of the turns that need nothing,
    and writes both into the model folder; the report and two plots go to ``output``.

    The calibration is fitted on every second example, with its utterance and its reference; its errors and the
    reliability are of the others. Neither knows turns for which the model was not asked. The trade-off, which one
    threshold alone is read from, is of all. Raises ValueError, and writes nothing, if no threshold below 1 will do.
    """
    outcomes = rewrite_all(model, examples)
    fitted = outcomes.asked & (outcomes.examples % 2 == 0)
    slope, intercept = fit(outcomes.probabilities[fitted], outcomes.right[fitted])
    scaling = Calibration(slope=slope, intercept=intercept)
    confidences = np.array([calibrated(p, scaling) for p in outcomes.probabilities])
    unseen = outcomes.asked & ~fitted
    before = reliability(outcomes.probabilities[unseen], outcomes.right[unseen])
    after = reliability(confidences[unseen], outcomes.right[unseen])
    curve = trade_off(confidences, outcomes.changed, outcomes.right, outcomes.needs_nothing)
    threshold = _lowest_threshold(curve, most_wrongly_changed)
    report = {
        "slope": slope,
        "intercept": intercept,
        "min_confidence": threshold,
        "expected_calibration_error_before": expected_calibration_error(before),
        "expected_calibration_error": expected_calibration_error(after),
        "reliability": [asdict(group) for group in after],
        "trade_off": [asdict(point) for point in curve],
    }
    output.mkdir(parents=True, exist_ok=True)
    (output / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    _draw_reliability(output / RELIABILITY_FILE, before, after)
    _draw_trade_off(output / TRADE_OFF_FILE, curve, threshold)
    _store(model, scaling.model_copy(update={"min_confidence": threshold}))
    return report


def _lowest_threshold(curve: Sequence[TradeOff], most_wrongly_changed: float) -> float:
    for point in curve:
        if point.wrongly_changed <= most_wrongly_changed:
            return point.threshold
    raise ValueError(
        f"expected a threshold that changes at most {most_wrongly_changed} of the turns that need nothing, found that "
        f"{curve[-1].threshold} still changes {curve[-1].wrongly_changed:.4f}"
    )


def _store(model: Path, calibration: Calibration) -> None:
    config = FeaturesConfig.load(model / FEATURES_FILE)
    config.model_copy(update={"calibration": calibration}).save(model / FEATURES_FILE)


def _draw_reliability(path: Path, before: Sequence[Any], after: Sequence[Any]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for label, bins in (("probability of the model", before), ("calibrated confidence", after)):
        axes.plot([b.confidence for b in bins], [b.accuracy for b in bins], marker="o", label=label)
    axes.set(xlabel="confidence", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    figure.savefig(path, dpi=120)


def _draw_trade_off(path: Path, curve: Sequence[Any], threshold: float) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    thresholds = [point.threshold for point in curve]
    axes.plot(thresholds, [point.changed for point in curve], label="turns to restore: changed")
    axes.plot(thresholds, [point.exact_match for point in curve], label="turns to restore: exact match")
    axes.plot(thresholds, [point.wrongly_changed for point in curve], label="turns that need nothing: changed")
    axes.axvline(threshold, color="grey", linewidth=0.8)
    axes.set(xlabel="threshold of confidence", ylabel="share", ylim=(0, 1))
    axes.legend()
    figure.savefig(path, dpi=120)
