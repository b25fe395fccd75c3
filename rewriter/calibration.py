"""A confidence that means what it says: Platt scaling, reliability, and what a threshold costs.

Platt 1999, "Probabilistic outputs for support vector machines"; Guo et al. 2017, "On calibration of modern neural
networks", section 2 (expected calibration error). Everything is a pure function of arrays.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rewriter.config import Calibration

_EPSILON = 1e-6
_NEWTON_STEPS = 50


def fit(probabilities: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Returns slope and intercept of the logistic regression of ``right`` (N,) bool on logit(``probabilities`` (N,)).

    Newton's method with Platt's targets, which keep the slope finite where right and wrong can be told apart.
    Raises ValueError if all are right or all are wrong.
    """
    positives = int(right.sum())
    negatives = len(right) - positives
    if not positives or not negatives:
        raise ValueError(f"expected right and wrong rewrites, found {positives} right and {negatives} wrong")
    targets = np.where(right, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    inputs = np.stack([logit(probabilities), np.ones(len(right))], axis=1)
    weights = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        predicted = sigmoid(inputs @ weights)
        gradient = inputs.T @ (predicted - targets)
        curvature = (inputs * (predicted * (1 - predicted))[:, None]).T @ inputs + _EPSILON * np.eye(2)
        weights -= np.linalg.solve(curvature, gradient)
    return float(weights[0]), float(weights[1])


def calibrated(probability: float, calibration: Calibration) -> float:
    """The confidence that goes with the model's probability of a rewrite; the same number where nothing was fitted."""
    if (calibration.slope, calibration.intercept) == (1.0, 0.0):
        return probability
    return float(sigmoid(calibration.slope * logit(np.array(probability)) + calibration.intercept))


def logit(probability: np.ndarray) -> np.ndarray:
    clipped = np.clip(probability, _EPSILON, 1 - _EPSILON)
    odds: np.ndarray = np.log(clipped) - np.log1p(-clipped)
    return odds


def sigmoid(x: np.ndarray) -> np.ndarray:
    share: np.ndarray = 1 / (1 + np.exp(-x))
    return share


@dataclass(frozen=True)
class Bin:
    """Rewrites of like confidence."""

    confidence: float  # their mean confidence
    accuracy: float  # the share of them that is right
    count: int


def reliability(confidences: np.ndarray, right: np.ndarray, num_bins: int = 10) -> list[Bin]:
    """Groups rewrites by confidence in bins of equal width; empty bins are left out."""
    index = np.minimum((confidences * num_bins).astype(int), num_bins - 1)
    groups = [index == number for number in range(num_bins)]
    return [
        Bin(float(confidences[group].mean()), float(right[group].mean()), int(group.sum()))
        for group in groups
        if group.any()
    ]


def expected_calibration_error(bins: list[Bin]) -> float:
    """The mean distance between confidence and accuracy, over all rewrites (Guo et al., equation 3)."""
    total = sum(group.count for group in bins)
    return sum(group.count * abs(group.confidence - group.accuracy) for group in bins) / total


@dataclass(frozen=True)
class TradeOff:
    """What happens if rewrites below ``threshold`` are withheld."""

    threshold: float
    changed: float  # share of the turns to restore that are changed
    exact_match: float  # share of the turns to restore that are rewritten rightly
    wrongly_changed: float  # share of the turns that need nothing that are changed


def trade_off(
    confidences: np.ndarray,
    changed: np.ndarray,
    right: np.ndarray,
    needs_nothing: np.ndarray,
    thresholds: Any = None,
) -> list[TradeOff]:
    """The effect of each threshold, of 0, 0.01, … 0.99 by default; all arrays (N,), one entry a rewrite.

    A turn that must be restored and comes back as it was is wrong, whatever the threshold.
    """
    thresholds = np.arange(100) / 100 if thresholds is None else thresholds
    restore = ~needs_nothing
    kept = [changed & (confidences >= threshold) for threshold in thresholds]
    return [
        TradeOff(
            threshold=float(threshold),
            changed=float(keep[restore].mean()) if restore.any() else 0.0,
            exact_match=float((keep & right)[restore].mean()) if restore.any() else 0.0,
            wrongly_changed=float(keep[needs_nothing].mean()) if needs_nothing.any() else 0.0,
        )
        for threshold, keep in zip(thresholds, kept, strict=True)
    ]
