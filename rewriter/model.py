"""T-Ptr-lambda: reads the features of a conversation, gives a distribution over its positions for each written token.

Three verbs: ``encode`` (source -> memory), ``decode`` (memory + prefix -> log-probabilities), ``call`` (both, for
training). ``start`` and ``step`` are the same decoder with its keys and values cached, for ``decoding``. The other
models of the paper are this one with other parts: see ``family``.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from rewriter.alignment import copy_priorities
from rewriter.config import FeaturesConfig, ModelConfig
from rewriter.decoding import write_step
from rewriter.edits import EditForeteller, edit_loss
from rewriter.family import decoder_layer, encoder_layer, output_layer
from rewriter.features import PADDING_TURN, UTTERANCE_TURN
from rewriter.layers import KeysValues, Sides, sinusoid
from rewriter.pointer import Written, token_log_probs
from rewriter.relations import RelationBias
from rewriter.vocabulary import EOS, EOT

_NEVER = -1e9


class Memory(NamedTuple):
    """A source, read once. Every field has the batch in front."""

    embedded: Any  # (B, S, E) tokens without position or turn; E is D, or narrower
    states: Any  # (B, S, D) encoder states
    history: tuple[KeysValues, ...]  # per decoder layer
    utterance: tuple[KeysValues, ...]  # per decoder layer
    pointer_keys: Any  # what the output layer reads of the source, as its ``project`` gives it
    start: Any  # (B, 1, E) what the decoder reads where there is no last token
    history_mask: Any  # (B, 1, S) bool, the bank included
    utterance_mask: Any  # (B, 1, S) bool
    copyable: Any  # (B, 1, S) bool, whatever can be written
    same_token: Any  # (B, S, S) float32, 1 where two positions hold the same word
    edits: Any  # (B, S, 2) float32 logits, or None: see ``edits``


class Reading(NamedTuple):
    """A source as the encoder alone sees it, before any plan is made."""

    embedded: Any  # (B, S, E), as in ``Memory``
    states: Any  # (B, S, D)
    same: Any  # (B, S, S) bool, as ``Memory.same_token``


class State(NamedTuple):
    """What the decoder remembers between steps. N rows: batch, or batch times beams; T steps at most."""

    prefix: tuple[Any, ...]  # per decoder layer, keys and values, (N, H, T, D / H); or an LSTM's state
    frontier: Any  # (N,) int32, the first utterance position that is not yet written
    history_gates: Any  # (N, T) float32


class RewriterModel(keras.Model):
    """See the module. The first positions of every source are the bank of function words."""

    def __init__(self, config: ModelConfig, features: FeaturesConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.num_function_words = len(features.function_words)
        self.max_characters = features.characters_per_token
        self.edit_loss_weight = 0.0  # training sets it
        token_dim = config.token_dim
        self.word_embedding = keras.layers.Embedding(config.num_words, token_dim, name="word_embedding")
        self.character_embedding = keras.layers.Embedding(
            config.num_characters, config.character_dim, name="character_embedding"
        )
        self.compose_characters = keras.layers.Dense(token_dim, name="compose_characters")
        self.turn_embedding = keras.layers.Embedding(features.max_turn_id + 1, token_dim, name="turn_embedding")
        self.occurrence_embedding = (
            keras.layers.Embedding(4, token_dim, name="occurrence_embedding") if config.occurrence else None
        )
        self.relation_bias = RelationBias(config.num_heads, name="relation_bias") if config.relations else None
        self.source_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="source_norm")
        # Most weights are words': they stay narrow where the layers are wide (Lan et al. 2020, ALBERT, section 3.1).
        self.widen_source = _widening(config, "widen_source")
        self.widen_prefix = _widening(config, "widen_prefix")
        self.encoder_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="encoder_norm")
        self.dropout = keras.layers.Dropout(config.dropout, name="dropout")
        self.encoder = [encoder_layer(config, name=f"encoder_{i}") for i in range(config.num_encoder_layers)]
        self.decoder = [decoder_layer(config, name=f"decoder_{i}") for i in range(config.num_decoder_layers)]
        self.start_embedding = keras.layers.Embedding(1, token_dim, name="start_embedding")
        self.read_last = keras.layers.Dense(token_dim, name="read_last") if config.copy_state else None
        self.read_frontier = keras.layers.Dense(token_dim, name="read_frontier") if config.copy_state else None
        self.prefix_norm = keras.layers.LayerNormalization(epsilon=1e-5, name="prefix_norm")
        self.pointer = output_layer(config)
        self.foretell = EditForeteller(config.hidden_dim, name="foretell") if config.edits else None
        # An LSTM decoder begins with what the encoder ended with (Sutskever et al. 2014).
        recurrent = config.architecture == "lstm"
        self.read_end = keras.layers.Dense(token_dim, name="read_end") if recurrent else None
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Makes all weights at once: their shapes follow from the configuration, not from the first batch."""
        characters = self.max_characters * self.config.character_dim
        self.compose_characters.build((None, None, characters))
        for layer in (self.source_norm, self.prefix_norm, self.widen_source, self.widen_prefix):
            layer.build((None, None, self.config.token_dim))
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build((None, None, self.config.hidden_dim))
        self.built = True

    def encode(self, source: dict[str, Any], training: bool | None = None) -> Memory:
        """``source`` as ``features.collate`` gives it: word_ids, turn_ids, copy_ids (B, S), character_ids (B, S, C)."""
        turn_ids = source["turn_ids"]
        history_mask = (turn_ids > UTTERANCE_TURN)[:, None]
        utterance_mask = (turn_ids == UTTERANCE_TURN)[:, None]
        readable = turn_ids != PADDING_TURN
        embedded, states, same = self.read(source, training)
        edits = None
        if self.foretell is not None:
            states, edits = self.foretell(states)
        return Memory(
            embedded=embedded,
            states=states,
            history=tuple(layer.history_attention.project(states) for layer in self.decoder),
            utterance=tuple(layer.utterance_attention.project(states) for layer in self.decoder),
            pointer_keys=self.pointer.project(states, source),
            start=self._start(states, source["word_ids"]),
            history_mask=history_mask,
            utterance_mask=utterance_mask,
            copyable=(readable & (source["word_ids"] != EOT))[:, None],
            same_token=ops.cast(same, "float32"),
            edits=edits,
        )

    def read(self, source: dict[str, Any], training: bool | None = None) -> Reading:
        """The embeddings and the encoder alone; ``readers`` are the layers that it takes."""
        readable = source["turn_ids"] != PADDING_TURN
        same = (
            (source["copy_ids"][:, :, None] == source["copy_ids"][:, None]) & readable[:, None] & readable[:, :, None]
        )
        embedded = self._embed(source["word_ids"], source["character_ids"])
        return Reading(embedded, self._encode(embedded, source["turn_ids"], same, training), same)

    @property
    def readers(self) -> list[Any]:
        """The layers that ``read`` takes."""
        layers = [
            self.word_embedding,
            self.character_embedding,
            self.compose_characters,
            self.turn_embedding,
            self.occurrence_embedding,
            self.relation_bias,
            self.source_norm,
            self.widen_source,
            self.dropout,
            *self.encoder,
            self.encoder_norm,
        ]
        return [layer for layer in layers if layer is not None]

    def _embed(self, word_ids: Any, character_ids: Any) -> Any:
        """A token is its word (where frequent) plus its characters, in their order: (B, S), (B, S, C) -> (B, S, E)."""
        characters = self.character_embedding(character_ids)
        characters = ops.where((character_ids > 0)[..., None], characters, ops.zeros_like(characters))
        shape = ops.shape(characters)
        flat = ops.reshape(characters, (shape[0], shape[1], self.max_characters * self.config.character_dim))
        return self.word_embedding(word_ids) + self.compose_characters(flat)

    def _encode(self, embedded: Any, turn_ids: Any, same: Any, training: bool | None) -> Any:
        places = _position_in_turn(turn_ids)
        x = embedded + self.turn_embedding(turn_ids)
        x = x + ops.cast(sinusoid(places, self.config.token_dim), x.dtype)
        if self.occurrence_embedding is not None:
            in_utterance = ops.any(same & (turn_ids == UTTERANCE_TURN)[:, None], axis=-1)
            in_history = ops.any(same & _said_before(turn_ids, self.num_function_words)[:, None], axis=-1)
            x = x + self.occurrence_embedding(ops.cast(in_utterance, "int32") + 2 * ops.cast(in_history, "int32"))
        x = self.dropout(self.widen_source(self.source_norm(x)), training=training)
        # The bank stays out of the encoder: its words mean the same in every conversation.
        first = self.num_function_words
        bank, said, turns = x[:, :first], x[:, first:], turn_ids[:, first:]
        mask = (turns != PADDING_TURN)[:, None]
        biases = []
        if self.relation_bias is not None:
            biases = [self.relation_bias(turns, places[:, first:], same[:, first:, first:])]
        for layer in self.encoder:
            said = layer(said, mask, *biases, training=training)
        return self.encoder_norm(ops.concatenate([bank, said], axis=1))

    def _start(self, states: Any, word_ids: Any) -> Any:
        start = self.start_embedding(ops.zeros_like(word_ids[:, :1]))
        if self.read_end is not None:
            # Each direction has read everything only where it ends: forwards at EOS, backwards at the first said word.
            forwards = ops.take_along_axis(states, _first(word_ids == EOS)[:, None, None], axis=1)
            backwards = states[:, self.num_function_words : self.num_function_words + 1]
            half = self.config.hidden_dim // 2
            start = start + self.read_end(ops.concatenate([forwards[..., :half], backwards[..., half:]], axis=-1))
        return start

    def decode(self, memory: Memory, positions: Any, training: bool | None = None) -> Any:
        """Log-probabilities of the whole prefix at once: ``positions`` (B, T) int32, each token's source position.

        Returns (B, T, S): at t, log p of writing the word at each source position after the first t tokens.
        """
        return token_log_probs(self.write(memory, positions, training), memory.same_token)

    def write(self, memory: Memory, positions: Any, training: bool | None = None) -> Written:
        """As ``decode``, but with history gate and attention as they are before equal tokens are merged."""
        last = ops.concatenate([ops.full_like(positions[:, :1], -1), positions[:, :-1]], axis=1)
        frontier = self._frontiers(memory, last)
        x = self._prefix(memory, last, frontier, ops.arange(ops.shape(positions)[1]), training)
        for number, layer in enumerate(self.decoder):
            output = layer(x, _sides(memory, number), training=training)
            x = output.hidden
        return self._point(memory, output, last, frontier)

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        """``inputs`` is a source with ``positions`` (B, T), the target, padded with -1. Returns ``decode``'s."""
        memory = self.encode(inputs, training=training)
        if training and memory.edits is not None:
            in_utterance = memory.utterance_mask[:, 0]
            said = in_utterance | _said_before(inputs["turn_ids"], self.num_function_words)
            loss = edit_loss(memory.edits, inputs["positions"], in_utterance, said)
            self.add_loss(self.edit_loss_weight * loss)
        return self.decode(memory, inputs["positions"], training=training)

    def start(self, memory: Memory, max_length: int) -> State:
        """The state before the first step; ``memory`` of N rows."""
        rows = ops.shape(memory.states)[0]
        return State(
            prefix=tuple(layer.prefix_reader.start(rows, max_length) for layer in self.decoder),
            frontier=_first(memory.utterance_mask[:, 0]),
            history_gates=ops.zeros((rows, max_length), dtype="float32"),
        )

    def step(self, memory: Memory, state: State, last: Any, index: Any) -> tuple[Any, State]:
        """One token further. ``last`` (N,) int32, the position just copied (-1 at the start); ``index`` its number.

        Returns log-probabilities (N, S) in which every word stands once, at the place from which it would be copied,
        and the new state.
        """
        size = ops.shape(memory.states)[1]
        in_utterance = memory.utterance_mask[:, 0]
        # A row that has ended goes on from its EOS, which can be the last position of all.
        reached = ops.minimum(ops.maximum(state.frontier, last + 1), size - 1)
        frontier = ops.where(_at(in_utterance, last), reached, state.frontier)
        x = self._prefix(memory, last[:, None], frontier[:, None], index[None], training=False)
        prefix = []
        for number, layer in enumerate(self.decoder):
            output, kept = layer.step(x, _sides(memory, number), state.prefix[number], index)
            x = output.hidden
            prefix.append(kept)
        written = self._point(memory, output, last[:, None], frontier[:, None])
        log_probs = token_log_probs(written, memory.same_token)[:, 0]
        positions = ops.arange(size)[None]
        priority = copy_priorities(ops, positions, last[:, None], frontier[:, None], in_utterance, size)
        best = ops.max(ops.where(memory.same_token > 0, priority[:, None], -1), axis=-1)
        is_place = (priority == best) & memory.copyable[:, 0]
        gates = write_step(state.history_gates, index, written.history_gate)
        return ops.where(is_place, log_probs, _NEVER), State(tuple(prefix), frontier, gates)

    def _prefix(self, memory: Memory, last: Any, frontier: Any, index: Any, training: bool | None) -> Any:
        """What the decoder reads at each step (copy state): the last token, where it stood, and the frontier."""
        started = (last >= 0)[..., None]
        token = ops.take_along_axis(memory.embedded, ops.maximum(last, 0)[..., None], axis=1)
        x = ops.where(started, token, memory.start)
        x = x + ops.cast(sinusoid(index, self.config.token_dim), x.dtype)[None]
        if self.read_last is not None and self.read_frontier is not None:
            selective_read = ops.take_along_axis(memory.states, ops.maximum(last, 0)[..., None], axis=1)
            x = x + ops.where(started, self.read_last(selective_read), ops.zeros_like(x))
            x = x + self.read_frontier(ops.take_along_axis(memory.states, frontier[..., None], axis=1))
        return self.dropout(self.widen_prefix(self.prefix_norm(x)), training=training)

    def _point(self, memory: Memory, output: Any, last: Any, frontier: Any) -> Written:
        positions = ops.arange(ops.shape(memory.states)[1])
        is_next = (positions == last[..., None] + 1) & (last >= 0)[..., None]
        is_frontier = positions == frontier[..., None]
        history_mask = memory.history_mask & memory.copyable
        written: Written = self.pointer(
            output, memory.pointer_keys, history_mask, memory.utterance_mask, is_next, is_frontier
        )
        return written

    def _frontiers(self, memory: Memory, last: Any) -> Any:
        """The frontier before each token: (B, T) positions copied last -> (B, T)."""
        in_utterance = memory.utterance_mask[:, 0]
        steps = ops.where(_at(in_utterance, last), last + 1, 0)
        length = ops.shape(last)[1]
        so_far = ops.arange(length)[:, None] >= ops.arange(length)[None]
        furthest = ops.max(ops.where(so_far[None], steps[:, None], 0), axis=-1)
        # Padding of the target may point past the end.
        return ops.minimum(ops.maximum(furthest, _first(in_utterance)[:, None]), ops.shape(in_utterance)[1] - 1)


