"""The blocks of the Transformer. Shapes: B batch, S source, T target, D hidden, H heads. Masks: True = may attend."""

from typing import Any, NamedTuple

import keras
from keras import ops

from rewriter.decoding import write_step


class KeysValues(NamedTuple):
    """What an attention reads: a memory, projected once."""

    keys: Any  # (B, H, S, D / H)
    values: Any  # (B, H, S, D / H)


def masked_softmax(logits: Any, mask: Any) -> Any:
    """Softmax over the last axis in float32. A row with nothing to attend to is all zeros (Keras makes it uniform)."""
    logits = ops.where(mask, ops.cast(logits, "float32"), -1e9)
    return ops.where(mask, ops.softmax(logits, axis=-1), 0.0)


def sinusoid(position: Any, dim: int) -> Any:
    """Sinusoidal position embedding (Vaswani et al. 2017, section 3.5): (..., ) int -> (..., dim) float32."""
    rates = ops.exp(ops.arange(0, dim, 2, dtype="float32") * (-9.210340371976184 / dim))
    angles = ops.cast(position, "float32")[..., None] * rates
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


class Attention(keras.layers.Layer):
    """Multi-head attention whose two halves are called apart, so that keys and values can be cached."""

    def __init__(self, hidden_dim: int, num_heads: int, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = hidden_dim // num_heads
        self.query = keras.layers.Dense(hidden_dim, name="query")
        self.key_value = keras.layers.Dense(2 * hidden_dim, name="key_value")
        self.output_projection = keras.layers.Dense(hidden_dim, name="output")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")

    def build(self, input_shape: Any) -> None:
        for layer in (self.query, self.key_value, self.output_projection):
            layer.build((None, None, self.num_heads * self.head_dim))
        self.built = True

    def project(self, memory: Any) -> KeysValues:
        """(B, S, D) -> keys and values."""
        keys, values = ops.split(self.key_value(memory), 2, axis=-1)
        return KeysValues(self._heads(keys), self._heads(values))

    def call(self, x: Any, memory: KeysValues, mask: Any, bias: Any = None, training: bool | None = None) -> Any:
        """``x`` (B, T, D), ``mask`` (B or 1, T or 1, S), ``bias`` (B, H, T, S) of the logits -> (B, T, D)."""
        query = self._heads(self.query(x)) * self.head_dim**-0.5
        logits = ops.matmul(query, ops.swapaxes(memory.keys, 2, 3))
        if bias is not None:
            logits = logits + bias
        weights = ops.cast(masked_softmax(logits, mask[:, None]), memory.values.dtype)
        context = ops.matmul(self.dropout(weights, training=training), memory.values)
        context = ops.swapaxes(context, 1, 2)
        shape = ops.shape(context)
        return self.output_projection(ops.reshape(context, (shape[0], shape[1], self.num_heads * self.head_dim)))

    def _heads(self, x: Any) -> Any:
        shape = ops.shape(x)
        return ops.swapaxes(ops.reshape(x, (shape[0], shape[1], self.num_heads, self.head_dim)), 1, 2)


class SelfAttention(Attention):
    """A decoder's attention over its own prefix: all of it at once, or step by step with keys and values kept."""

    def start(self, rows: Any, max_length: int) -> KeysValues:
        """What is kept before the first of at most T steps: (N, H, T, D / H) each."""
        empty = ops.zeros((rows, self.num_heads, max_length, self.head_dim), dtype=self.compute_dtype)
        return KeysValues(empty, empty)

    def read(self, x: Any, training: bool | None = None) -> Any:
        """Each step reads itself and those before it: (B, T, D) -> (B, T, D)."""
        steps = ops.arange(ops.shape(x)[1])
        causal_mask = (steps[:, None] >= steps[None])[None]
        return self(x, self.project(x), causal_mask, training=training)

    def step(self, x: Any, kept: KeysValues, index: Any) -> tuple[Any, KeysValues]:
        """The step ``index``, (N, 1, D) -> (N, 1, D), and what is kept for the next one."""
        new = self.project(x)
        kept = KeysValues(*(write_step(old, index, value, axis=2) for old, value in zip(kept, new, strict=True)))
        mask = (ops.arange(ops.shape(kept.keys)[2]) <= index)[None, None]
        return self(x, kept, mask, training=False), kept


class FeedForward(keras.layers.Layer):
    """Two dense layers with a GELU between them."""

    def __init__(self, input_dim: int, intermediate_dim: int, hidden_dim: int, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.widths = (input_dim, intermediate_dim)
        self.expand = keras.layers.Dense(intermediate_dim, activation="gelu", name="expand")
        self.contract = keras.layers.Dense(hidden_dim, name="contract")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")

    def build(self, input_shape: Any) -> None:
        for layer, width in zip((self.expand, self.contract), self.widths, strict=True):
            layer.build((None, None, width))
        self.built = True

    def call(self, x: Any, training: bool | None = None) -> Any:
        return self.dropout(self.contract(self.expand(x)), training=training)


class EncoderLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each normalised first and added to its input."""

    def __init__(self, hidden_dim: int, intermediate_dim: int, num_heads: int, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention = Attention(hidden_dim, num_heads, dropout, name="attention")
        self.feed_forward = FeedForward(hidden_dim, intermediate_dim, hidden_dim, dropout, name="feed_forward")
        self.attention_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="attention_norm")
        self.feed_forward_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="feed_forward_norm")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")

    def build(self, input_shape: Any) -> None:
        for layer in (self.attention, self.feed_forward, self.attention_norm, self.feed_forward_norm):
            layer.build(input_shape)
        self.built = True

    def call(self, x: Any, mask: Any, bias: Any = None, training: bool | None = None) -> Any:
        """``x`` (B, S, D), ``mask`` (B, 1, S), ``bias`` (B, H, S, S) of the attention -> (B, S, D)."""
        normed = self.attention_norm(x)
        attended = self.attention(normed, self.attention.project(normed), mask, bias, training=training)
        x = x + self.dropout(attended, training=training)
        return x + self.feed_forward(self.feed_forward_norm(x), training=training)


class Sides(NamedTuple):
    """The two sides of a source as one decoder layer reads them."""

    history: KeysValues
    utterance: KeysValues
    history_mask: Any  # (B, 1, S) bool
    utterance_mask: Any  # (B, 1, S) bool


class DecoderOutput(NamedTuple):
    """The named quantities of the paper's equations for one decoder layer, each (B, T, D)."""

    hidden: Any  # D
    history_context: Any  # C_H
    utterance_context: Any  # C_U


class DecoderLayer(keras.layers.Layer):
    """Masked self-attention, two cross-attentions apart, feed-forward over both contexts (Su et al., section 3.2).

    ``prefix_reader`` may stand in for the self-attention (see ``family``).
    """

    def __init__(
        self,
        hidden_dim: int,
        intermediate_dim: int,
        num_heads: int,
        dropout: float,
        prefix_reader: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.prefix_reader = prefix_reader or SelfAttention(hidden_dim, num_heads, dropout, name="self_attention")
        self.history_attention = Attention(hidden_dim, num_heads, dropout, name="history_attention")
        self.utterance_attention = Attention(hidden_dim, num_heads, dropout, name="utterance_attention")
        self.feed_forward = FeedForward(2 * hidden_dim, intermediate_dim, hidden_dim, dropout, name="feed_forward")
        self.self_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="self_norm")
        self.cross_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="cross_norm")
        self.context_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="context_norm")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")
        self.hidden_dim = hidden_dim

    def build(self, input_shape: Any) -> None:
        for layer in (self.prefix_reader, self.history_attention, self.utterance_attention, self.feed_forward):
            layer.build(input_shape)
        self.self_norm.build((None, None, self.hidden_dim))
        self.cross_norm.build((None, None, self.hidden_dim))
        self.context_norm.build((None, None, 2 * self.hidden_dim))
        self.built = True

    def call(self, x: Any, sides: Sides, training: bool | None = None) -> DecoderOutput:
        """The whole prefix at once, ``x`` (B, T, D)."""
        read = self.prefix_reader.read(self.self_norm(x), training=training)
        return self._attend(x + self.dropout(read, training=training), sides, training)

    def step(self, x: Any, sides: Sides, kept: Any, index: Any) -> tuple[DecoderOutput, Any]:
        """The step ``index``, ``x`` (N, 1, D); also returns what the prefix reader keeps for the next one."""
        read, kept = self.prefix_reader.step(self.self_norm(x), kept, index)
        return self._attend(x + read, sides, training=False), kept

    def _attend(self, m: Any, sides: Sides, training: bool | None) -> DecoderOutput:
        normed = self.cross_norm(m)
        c_h = self.history_attention(normed, sides.history, sides.history_mask, training=training)
        c_u = self.utterance_attention(normed, sides.utterance, sides.utterance_mask, training=training)
        contexts = self.context_norm(ops.concatenate([m + c_h, m + c_u], axis=-1))
        hidden = m + self.feed_forward(contexts, training=training)
        return DecoderOutput(hidden, c_h, c_u)
