from pathlib import Path

import pytest
import tiny

from rewriter import evaluation
from rewriter.conversation import Conversation, Example, Rewrite
from rewriter.corpus import Corpus
from rewriter.metrics import score
from rewriter.results import line_result

EXAMPLES = (
    Example(Conversation(("你喜欢梅西吗", "喜欢"), "他几岁"), "梅西几岁"),
    Example(Conversation(("北京冷吗", "很冷"), "明天呢"), "北京明天呢"),
)
CORPUS = Corpus(Path("own.txt"), EXAMPLES, (3, 8), ("own.txt:5: expected …, found …",))


class FakeRewriter:
    """Knows the answers it was given and leaves everything else as it is."""

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers
        self.features = tiny.features()

    def rewrite(self, conversations: list[Conversation]) -> list[Rewrite]:
        return [Rewrite(self._answers.get(c.utterance, c.utterance), (), 0.25) for c in conversations]


def test_the_report_counts_right_rewrites_and_references_left_alone() -> None:
    # One of two rewritten rightly; one of the two references spoilt when it comes as an utterance.
    rewriter = FakeRewriter({"他几岁": "梅西几岁", "北京明天呢": "北京北京明天呢"})
    found = evaluation.evaluate(rewriter, CORPUS)  # type: ignore[arg-type]
    assert found.report["em"] == 0.5
    assert found.report["negative_em"] == 0.5
    assert (found.report["changed"], found.report["em_changed"]) == (0.5, 1.0)
    assert set(evaluation.QUALITY_KEYS) <= set(found.report)
    assert found.report["lines"] == 2
    assert found.report["unreadable_lines"] == 1
    assert [result.rewrite for result in found.results] == ["梅西几岁", "明天呢"]


def test_what_is_changed_for_nothing_and_what_is_never_changed_is_told() -> None:
    examples = (Example(Conversation(("北京冷吗",), "早上好"), "早上好", (), "greeting"), EXAMPLES[0])
    corpus = Corpus(Path("own.jsonl"), examples, (1, 2), ())
    wrong = evaluation.evaluate(FakeRewriter({"早上好": "北京早上好"}), corpus)  # type: ignore[arg-type]
    assert (wrong.report["changed"], wrong.report["em_changed"]) == (0.5, 0.0)
    silent = evaluation.evaluate(FakeRewriter({}), corpus)  # type: ignore[arg-type]
    assert (silent.report["changed"], silent.report["em_changed"]) == (0.0, None)
    assert "em_changed           None" in evaluation.summary(silent.report)


def test_any_reference_is_right_but_only_the_best_one_counts_otherwise() -> None:
    examples = (
        Example(Conversation(("你喜欢梅西吗",), "他几岁"), "梅西几岁", ("梅西今年几岁", "梅西多大"), "pronoun"),
        Example(Conversation(("北京冷吗",), "早上好"), "早上好", (), "greeting"),
    )
    corpus = Corpus(Path("own.jsonl"), examples, (1, 2), ())
    rewriter = FakeRewriter({"他几岁": "梅西多大"})
    found = evaluation.evaluate(rewriter, corpus)  # type: ignore[arg-type]
    assert found.report["em"] == found.report["em_restoring"] == found.report["untouched"] == 1.0
    assert found.report["kinds"]["pronoun"] == {"lines": 1, "em": 1.0}
    # Against 梅 西 几 岁, 梅 西 多 大 restores two tokens of three; 几 and 岁 are in the utterance.
    assert found.report["f1"] == pytest.approx(2 * 2 / (2 + 4))
    assert evaluation.write_errors(Path("/dev/null"), found.results) == 0


def test_a_corpus_with_one_reference_and_no_kinds_has_the_figures_of_score() -> None:
    found = evaluation.evaluate(FakeRewriter({"他几岁": "梅西几岁"}), CORPUS)  # type: ignore[arg-type]
    utterances = [example.conversation.utterance for example in EXAMPLES]
    references = [example.reference for example in EXAMPLES]
    expected = score(utterances, references, [result.rewrite for result in found.results])
    assert {key: found.report[key] for key in expected} == expected
    assert not {"kinds", "untouched", "em_restoring"} & set(found.report)


def test_the_report_says_where_the_errors_are_and_the_results_have_every_line() -> None:
    found = evaluation.evaluate(FakeRewriter({"他几岁": "梅西几岁"}), CORPUS)  # type: ignore[arg-type]
    assert found.report["analysis"]["classes"]["coreference"]["recall"] == 1.0
    assert found.report["analysis"]["classes"]["omission"]["recall"] == 0.0
    assert [(result.line, result.exact, result.reference_untouched) for result in found.results] == [
        (3, True, True),
        (8, False, True),
    ]


def test_the_summary_has_a_figure_a_line_and_tables_where_they_are_wanted() -> None:
    report = {"em": 0.5, "lines": 2, "kinds": {"pronoun": {"lines": 2, "em": 0.5}}}
    report["analysis"] = {"distance": {"1": {"lines": 2, "em": 0.5}}}
    assert [line.split() for line in evaluation.summary(report).splitlines()] == [
        ["em", "0.5000"],
        ["lines", "2"],
        ["kinds", "lines", "em"],
        ["pronoun", "2", "0.5000"],
    ]
    assert "distance" in evaluation.summary(report, analysis=True)
    del report["kinds"]
    assert evaluation.summary(report).splitlines() == ["em                   0.5000", "lines                2"]


def test_errors_are_listed_with_their_line_and_what_is_wrong(tmp_path: Path) -> None:
    rewrites = [Rewrite("梅西几岁", (), 0.9), Rewrite("冷明天呢", (), 0.25)]
    listing = tmp_path / "errors.txt"
    results = list(map(line_result, CORPUS.line_numbers, EXAMPLES, rewrites))
    assert evaluation.write_errors(listing, results) == 1
    text = listing.read_text(encoding="utf-8")
    assert "line 8" in text
    assert "line 3" not in text
    assert "  history    北京冷吗" in text
    assert "  reference  北京明天呢" in text
    assert "  ours       冷明天呢   (confidence 0.25)" in text
    assert "  missed     北京" in text
    assert "  wrong      冷" in text


def test_a_corpus_without_a_readable_line_is_refused() -> None:
    with pytest.raises(ValueError, match="own.txt: expected at least one readable line, found none"):
        evaluation.evaluate(FakeRewriter({}), Corpus(Path("own.txt"), (), (), ()))  # type: ignore[arg-type]
