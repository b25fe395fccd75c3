"""Platt scaling, reliability and the price of a threshold, worked out by hand and against what made the data."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.calibration import (
    Bin,
    calibrated,
    expected_calibration_error,
    fit,
    logit,
    reliability,
    sigmoid,
    trade_off,
)
from rewriter.config import Calibration


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.5, -1.0), (2.0, 0.7)])
def test_the_slope_and_intercept_that_made_the_data_are_found(slope: float, intercept: float) -> None:
    rng = np.random.default_rng(3)
    probabilities = sigmoid(rng.normal(0.5, 2.0, 40_000))
    right = rng.random(40_000) < sigmoid(slope * logit(probabilities) + intercept)
    assert fit(probabilities, right) == pytest.approx((slope, intercept), abs=0.05)


def test_two_groups_get_the_shares_of_right_ones_as_platt_counts_them() -> None:
    """With one group for each of its two numbers, the curve goes through both means of the targets."""
    probabilities = np.array([0.9] * 10 + [0.2] * 10)
    right = np.array([True] * 8 + [False] * 2 + [True] * 3 + [False] * 7)
    slope, intercept = fit(probabilities, right)
    scaling = Calibration(slope=slope, intercept=intercept)
    # 11 are right, 9 are wrong.
    of_right, of_wrong = 12 / 13, 1 / 11
    assert calibrated(0.9, scaling) == pytest.approx((8 * of_right + 2 * of_wrong) / 10, abs=1e-5)
    assert calibrated(0.2, scaling) == pytest.approx((3 * of_right + 7 * of_wrong) / 10, abs=1e-5)


@pytest.mark.parametrize("probabilities", [[0.99, 0.01], [1.0, 0.0], [1.0, 0.5]])
def test_the_slope_is_finite_where_right_and_wrong_can_be_told_apart(probabilities: list[float]) -> None:
    slope, intercept = fit(np.repeat(probabilities, 100), np.repeat([True, False], 100))
    assert 0 < slope < 10
    scaling = Calibration(slope=slope, intercept=intercept)
    assert calibrated(probabilities[1], scaling) < 0.05 < 0.95 < calibrated(probabilities[0], scaling) < 1


def test_a_confidence_that_says_nothing_becomes_the_share_of_right_ones() -> None:
    right = np.array([True] * 30 + [False] * 10)
    slope, intercept = fit(np.full(40, 0.97), right)
    assert calibrated(0.97, Calibration(slope=slope, intercept=intercept)) == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize(("right", "found"), [(True, "3 right and 0 wrong"), (False, "0 right and 3 wrong")])
def test_without_both_right_and_wrong_rewrites_nothing_is_fitted(right: bool, found: str) -> None:
    with pytest.raises(ValueError, match=f"expected right and wrong rewrites, found {found}"):
        fit(np.array([0.9, 0.8, 0.7]), np.full(3, right))


def test_a_slope_of_two_squares_the_odds_and_the_intercept_multiplies_them() -> None:
    assert calibrated(0.6, Calibration(slope=2.0)) == pytest.approx(1.5**2 / (1 + 1.5**2))
    assert calibrated(0.6, Calibration(intercept=math.log(4))) == pytest.approx(6 / 7)


@pytest.mark.parametrize("probability", [0.0, 1e-9, 0.3, 1.0])
def test_where_nothing_was_fitted_the_probability_is_the_confidence(probability: float) -> None:
    assert calibrated(probability, Calibration()) == probability


@settings(max_examples=200, deadline=None)
@given(
    probabilities=st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted),
    slope=st.floats(0.01, 20),
    intercept=st.floats(-20, 20),
)
def test_a_surer_model_is_never_trusted_less(probabilities: list[float], slope: float, intercept: float) -> None:
    scaling = Calibration(slope=slope, intercept=intercept)
    less, more = (calibrated(probability, scaling) for probability in probabilities)
    assert 0 <= less <= more <= 1


def test_logit_and_sigmoid_undo_each_other_and_certainty_is_finite() -> None:
    probabilities = np.array([0.001, 0.25, 0.5, 0.9])
    np.testing.assert_allclose(sigmoid(logit(probabilities)), probabilities, rtol=1e-9)
    assert np.isfinite(logit(np.array([0.0, 1.0]))).all()


CONFIDENCES = np.array([0.05, 0.12, 0.18, 0.95, 0.91, 1.0])
RIGHT = np.array([False, True, False, True, True, False])


def test_rewrites_are_grouped_by_confidence_and_empty_bins_left_out() -> None:
    assert reliability(CONFIDENCES, RIGHT) == [
        Bin(pytest.approx(0.05), 0.0, 1),
        Bin(pytest.approx(0.15), 0.5, 2),
        Bin(pytest.approx(2.86 / 3), pytest.approx(2 / 3), 3),
    ]
    assert [group.count for group in reliability(CONFIDENCES, RIGHT, num_bins=2)] == [3, 3]


def test_the_calibration_error_by_hand() -> None:
    # |0.05 - 0| once, |0.15 - 0.5| twice, |2.86/3 - 2/3| three times, of six.
    expected = (0.05 + 2 * 0.35 + 0.86) / 6
    assert expected_calibration_error(reliability(CONFIDENCES, RIGHT)) == pytest.approx(expected)


def test_a_confidence_that_is_the_share_of_right_ones_has_no_error() -> None:
    confidences = np.array([0.75] * 4 + [0.25] * 4)
    right = np.array([True, True, True, False, False, False, False, True])
    assert expected_calibration_error(reliability(confidences, right)) == pytest.approx(0.0)
    assert expected_calibration_error(reliability(confidences, ~right)) == pytest.approx(0.5)


def test_scaling_lowers_the_error_of_a_model_that_is_too_sure() -> None:
    rng = np.random.default_rng(5)
    true = rng.uniform(0.05, 0.95, 4000)
    right = rng.random(4000) < true
    too_sure = sigmoid(4 * logit(true))
    slope, intercept = fit(too_sure[::2], right[::2])
    assert slope == pytest.approx(0.25, abs=0.05)
    scaled = np.array([calibrated(p, Calibration(slope=slope, intercept=intercept)) for p in too_sure[1::2]])
    before = expected_calibration_error(reliability(too_sure[1::2], right[1::2]))
    after = expected_calibration_error(reliability(scaled, right[1::2]))
    assert after < 0.04 < 0.1 < before


def test_the_trade_off_by_hand() -> None:
    """Four turns to restore (changed rightly twice, wrongly, not at all), two that need nothing, one changed."""
    points = trade_off(
        confidences=np.array([0.9, 0.4, 0.6, 0.99, 0.5, 1.0]),
        changed=np.array([True, True, True, False, True, False]),
        right=np.array([True, True, False, False, False, True]),
        needs_nothing=np.array([False, False, False, False, True, True]),
        thresholds=[0.0, 0.5, 0.55, 0.9, 0.95],
    )
    found = [(point.threshold, point.changed, point.exact_match, point.wrongly_changed) for point in points]
    assert found == [
        (0.0, 0.75, 0.5, 0.5),
        (0.5, 0.5, 0.25, 0.5),  # a rewrite as sure as the threshold is given
        (0.55, 0.5, 0.25, 0.0),
        (0.9, 0.25, 0.25, 0.0),
        (0.95, 0.0, 0.0, 0.0),
    ]


def test_a_higher_threshold_never_changes_more() -> None:
    rng = np.random.default_rng(8)
    right, needs_nothing = rng.random(200) < 0.6, rng.random(200) < 0.4
    points = trade_off(rng.random(200), rng.random(200) < 0.7, right, needs_nothing)
    assert [point.threshold for point in points] == [number / 100 for number in range(100)]
    for name in ("changed", "exact_match", "wrongly_changed"):
        shares = [getattr(point, name) for point in points]
        assert shares == sorted(shares, reverse=True)
        assert shares[0] > shares[-1]
    assert all(point.exact_match <= point.changed for point in points)


@pytest.mark.parametrize("needs_nothing", [True, False])
def test_a_corpus_of_one_sort_of_turns_has_shares_too(needs_nothing: bool) -> None:
    [point] = trade_off(np.array([0.5]), np.array([True]), np.array([False]), np.array([needs_nothing]), [0.0])
    assert (point.changed, point.wrongly_changed) == ((0.0, 1.0) if needs_nothing else (1.0, 0.0))
