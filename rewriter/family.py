"""The family that Su et al. compare: {LSTM, Transformer} x {Gen, Ptr-Net, Ptr-Gen, Ptr-lambda}.

A member differs from T-Ptr-lambda in the parts that stand here and in nothing else: same features, same two
cross-attentions in the decoder (See et al. have one), same optional parts, same loss, same search. Where they differ
from the models of their papers, for the sake of that:

* All write positions of the source, so that every rewrite can be served with its spans. A vocabulary is restricted to
  the words that stand in the conversation or in the bank: its softmax is over all words, but what it gives to the
  others is lost. So Gen cannot make up a word here, which the paper's can; and no target needs one, since references
  with words from nowhere are left out of training for all.
* Gen cannot write a word that is not in its vocabulary: its probability is 0 (the floor, in the loss). The paper's
  writes <unk>, which is never right either.
* Attention is scaled dot products, not the additive one of Vinyals et al. (equation 3) and See et al. (equation 1);
  the LSTM decoder does not feed its contexts back to its cell; there is no coverage.

The loss of all eight is the same quantity, the negative log-probability of the next word among all words that the model
could have written.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from rewriter.config import ModelConfig
from rewriter.layers import DecoderLayer, DecoderOutput, EncoderLayer, masked_softmax
from rewriter.pointer import Pointer, Written, scores
from rewriter.recurrent import LSTMEncoderLayer, PrefixLSTM
from rewriter.vocabulary import EOS, EOT, PAD


def encoder_layer(config: ModelConfig, name: str) -> Any:
    if config.architecture == "lstm":
        return LSTMEncoderLayer(config.hidden_dim, config.dropout, name=name)
    return EncoderLayer(config.hidden_dim, config.intermediate_dim, config.num_heads, config.dropout, name=name)


def decoder_layer(config: ModelConfig, name: str) -> DecoderLayer:
    reader = PrefixLSTM(config.hidden_dim, name="lstm") if config.architecture == "lstm" else None
    size = (config.hidden_dim, config.intermediate_dim, config.num_heads, config.dropout)
    return DecoderLayer(*size, prefix_reader=reader, name=name)


def output_layer(config: ModelConfig) -> Any:
    """A layer like ``Pointer``: ``project`` reads the source once, ``call`` says how the next token is written."""
    layers: dict[str, Callable[[], Any]] = {
        "ptr_lambda": lambda: Pointer(config.hidden_dim, config.copy_state, name="pointer"),
        "ptr_net": lambda: SourcePointer(config.hidden_dim, config.copy_state, name="pointer"),
        "gen": lambda: Generator(config.hidden_dim, config.num_words, name="generator"),
        "ptr_gen": lambda: PointerGenerator(config, name="pointer_generator"),
    }
    return layers[config.output]()


class SourcePointer(keras.layers.Layer):
    """Ptr-Net: one pointing attention over the whole source (Vinyals et al. 2015, section 2.3)."""

    def __init__(self, hidden_dim: int, copy_state: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.query = keras.layers.Dense(hidden_dim, name="query")
        self.key = keras.layers.Dense(hidden_dim, name="key")
        # How much more to expect the position after the last one, and the frontier.
        self.bonuses = keras.layers.Dense(2, dtype="float32", name="bonuses") if copy_state else None
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")

    def build(self, input_shape: Any) -> None:
        for layer in (self.query, self.key, self.bonuses, self.norm):
            if layer is not None:
                layer.build((None, None, self.hidden_dim))
        self.built = True

    def project(self, states: Any, source: Any) -> Any:
        """(B, S, D) -> the keys (B, S, D)."""
        return self.key(states)

    def call(
        self,
        output: DecoderOutput,
        keys: Any,
        history_mask: Any,
        utterance_mask: Any,
        is_next: Any,
        is_frontier: Any,
    ) -> Written:
        """As ``Pointer.call``; the history gate is the share of the attention that fell on the history."""
        d = self.norm(output.hidden)
        logits = scores(self.query(d), keys)
        if self.bonuses is not None:
            bonus = self.bonuses(d)
            logits = logits + ops.where(is_next, bonus[..., 0:1], 0.0) + ops.where(is_frontier, bonus[..., 1:2], 0.0)
        a = masked_softmax(logits, history_mask | utterance_mask)
        return Written(a, ops.sum(ops.where(history_mask, a, 0.0), axis=-1))


class Generator(keras.layers.Layer):
    """Gen: a softmax over the vocabulary, of which the words of the source are asked (See et al. 2017, equation 4)."""

    def __init__(self, hidden_dim: int, num_words: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.vocabulary = keras.layers.Dense(num_words, name="vocabulary")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")

    def build(self, input_shape: Any) -> None:
        for layer in (self.vocabulary, self.norm):
            layer.build((None, None, self.hidden_dim))
        self.built = True

    def project(self, states: Any, source: Any) -> Any:
        """The word to be written at each position, (B, S) int32; PAD where there is none or it is unknown."""
        # Of the first place of each word: word dropout may have made others unknown.
        words = ops.take_along_axis(source["word_ids"], source["copy_ids"], axis=1)
        can_be_written = (source["turn_ids"] > 0) & ((words > EOT) | (words == EOS))
        return ops.where(can_be_written, words, PAD)

    def call(
        self,
        output: DecoderOutput,
        words: Any,
        history_mask: Any,
        utterance_mask: Any,
        is_next: Any,
        is_frontier: Any,
    ) -> Written:
        """As ``Pointer.call``, but nothing is copied."""
        logits = ops.cast(self.vocabulary(self.norm(output.hidden)), "float32")  # (B, T, V)
        asked = ops.broadcast_to(words[:, None], (*ops.shape(logits)[:2], ops.shape(words)[1]))
        found = ops.take_along_axis(logits, asked, axis=2)
        p_vocabulary = ops.exp(found - ops.logsumexp(logits, axis=-1, keepdims=True))
        generated = ops.where(asked != PAD, p_vocabulary, 0.0)
        return Written(ops.zeros_like(generated), ops.zeros_like(generated[..., 0]), generated)


class PointerGenerator(keras.layers.Layer):
    """Ptr-Gen: writes a word of the vocabulary or copies one, as a gate says (See et al. 2017, equations 8 and 9).

    Their gate reads the decoder's input too; here that is part of the decoder's state, by a residual connection.
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = config.hidden_dim
        self.pointer = SourcePointer(config.hidden_dim, config.copy_state, name="pointer")
        self.generator = Generator(config.hidden_dim, config.num_words, name="generator")
        self.gate = keras.layers.Dense(1, dtype="float32", name="generation_gate")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")

    def build(self, input_shape: Any) -> None:
        for layer in (self.pointer, self.generator, self.norm):
            layer.build((None, None, self.hidden_dim))
        self.gate.build((None, None, 3 * self.hidden_dim))
        self.built = True

    def project(self, states: Any, source: Any) -> tuple[Any, Any]:
        """The pointer's keys and the generator's words."""
        return self.pointer.project(states, source), self.generator.project(states, source)

    def call(
        self,
        output: DecoderOutput,
        keys: tuple[Any, Any],
        history_mask: Any,
        utterance_mask: Any,
        is_next: Any,
        is_frontier: Any,
    ) -> Written:
        """As ``Pointer.call``."""
        marks = (history_mask, utterance_mask, is_next, is_frontier)
        copied, history_gate, _ = self.pointer(output, keys[0], *marks)
        generated = self.generator(output, keys[1], *marks).generated
        parts = [self.norm(output.hidden), output.history_context, output.utterance_context]
        p_gen = ops.sigmoid(self.gate(ops.concatenate(parts, axis=-1)))
        return Written((1.0 - p_gen) * copied, history_gate, p_gen * generated)
