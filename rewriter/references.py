"""Which of several right answers to learn: the one that the model finds likeliest already.

Writers order theirs by taste, and what a model cannot foretell it only learns by heart. With one answer for each turn,
always the likeliest, it learns to be right instead (hard EM: Min et al. 2019, "A discrete hard EM approach for weakly
supervised question answering", section 3.2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from rewriter.artefact import load_features, load_model
from rewriter.conversation import Example
from rewriter.dataset import PreparedExamples
from rewriter.features import Features, Source, UtteranceTooLongError
from rewriter.inference import compile_function
from rewriter.model import RewriterModel
from rewriter.tokenizer import Tokenizer

_BATCH_SIZE = 64
_Choice = tuple[int, str]  # the number of an example and one of its references


def likeliest_first(examples: Sequence[Example], model: Path, tokenizer: Tokenizer) -> list[Example]:
    """The examples, each with that reference first which the model of a folder finds likeliest.

    The others keep their order, and so do all of an example of which the model can copy none.
    """
    features = Features(*load_features(model))
    features.tokenizer = tokenizer
    choices, sources, targets = [], [], []
    for choice, source, target in _copyable(examples, features):
        choices.append(choice)
        sources.append(source)
        targets.append(target)
    if not choices:
        return list(examples)
    likeliest: dict[int, tuple[float, str]] = {}
    for (index, reference), score in zip(choices, _log_probs(model, sources, targets), strict=True):
        if index not in likeliest or score > likeliest[index][0]:
            likeliest[index] = (score, reference)
    return [
        _with_first(example, likeliest[index][1]) if index in likeliest else example
        for index, example in enumerate(examples)
    ]


def _copyable(examples: Sequence[Example], features: Features) -> Iterator[tuple[_Choice, Source, list[int]]]:
    """Each reference that can be copied, where there are several."""
    for index, example in enumerate(examples):
        if not example.alternatives:
            continue
        try:
            source = features.encode(example.conversation)
        except UtteranceTooLongError:
            continue
        for reference in example.references:
            target = features.target(source, reference)
            if target is not None:
                yield (index, reference), source, target


def _log_probs(model: Path, sources: Sequence[Source], targets: Sequence[list[int]]) -> np.ndarray:
    """The log-probability of each target: (N,)."""
    prepared = PreparedExamples.from_sources(sources, targets)
    score = compile_function(load_model(model), _log_prob)
    order = np.argsort(prepared.source_lengths, kind="stable")
    found = np.empty(len(order))
    for start in range(0, len(order), _BATCH_SIZE):
        chosen = order[start : start + _BATCH_SIZE]
        found[chosen] = score(prepared.batch(chosen))["log_prob"]
    return found


def _log_prob(model: RewriterModel, batch: dict[str, Any]) -> dict[str, Any]:
    positions = ops.cast(batch["positions"], "int32")
    each = ops.take_along_axis(model(batch, training=False), ops.maximum(positions, 0)[..., None], axis=2)[..., 0]
    return {"log_prob": ops.sum(ops.where(positions >= 0, each, 0.0), axis=1)}


def _with_first(example: Example, reference: str) -> Example:
    others = tuple(other for other in example.references if other != reference)
    return replace(example, reference=reference, alternatives=others)
