"""Foretelling the edits before the rewrite is written: which words will be copied, and where others go in.

A second task for the encoder, learnt with the first (after Song et al. 2020, "A two-stage curriculum training framework
for conversational rewriting", whose sequence labels say which words of the history are needed). What it foretells is
added to the encoder's states, so that the decoder writes with the whole plan in view.
"""

from typing import Any

import keras
from keras import ops


class EditForeteller(keras.layers.Layer):
    """Two logits per source position: it will be copied; words from elsewhere will be put in just before it."""

    def __init__(self, hidden_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.classify = keras.layers.Dense(2, dtype="float32", name="classify")
        self.tell = keras.layers.Dense(hidden_dim, name="tell")

    def build(self, input_shape: Any) -> None:
        self.classify.build((None, None, self.hidden_dim))
        self.tell.build((None, None, 2))
        self.built = True

    def call(self, states: Any) -> tuple[Any, Any]:
        """(B, S, D) -> the states with the plan added (B, S, D), and the logits (B, S, 2)."""
        logits = self.classify(states)
        return states + self.tell(ops.sigmoid(logits)), logits


def edit_loss(logits: Any, positions: Any, in_utterance: Any, counts: Any) -> Any:
    """Binary cross-entropy of the logits (B, S, 2), summed over the source, per target token.

    ``positions`` (B, T) is the target, -1 where it has ended; ``counts`` (B, S) bool says which positions are learnt.
    """
    written = ops.cast(positions[..., None] == ops.arange(ops.shape(logits)[1]), "float32")  # (B, T, S)
    copied = ops.max(written, axis=1)
    before = ops.concatenate([ops.zeros_like(written[:, :1]), written[:, :-1]], axis=1)
    after_insertion = ops.sum(before * ops.cast(~in_utterance, "float32")[:, None], axis=-1)  # (B, T)
    inserted = ops.max(written * after_insertion[..., None], axis=1) * ops.cast(in_utterance, "float32")
    targets = ops.stack([copied, inserted], axis=-1)
    losses = ops.maximum(logits, 0.0) - logits * targets + ops.log1p(ops.exp(-ops.abs(logits)))
    total = ops.sum(losses * ops.cast(counts, "float32")[..., None])
    return total / ops.maximum(ops.sum(ops.cast(positions >= 0, "float32")), 1.0)