def _widening(config: ModelConfig, name: str) -> Any:
    """From a token's units to the layers', if those are more."""
    if config.token_dim == config.hidden_dim:
        return keras.layers.Identity(name=name)
    return keras.layers.Dense(config.hidden_dim, name=name)


def _sides(memory: Memory, layer: int) -> Sides:
    return Sides(memory.history[layer], memory.utterance[layer], memory.history_mask, memory.utterance_mask)


def _said_before(turn_ids: Any, num_function_words: int) -> Any:
    """The history without the bank: (B, S) -> (B, S) bool."""
    return (turn_ids > UTTERANCE_TURN) & (ops.arange(ops.shape(turn_ids)[1]) >= num_function_words)


def _first(mask: Any) -> Any:
    """Index of the first True of each row: (B, S) -> (B,) int32."""
    return ops.cast(ops.argmax(ops.cast(mask, "int32"), axis=-1), "int32")


def _at(mask: Any, position: Any) -> Any:
    """The mask's value at each position, False at -1: (B, S), (B,) or (B, T) -> like position."""
    flat = position[:, None] if len(position.shape) == 1 else position
    found = ops.take_along_axis(mask, ops.maximum(flat, 0), axis=1) & (flat >= 0)
    return found[:, 0] if len(position.shape) == 1 else found


def _position_in_turn(turn_ids: Any) -> Any:
    """How many positions of the same turn came before: (B, S) -> (B, S) int32."""
    size = ops.shape(turn_ids)[1]
    earlier = ops.arange(size)[:, None] > ops.arange(size)[None]
    same_turn = turn_ids[:, :, None] == turn_ids[:, None]
    return ops.sum(ops.cast(same_turn & earlier[None], "int32"), axis=-1)
