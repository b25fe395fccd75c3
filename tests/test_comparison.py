"""The paired bootstrap, against what can be worked out without drawing."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from rewriter.comparison import bootstrap_differences, compare, describe, fractions, p_value
from rewriter.conversation import Conversation, Example, Rewrite
from rewriter.metrics import negative_em, score
from rewriter.results import LineResult, line_result

UTTERANCES = ["它贵吗", "几点走", "他喜欢吗", "早上好"]
REFERENCES = ["红色的车贵吗", "小王几点走", "小王喜欢爬山吗", "早上好"]
KINDS = ["pronoun", "omission", "several", "greeting"]


def results(
    rewrites: Sequence[str], kept: Sequence[str] = REFERENCES, kinds: Sequence[str] = KINDS
) -> list[LineResult]:
    columns = zip(UTTERANCES, REFERENCES, kinds, rewrites, kept, strict=True)
    return [
        line_result(
            number,
            Example(Conversation(("小王有一辆红色的车",), utterance), reference, (), kind),
            Rewrite(rewrite, (), 0.5),
            Rewrite(kept_here, (), 0.5),
        )
        for number, (utterance, reference, kind, rewrite, kept_here) in enumerate(columns, start=1)
    ]


def flags(right: int, wrong: int) -> np.ndarray:
    """(2, L, 1): one metric, a share of lines."""
    return np.array([[1.0] * right + [0.0] * wrong, [1.0] * (right + wrong)])[:, :, None]


REWRITES = ["红车贵吗", "小王几点走", "小王喜欢吗", "早上好"]
BETTER = ["红色的车贵吗", "小王几点走", "小王喜欢爬山", "早上好小王"]


def test_the_figures_are_those_of_the_evaluation() -> None:
    kept = [*REFERENCES[:3], "小王早上好"]
    found = {d.metric: d for d in compare(results(REWRITES, kept), results(BETTER)).differences}
    for rewrites, side in ((REWRITES, "first"), (BETTER, "second")):
        scores = score(UTTERANCES, REFERENCES, rewrites)
        for metric in ("em", "f1", "f2", "f3"):
            assert getattr(found[metric], side) == pytest.approx(scores[metric])
    assert found["negative_em"].first == negative_em(REFERENCES, kept) == 3 / 4
    assert (found["em_restoring"].first, found["em_restoring"].second) == (1 / 3, 2 / 3)
    assert (found["untouched"].first, found["untouched"].second) == (1.0, 0.0)
    for difference in found.values():
        assert difference.difference == pytest.approx(difference.second - difference.first)
        assert difference.low <= difference.difference <= difference.high


def test_metrics_that_were_not_measured_are_left_out() -> None:
    untried = [r.model_copy(update={"reference_untouched": None}) for r in results(REWRITES, kinds=[""] * 4)]
    assert list(fractions(untried)) == ["em", "f1", "f2", "f3"]
    compared = compare(untried, results(BETTER, kinds=[""] * 4), resamples=10)
    assert [d.metric for d in compared.differences] == ["em", "f1", "f2", "f3"]


def test_equal_rewrites_do_not_differ() -> None:
    for difference in compare(results(REWRITES), results(REWRITES), resamples=200).differences:
        assert (difference.difference, difference.low, difference.high, difference.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_exchanging_the_two_turns_the_signs_and_nothing_else() -> None:
    forth = compare(results(REWRITES), results(BETTER), resamples=500)
    back = compare(results(BETTER), results(REWRITES), resamples=500)
    for one, other in zip(forth.differences, back.differences, strict=True):
        assert one.difference == -other.difference
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
        assert one.p_value == other.p_value
    assert forth.only_first == tuple((b, a) for a, b in back.only_second)


def test_the_same_seed_gives_the_same_figures_and_another_seed_others() -> None:
    first, second = flags(60, 40), flags(50, 50)
    drawn = bootstrap_differences(first, second, 300, seed=1)
    assert np.array_equal(drawn, bootstrap_differences(first, second, 300, seed=1))
    assert not np.array_equal(drawn, bootstrap_differences(first, second, 300, seed=2))


def test_the_draws_spread_like_a_mean_of_paired_differences() -> None:
    # 400 lines, 40 of which only the first got right: mean -0.1, variance of a draw's mean 0.1 * 0.9 / 400.
    drawn = bootstrap_differences(flags(240, 160), flags(200, 200), 20_000, seed=0)
    assert drawn.shape == (20_000, 1)
    assert drawn.mean() == pytest.approx(-0.1, abs=0.001)
    assert drawn.std() == pytest.approx(math.sqrt(0.1 * 0.9 / 400), rel=0.03)


def test_the_lines_of_a_draw_are_the_same_for_both_systems() -> None:
    # The second is right wherever the first is and nowhere else: drawn apart they would differ, drawn together never.
    assert not bootstrap_differences(flags(50, 50), flags(50, 50), 500, seed=0).any()


def test_draws_in_several_chunks_are_all_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewriter.comparison._CHUNK_CELLS", 250)
    drawn = bootstrap_differences(flags(60, 40), flags(50, 50), 101, seed=0)
    assert drawn.shape == (101, 1)
    assert len(np.unique(drawn)) > 5


def test_a_share_of_nothing_is_zero() -> None:
    nothing = np.zeros((2, 3, 1))
    assert not bootstrap_differences(nothing, nothing, 5, seed=0).any()


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        ([0.0] * 99, 1.0),
        ([0.1] * 99, 2 * 1 / 100),  # never the other way round, which is not a p-value of 0
        ([0.1] * 95 + [-0.1] * 4, 2 * 5 / 100),
        ([-0.1] * 95 + [0.1] * 4, 2 * 5 / 100),
        ([0.1] * 90 + [0.0] * 9, 2 * 10 / 100),  # no difference speaks for neither
    ],
)
def test_the_p_value_is_twice_the_share_of_draws_on_the_other_side(drawn: list[float], expected: float) -> None:
    assert p_value(np.array(drawn)) == pytest.approx(expected)


def test_lines_that_only_one_got_right_are_found() -> None:
    compared = compare(results(REWRITES), results(BETTER), resamples=10)
    assert [first.line for first, _ in compared.only_first] == [4]
    assert [second.rewrite for _, second in compared.only_second] == ["红色的车贵吗"]


def test_results_of_other_lines_are_refused() -> None:
    ours = results(REWRITES)
    with pytest.raises(ValueError, match="expected results of the same lines, found 4 and 3 lines"):
        compare(ours, ours[:3])
    with pytest.raises(ValueError, match="found another line in line 3: 3 in the first, 4 in the second"):
        compare(ours, [*ours[:2], ours[3], ours[2]])
    changed = {"utterance": "几点来", "references": ("小王几点来",), "history": ("哦",), "kind": "pronoun"}
    for field, value in changed.items():
        others = [*ours[:1], ours[1].model_copy(update={field: value}), *ours[2:]]
        with pytest.raises(ValueError, match=f"expected results of the same lines, found another {field} in line 2"):
            compare(ours, others)


def test_the_text_has_both_figures_and_so_many_lines_side_by_side() -> None:
    compared = compare(results(REWRITES), results(BETTER), resamples=10)
    text = describe(compared, examples=1)
    [em] = [line.split() for line in text.splitlines() if line.startswith("em ")]
    assert em[:4] == ["em", "0.5000", "0.5000", "+0.0000"]
    assert "only A is right in 1 lines" in text
    assert "only B is right in 1 lines" in text
    assert "  A          红车贵吗   (confidence 0.50)\n  B          红色的车贵吗   (confidence 0.50)" in text
    assert "红车贵吗" not in describe(compared)
