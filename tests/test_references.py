"""Of several right answers, the likeliest comes first."""

from pathlib import Path

import numpy as np
import pytest
import tiny

from rewriter import references
from rewriter.artefact import save_artefact
from rewriter.conversation import Conversation, Example
from rewriter.preparation import encode_examples
from rewriter.references import likeliest_first
from rewriter.tokenizer import Tokenizer

TOKENIZER = Tokenizer(tiny.FEATURES.granularity)
CONVERSATION = Conversation(("北京今天冷吗", "今天很冷"), "明天呢")
REFERENCES = ("北京明天冷吗", "明天北京冷吗", "明天呢", "北京明天呢")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_artefact(directory, tiny.model(), tiny.FEATURES, tiny.VOCABULARY)
    return directory


def _log_prob(reference: str, conversation: Conversation = CONVERSATION) -> float:
    """By hand: the probability of each position in its turn, one reference at a time."""
    batch = encode_examples(tiny.features(), [Example(conversation, reference)]).batch([0])
    log_probs = np.array(tiny.model()(batch, training=False))[0]
    return float(sum(log_probs[step, position] for step, position in enumerate(batch["positions"][0]) if position >= 0))


def test_the_likeliest_reference_comes_first_wherever_it_stood(folder: Path) -> None:
    expected = max(REFERENCES, key=_log_prob)
    turned = [REFERENCES[start:] + REFERENCES[:start] for start in range(len(REFERENCES))]
    found = likeliest_first([Example(CONVERSATION, first, tuple(rest)) for first, *rest in turned], folder, TOKENIZER)
    for example, order in zip(found, turned, strict=True):
        assert example.references == (expected, *(other for other in order if other != expected))


def test_each_example_has_its_own_likeliest_whatever_their_lengths(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "_BATCH_SIZE", 3)
    longer = Conversation(("你看过红楼梦吗", "看过两遍", *CONVERSATION.history), CONVERSATION.utterance)
    examples = [Example(conversation, *_split(REFERENCES)) for conversation in (longer, CONVERSATION, longer)]
    expected = [max(REFERENCES, key=lambda r, c=e.conversation: _log_prob(r, c)) for e in examples]
    assert [e.reference for e in likeliest_first(examples, folder, TOKENIZER)] == expected


def _split(references: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    return references[0], references[1:]


def test_what_cannot_be_chosen_stays_as_it_is(folder: Path) -> None:
    examples = [
        Example(CONVERSATION, "北京明天冷吗", kind="omission"),
        Example(CONVERSATION, "上海热", ("广州热",)),
        Example(Conversation(("你好",), "明天" * 20), "明天", ("你好明天",)),
    ]
    assert likeliest_first(examples, folder, TOKENIZER) == examples
    one_of_two = Example(CONVERSATION, "上海热", ("北京明天冷吗",), "omission")
    expected = Example(CONVERSATION, "北京明天冷吗", ("上海热",), "omission")
    assert likeliest_first([one_of_two], folder, TOKENIZER) == [expected]
    assert likeliest_first([], folder, TOKENIZER) == []
