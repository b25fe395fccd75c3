"""The output of T-Ptr-lambda (Su et al. 2019, section 3.3): a distribution over source positions.

    p(y_t = w) = lambda_t * sum_{i in H, w_i = w} a_{t,i}  +  (1 - lambda_t) * sum_{j in U, w_j = w} a'_{t,j}

lambda near 1 means copying from the HISTORY. One sentence of the paper says the opposite; we follow its equation.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from rewriter.layers import DecoderOutput, masked_softmax

# Probability below which we do not look: keeps log() finite where no attention can fall.
_FLOOR = 1e-9


class Written(NamedTuple):
    """How probable each next token is, by the way in which it can be written."""

    copied: Any  # (B, T, S) float32, of each position, equal tokens not yet merged
    history_gate: Any  # (B, T) float32, lambda: the share of what is copied that lies on the history
    generated: Any = None  # (B, T, S) float32, of the word at each position; None without a vocabulary to write from


class Pointer(keras.layers.Layer):
    """Two pointing attentions, one over the history and one over the utterance, weighed by the history gate."""

    def __init__(self, hidden_dim: int, copy_state: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.history_query = keras.layers.Dense(hidden_dim, name="history_query")
        self.utterance_query = keras.layers.Dense(hidden_dim, name="utterance_query")
        self.history_key = keras.layers.Dense(hidden_dim, name="history_key")
        self.utterance_key = keras.layers.Dense(hidden_dim, name="utterance_key")
        self.gate = keras.layers.Dense(1, dtype="float32", name="history_gate")
        # How much more to expect the position after the last one (twice: in H, in U) and the frontier.
        self.bonuses = keras.layers.Dense(3, dtype="float32", name="bonuses") if copy_state else None
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")

    def build(self, input_shape: Any) -> None:
        width = (None, None, self.hidden_dim)
        for layer in (self.history_query, self.utterance_query, self.history_key, self.utterance_key, self.norm):
            layer.build(width)
        self.gate.build((None, None, 3 * self.hidden_dim))
        if self.bonuses is not None:
            self.bonuses.build(width)
        self.built = True

    def project(self, states: Any, source: Any) -> tuple[Any, Any]:
        """(B, S, D) -> the keys of the two attentions, each (B, S, D). The source's arrays are not looked at."""
        return self.history_key(states), self.utterance_key(states)

    def call(
        self,
        output: DecoderOutput,
        keys: tuple[Any, Any],
        history_mask: Any,
        utterance_mask: Any,
        is_next: Any,
        is_frontier: Any,
    ) -> Written:
        """``is_next`` and ``is_frontier`` are bool (B, T, S): the position after the last one, and the frontier."""
        # The paper points from M, before the last feed-forward; D holds M (a residual) and has read both contexts too.
        d = self.norm(output.hidden)
        history_logits = scores(self.history_query(d), keys[0])
        utterance_logits = scores(self.utterance_query(d), keys[1])
        if self.bonuses is not None:
            bonus = self.bonuses(d)
            history_logits = history_logits + ops.where(is_next, bonus[..., 0:1], 0.0)
            utterance_logits = utterance_logits + ops.where(is_next, bonus[..., 1:2], 0.0)
            utterance_logits = utterance_logits + ops.where(is_frontier, bonus[..., 2:3], 0.0)
        a_h = masked_softmax(history_logits, history_mask)
        a_u = masked_softmax(utterance_logits, utterance_mask)
        lambda_t = ops.sigmoid(
            self.gate(ops.concatenate([d, output.history_context, output.utterance_context], axis=-1))
        )
        lambda_t = ops.where(ops.any(history_mask, axis=-1, keepdims=True), lambda_t, 0.0)
        return Written(lambda_t * a_h + (1.0 - lambda_t) * a_u, lambda_t[..., 0])


def token_log_probs(written: Written, same_token: Any) -> Any:
    """Merges what is copied over equal tokens, (B, S, S) float: log p of the token at each position, (B, T, S)."""
    probabilities = ops.matmul(written.copied, same_token)
    if written.generated is not None:
        probabilities = probabilities + written.generated
    return ops.log(probabilities + _FLOOR)


def scores(query: Any, key: Any) -> Any:
    """Scaled dot products in float32: (B, T, D), (B, S, D) -> (B, T, S)."""
    scale = query.shape[-1] ** -0.5
    return ops.cast(ops.matmul(query * scale, ops.swapaxes(key, 1, 2)), "float32")
