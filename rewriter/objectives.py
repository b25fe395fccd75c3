"""What a stage of training learns: to rewrite, to guess hidden words, or both. ``training`` runs any of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from rewriter.config import TrainingConfig
from rewriter.dataset import NO_POSITION, Batch, PreparedExamples, RandomBatches
from rewriter.inference import compile_function, rewrite_greedily
from rewriter.masking import RewriterAndGuesser, WordGuesser, guessing_loss, hide_words
from rewriter.model import RewriterModel
from rewriter.vocabulary import PAD

_BATCH_SIZE = 64


class Objective(Protocol):
    """What is asked of a rewriter, and how well it answers."""

    model: keras.Model  # what is trained: the rewriter, or what holds parts of it
    loss: keras.losses.Loss
    padding: int  # in the targets, where nothing is asked

    def pose(self, batch: Batch, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray]:
        """A batch of prepared examples as the model's inputs and targets; the same random numbers, the same task."""

    def scores(self) -> dict[str, float]:
        """On the validation examples, by name; between 0 and 1, more is better."""


class CopyLoss(keras.losses.Loss):
    """Mean negative log-probability per target token.

    ``y_true`` (B, T) positions, -1 where there is no target; ``y_pred`` (B, T, S) log-probabilities.
    """

    def __init__(self) -> None:
        super().__init__(name="copy_loss", reduction="none", dtype="float32")

    def call(self, y_true: Any, y_pred: Any) -> Any:
        positions = ops.cast(y_true, "int32")
        is_target = ops.cast(positions >= 0, "float32")
        log_prob = ops.take_along_axis(y_pred, ops.maximum(positions, 0)[..., None], axis=2)[..., 0]
        return -ops.sum(log_prob * is_target) / ops.maximum(ops.sum(is_target), 1.0)


class Rewriting:
    """The next token of the rewrite; judged by what is decoded, from incomplete turns and from those to leave alone."""

    padding = NO_POSITION

    def __init__(self, rewriter: RewriterModel, config: TrainingConfig, prepared: Path) -> None:
        rewriter.edit_loss_weight = config.edit_loss_weight
        self.model = rewriter
        self.loss = CopyLoss()
        self._incomplete = PreparedExamples.load(prepared / f"{config.validation}.npz")
        self._complete = PreparedExamples.load(prepared / f"{config.validation}_untouched.npz")
        self._most = config.validation_examples
        self._decode = compile_function(rewriter, rewrite_greedily)

    def pose(self, batch: Batch, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray]:
        return batch, batch["positions"]

    def scores(self) -> dict[str, float]:
        return {
            "exact_match": validate(self._decode, self._incomplete, self._most),
            "untouched": validate(self._decode, self._complete, self._most),
        }


def validate(decode: Callable[[Batch], Batch], examples: PreparedExamples, most: int) -> float:
    """Decoded exact match: the share of the first ``most`` examples whose copied words are the reference's."""
    lengths = examples.source_lengths
    order = sorted(range(min(most, len(examples))), key=lambda index: int(lengths[index]))
    right = 0
    for start in range(0, len(order), _BATCH_SIZE):
        batch = examples.batch(order[start : start + _BATCH_SIZE])
        targets = batch.pop("positions")
        copied = decode(batch)["positions"]
        for row, (target, positions) in enumerate(zip(targets, copied, strict=True)):
            copy_ids = batch["copy_ids"][row]
            wanted = copy_ids[target[target >= 0]][:-1]
            found = copy_ids[positions[positions >= 0]]
            right += len(wanted) > 0 and np.array_equal(wanted, found)
    return right / len(order)


class MaskedWords:
    """The words that were hidden; judged by the share that is guessed, always the same words of the validation part."""

    padding = PAD

    def __init__(self, rewriter: RewriterModel, config: TrainingConfig, prepared: Path) -> None:
        self.model = WordGuesser(rewriter)
        self.loss = guessing_loss()
        self._share = config.hidden_words
        self._num_function_words = rewriter.num_function_words
        self._validation = PreparedExamples.load(prepared / f"{config.validation}.npz")
        self._most = config.validation_examples
        self._guess = compile_function(self.model, _best_words)

    def pose(self, batch: Batch, rng: np.random.Generator) -> tuple[Batch, np.ndarray]:
        return hide_words(batch, self._share, self._num_function_words, rng)

    def scores(self) -> dict[str, float]:
        rng = np.random.default_rng(0)
        asked = right = 0
        for start in range(0, min(self._most, len(self._validation)), _BATCH_SIZE):
            examples = range(start, min(start + _BATCH_SIZE, self._most, len(self._validation)))
            inputs, words = self.pose(self._validation.batch(examples), rng)
            asked += int(np.count_nonzero(words))
            right += int(np.count_nonzero((self._guess(inputs)["words"] == words) & (words != PAD)))
        return {"guessed": right / max(1, asked)}


class RewritingBesideGuessing(Rewriting):
    """The next token of the rewrite and, in a batch of other examples, hidden words; judged as Rewriting is."""

    def __init__(self, rewriter: RewriterModel, config: TrainingConfig, prepared: Path) -> None:
        super().__init__(rewriter, config, prepared)
        self.model = RewriterAndGuesser(rewriter)
        self._share = config.hidden_words
        self._num_function_words = rewriter.num_function_words
        parts = [(PreparedExamples.load(prepared / f"{share.path}.npz"), share.share) for share in config.beside]
        self._beside = RandomBatches(parts, config.batch_size)

    def pose(self, batch: Batch, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray]:
        hidden, words = hide_words(self._beside.draw(rng), self._share, self._num_function_words, rng)
        turns, positions = super().pose(batch, rng)
        return {"turns": turns, "hidden_words": hidden, "words": words}, positions


def _rewriting(rewriter: RewriterModel, config: TrainingConfig, prepared: Path) -> Rewriting:
    return (RewritingBesideGuessing if config.beside else Rewriting)(rewriter, config, prepared)


def _best_words(model: keras.Model, inputs: dict[str, Any]) -> dict[str, Any]:
    return {"words": ops.argmax(model(inputs, training=False), axis=-1)}


OBJECTIVES: dict[str, Callable[[RewriterModel, TrainingConfig, Path], Objective]] = {
    "rewriting": _rewriting,
    "masked_words": MaskedWords,
}
