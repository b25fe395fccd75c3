from pathlib import Path

import pytest

from rewriter.conversation import Conversation, Example, Rewrite
from rewriter.results import line_result, read_results, write_results

EXAMPLE = Example(Conversation(("这车多少钱", "不便宜"), "它贵吗"), "红色的车贵吗", ("那辆车贵吗",), "pronoun")


def test_a_result_holds_what_the_line_adds_to_every_metric() -> None:
    result = line_result(7, EXAMPLE, Rewrite("红车贵吗", (), 0.5), Rewrite("红色的车贵吗", (), 0.9))
    assert (result.line, result.history, result.utterance) == (7, ("这车多少钱", "不便宜"), "它贵吗")
    assert (result.reference, result.kind) == ("红色的车贵吗", "pronoun")
    assert (result.rewrite, result.confidence) == ("红车贵吗", 0.5)
    assert (result.exact, result.untouched, result.reference_untouched) == (False, False, True)
    # The sets of n-grams: see test_restoration_f_compares_the_ngrams_that_touch_a_restored_token.
    assert result.restored == ((2, 2, 4), (1, 2, 4), (1, 2, 4))


def test_any_of_the_references_makes_a_rewrite_exact_but_the_best_one_counts_the_words() -> None:
    result = line_result(1, EXAMPLE, Rewrite("那辆车贵吗", (), 0.5))
    assert result.exact
    assert result.restored[0] == (1, 3, 4)  # of 那 辆 车 only 车 stands in the best one
    assert result.reference_untouched is None


def test_an_utterance_and_a_reference_are_untouched_if_they_come_back() -> None:
    result = line_result(1, EXAMPLE, Rewrite("它 贵吗", (), 0.5), Rewrite("它贵吗", (), 0.5))
    assert (result.untouched, result.reference_untouched) == (True, False)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = [
        line_result(3, EXAMPLE, Rewrite("红车\u2028贵吗", (), 0.25)),
        line_result(9, EXAMPLE, Rewrite("", (), 0.0), Rewrite("红色的车贵吗", (), 1.0)),
    ]
    path = tmp_path / "details.jsonl"
    write_results(path, results)
    assert read_results(path) == results


def test_a_file_that_holds_something_else_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "details.jsonl"
    write_results(path, [line_result(3, EXAMPLE, Rewrite("红车贵吗", (), 0.25))])
    good = path.read_text(encoding="utf-8")
    path.write_text(good + '{"line": 4}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"details.jsonl:2: expected a line of `evaluate --details`, found history"):
        read_results(path)
    path.write_text(good.replace('"exact":false', '"exact":"no"'), encoding="utf-8")
    with pytest.raises(ValueError, match="details.jsonl:1: expected a line of `evaluate --details`, found exact"):
        read_results(path)
    path.write_text("line 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="details.jsonl:1: expected a line of `evaluate --details`, found the line"):
        read_results(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="details.jsonl: expected at least one line"):
        read_results(path)
