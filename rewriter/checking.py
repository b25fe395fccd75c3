"""Finds what is wrong with a corpus before anybody learns from it or is measured by it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rewriter.alignment import tile
from rewriter.config import FeaturesConfig
from rewriter.conversation import Conversation, Example
from rewriter.corpus import NOTHING_TO_DO_KINDS, RESTORING_KINDS, Corpus, normalized, read_corpus
from rewriter.tokenizer import normalize


def check_corpora(paths: Sequence[Path], config: FeaturesConfig | None = None) -> list[str]:
    """Returns a message ``path:line: …`` for every fault of the files, each file one part of a corpus.

    Faults: lines that cannot be read, rewrites with characters that neither the conversation nor the function words
    hold, kinds that the rewrite belies, conversations that stand there twice, and conversations of one part whose last
    turn and utterance, or whose whole history of two turns or more, another part has too.
    """
    config = config or FeaturesConfig()
    corpora = [read_corpus(path) for path in paths]
    faults = [message for corpus in corpora for message in _faults_of_lines(corpus, config)]
    return faults + list(_repetitions(corpora)) + list(_leaks(corpora))


def _faults_of_lines(corpus: Corpus, config: FeaturesConfig) -> Iterator[str]:
    yield from corpus.errors
    for number, example in zip(corpus.line_numbers, corpus.examples, strict=True):
        for reference in example.references:
            if not _is_spelled(example.conversation, reference, config.function_words):
                yield f"{corpus.path}:{number}: expected a rewrite of words that were said, found {reference!r}"
        same = [_characters(text) == _characters(example.conversation.utterance) for text in example.references]
        if example.kind in NOTHING_TO_DO_KINDS and not all(same):
            yield f"{corpus.path}:{number}: expected the utterance for a rewrite ({example.kind}), found another text"
        if example.kind in RESTORING_KINDS and any(same):
            yield f"{corpus.path}:{number}: expected something restored ({example.kind}), found the utterance"


def _is_spelled(conversation: Conversation, reference: str, function_words: Sequence[str]) -> bool:
    said = _characters("".join((*conversation.history, conversation.utterance)))
    return tile(_characters(reference), [*dict.fromkeys(said), *function_words]) is not None


def _characters(text: str) -> str:
    """What is compared, as metrics do: not how it was typed, nor its white space."""
    return normalize(text).replace(" ", "")


def _repetitions(corpora: Sequence[Corpus]) -> Iterator[str]:
    first: dict[Conversation, str] = {}
    for where, example in _everywhere(corpora):
        before = first.setdefault(normalized(example.conversation), where)
        if before != where:
            yield f"{where}: the same conversation as {before}"


def _leaks(corpora: Sequence[Corpus]) -> Iterator[str]:
    """Conversations of different parts that share what one could be learnt by heart from the other by."""
    first: dict[tuple[str, ...], tuple[Path, str]] = {}
    for corpus in corpora:
        for where, example in _everywhere([corpus]):
            said = normalized(example.conversation)
            for key in (("history", *said.history), ("last turns", *said.history[-1:], said.utterance)):
                path, before = first.setdefault(key, (corpus.path, where))
                if path != corpus.path and len(key) > 2:
                    yield f"{where}: the same {key[0]} as {before}, in another part"


def _everywhere(corpora: Sequence[Corpus]) -> Iterator[tuple[str, Example]]:
    for corpus in corpora:
        for number, example in zip(corpus.line_numbers, corpus.examples, strict=True):
            yield f"{corpus.path}:{number}", example
