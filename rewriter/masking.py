"""Guessing hidden words: how the encoder gets to know the language before it learns to rewrite.

The first task of Devlin et al. 2019 (BERT, section 3.1) on whole words, with what else stands in the conversation to go
by. It needs conversations alone, and of the annotated ones only what was said.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from rewriter.dataset import Batch
from rewriter.features import round_up
from rewriter.model import RewriterModel
from rewriter.vocabulary import EOT, PAD, UNK

# So often the word after a hidden one is hidden too: a neighbour gives too much away.
_PAIRS = 0.5
# So often a word that is asked for stays where it is: what is not hidden has to be read too.
_LEFT_VISIBLE = 0.1
_HIDDEN_STEP = 32


def hide_words(
    batch: Batch, share: float, num_function_words: int, rng: np.random.Generator
) -> tuple[Batch, np.ndarray]:
    """Hides a share of the words that were said, with their characters and the places where they stand once more.

    Returns the source arrays with ``hidden`` (M,), the places that are asked for, counted through the whole batch, and
    the words that stood there (M,), PAD at the end. Words outside the vocabulary cannot be guessed and stay.
    """
    word_ids = batch["word_ids"]
    size = word_ids.shape[1]
    begins = rng.random(word_ids.shape) < share / (1 + _PAIRS)
    goes_on = np.roll(begins, 1, axis=1) & (rng.random(word_ids.shape) < _PAIRS)
    asked = (begins | goes_on) & (word_ids > EOT) & (np.arange(size) >= num_function_words)
    blank = asked & (rng.random(word_ids.shape) >= _LEFT_VISIBLE)
    characters = np.where(blank[..., None], PAD, batch["character_ids"])
    characters[..., 0] = np.where(blank, UNK, characters[..., 0])
    # All rows' in one: a row of them for each would be padding for the most part, and to score it costs as much.
    [places] = np.nonzero(asked.ravel())
    padding = (0, round_up(max(1, len(places)), _HIDDEN_STEP) - len(places))
    sources = {
        "word_ids": np.where(blank, UNK, word_ids),
        "character_ids": characters,
        "turn_ids": batch["turn_ids"],
        # Like no other: the same word elsewhere must not tell.
        "copy_ids": np.where(blank, size + np.arange(size, dtype=np.int32), batch["copy_ids"]),
        "hidden": np.pad(places.astype(np.int32), padding),
    }
    return sources, np.pad(word_ids.ravel()[places], padding, constant_values=PAD)


class WordGuesser(keras.Model):
    """Guesses hidden words from what a rewriter's encoder makes of the rest; its embedding scores them (tied).

    It holds those layers of the rewriter that read, and trains them; the others are left as they are.
    """

    def __init__(self, rewriter: RewriterModel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.readers = rewriter.readers
        self._read = rewriter.read  # a method, so that the rewriter's other layers are not taken for ours
        self._embedding = rewriter.word_embedding
        token_dim = rewriter.config.token_dim
        self.transform = keras.layers.Dense(token_dim, activation="gelu", name="transform")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.bias = self.add_weight(shape=(rewriter.config.num_words,), initializer="zeros", name="bias")
        self.transform.build((None, None, rewriter.config.hidden_dim))
        self.norm.build((None, None, token_dim))
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        """``inputs`` as ``hide_words`` gives them -> logits (M, V) float32."""
        states = self._read(inputs, training=training).states
        asked = ops.take(ops.reshape(states, (-1, states.shape[-1])), inputs["hidden"], axis=0)
        known = ops.cast(self._embedding.embeddings, asked.dtype)
        return ops.cast(ops.matmul(self.norm(self.transform(asked)), ops.transpose(known)), "float32") + self.bias


class RewriterAndGuesser(keras.Model):
    """A rewriter and the guesser that shares its readers, trained at once: the loss is the sum of both."""

    def __init__(self, rewriter: RewriterModel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rewriter = rewriter
        self.guesser = WordGuesser(rewriter)
        self._loss = guessing_loss()
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        """``turns`` is the rewriter's input, ``hidden_words`` the guesser's, ``words`` (M,) what it has to guess.

        Returns what the rewriter does.
        """
        if training:
            self.add_loss(self._loss(inputs["words"], self.guesser(inputs["hidden_words"], training=training)))
        return self.rewriter(inputs["turns"], training=training)


def guessing_loss() -> keras.losses.Loss:
    """Mean over the words that are asked for; PAD asks for none."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PAD, dtype="float32")
