from pathlib import Path

import pytest

from rewriter import evaluation
from rewriter.conversation import Conversation, Example, Rewrite
from rewriter.corpus import Corpus

EXAMPLES = (
    Example(Conversation(("你喜欢梅西吗", "喜欢"), "他几岁"), "梅西几岁"),
    Example(Conversation(("北京冷吗", "很冷"), "明天呢"), "北京明天呢"),
)
CORPUS = Corpus(Path("own.txt"), EXAMPLES, (3, 8), ("own.txt:5: expected …, found …",))


class FakeRewriter:
    """Knows the answers it was given and leaves everything else as it is."""

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    def rewrite(self, conversations: list[Conversation]) -> list[Rewrite]:
        return [Rewrite(self._answers.get(c.utterance, c.utterance), (), 0.25) for c in conversations]


def test_the_report_counts_right_rewrites_and_references_left_alone() -> None:
    # One of two rewritten rightly; one of the two references spoilt when it comes as an utterance.
    rewriter = FakeRewriter({"他几岁": "梅西几岁", "北京明天呢": "北京北京明天呢"})
    found = evaluation.evaluate(rewriter, CORPUS)  # type: ignore[arg-type]
    assert found.report["em"] == 0.5
    assert found.report["negative_em"] == 0.5
    assert set(evaluation.QUALITY_KEYS) <= set(found.report)
    assert found.report["lines"] == 2
    assert found.report["unreadable_lines"] == 1
    assert [rewrite.text for rewrite in found.rewrites] == ["梅西几岁", "明天呢"]


def test_errors_are_listed_with_their_line_and_what_is_wrong(tmp_path: Path) -> None:
    rewrites = [Rewrite("梅西几岁", (), 0.9), Rewrite("冷明天呢", (), 0.25)]
    listing = tmp_path / "errors.txt"
    assert evaluation.write_errors(listing, CORPUS, rewrites) == 1
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
