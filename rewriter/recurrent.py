"""What stands for self-attention where the encoder-decoder is an LSTM (Hochreiter & Schmidhuber 1997; see ``family``).

Keras's own LSTM, not cuDNN's: what is exported must run where there is no GPU.
"""

from typing import Any

import keras
from keras import ops


class LSTMEncoderLayer(keras.layers.Layer):
    """A bidirectional LSTM, D / 2 wide each way, normalised first and added to its input like any layer of ours."""

    def __init__(self, hidden_dim: int, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        one_way = keras.layers.LSTM(hidden_dim // 2, return_sequences=True, use_cudnn=False, name="lstm")
        self.lstm = keras.layers.Bidirectional(one_way, name="both_ways")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")

    def build(self, input_shape: Any) -> None:
        for layer in (self.lstm, self.norm):
            layer.build(input_shape)
        self.built = True

    def call(self, x: Any, mask: Any, training: bool | None = None) -> Any:
        """``x`` (B, S, D), ``mask`` (B, 1, S) -> (B, S, D); what is masked is passed over, in both directions."""
        read = self.lstm(self.norm(x), mask=mask[:, 0], training=training)
        return x + self.dropout(read, training=training)


class PrefixLSTM(keras.layers.LSTM):
    """Reads a decoder's prefix: all of it at once, or step by step with hidden state and cell kept."""

    def __init__(self, hidden_dim: int, **kwargs: Any) -> None:
        super().__init__(hidden_dim, return_sequences=True, use_cudnn=False, **kwargs)

    def start(self, rows: Any, max_length: int) -> tuple[Any, Any]:
        """What is kept before the first step: (N, D) each, whatever the length."""
        nothing = ops.zeros((rows, self.units), dtype=self.compute_dtype)
        return nothing, nothing

    def read(self, x: Any, training: bool | None = None) -> Any:
        """(B, T, D) -> (B, T, D)."""
        return self(x, training=training)

    def step(self, x: Any, kept: tuple[Any, Any], index: Any) -> tuple[Any, tuple[Any, Any]]:
        """One step, (N, 1, D) -> (N, 1, D), and what is kept for the next one."""
        hidden, (hidden, cell) = self.cell(x[:, 0], list(kept), training=False)
        return hidden[:, None], (hidden, cell)
