"""From conversations to rewrites in process: the model and its decoding as one function of arrays, compiled once.

``export`` puts the same two functions into a SavedModel; evaluation, batch and the command line run them here.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from rewriter.artefact import load_features, load_model
from rewriter.conversation import Conversation, Rewrite
from rewriter.decoding import NO_TOKEN, beam_search, greedy_search
from rewriter.features import Features, Source, UtteranceTooLongError, collate, round_up
from rewriter.model import Memory, RewriterModel
from rewriter.vocabulary import EOS

SourceArrays = dict[str, Any]
_BATCH_SIZE = 64


def rewrite_greedily(model: RewriterModel, source: SourceArrays) -> dict[str, Any]:
    """Returns positions (B, T) int32, -1 from the end on; log_prob (B,); history_gate (B, T); finished (B,) bool.

    T = S: no sensible rewrite has more tokens than its source has positions.
    """
    memory = model.encode(source, training=False)
    max_length = ops.shape(source["word_ids"])[1]

    def step(state: Any, last: Any, index: Any) -> tuple[Any, Any]:
        return model.step(memory, state, last, index)

    result = greedy_search(step, model.start(memory, max_length), _ends(source), max_length)
    return {
        "positions": result.tokens,
        "log_prob": result.log_prob,
        "history_gate": ops.where(result.tokens == NO_TOKEN, 0.0, result.state.history_gates),
        "finished": result.finished,
    }


def rewrite_with_beams(model: RewriterModel, source: SourceArrays, beam_size: int = 4) -> dict[str, Any]:
    """Returns the K best rewrites, best first: positions (B, K, T); log_prob, score and finished (B, K)."""
    memory = _repeat_rows(model.encode(source, training=False), beam_size)
    max_length = ops.shape(source["word_ids"])[1]

    def step(state: Any, last: Any, index: Any) -> tuple[Any, Any]:
        return model.step(memory, state, last, index)

    result = beam_search(step, model.start(memory, max_length), _ends(source), max_length, beam_size)
    return {
        "positions": result.tokens,
        "log_prob": result.log_prob,
        "score": result.score,
        "finished": result.finished,
    }


def compile_function(model: keras.Model, function: Callable[[Any, SourceArrays], Any]) -> Callable[..., Any]:
    """Compiles ``function(model, source)`` for the backend; the result takes and gives NumPy arrays.

    It follows the weights: it can be called between training steps.
    """
    if keras.backend.backend() == "jax":
        import jax

        def run(weights: list[Any], source: SourceArrays) -> Any:
            with keras.StatelessScope(state_mapping=list(zip(model.variables, weights, strict=True))):
                return function(model, source)

        jitted = jax.jit(run)
        return lambda source: _to_numpy(jitted([variable.value for variable in model.variables], source))
    import tensorflow as tf

    graph = tf.function(lambda source: function(model, source), reduce_retracing=True, autograph=False)
    return lambda source: _to_numpy(graph({name: tf.constant(array) for name, array in source.items()}))


class Rewriter:
    """A trained model with its features. Greedy by default; ``beam_size`` 1 is greedy.

    Unless it is ``trusting``, rewrites are withheld as ``trust`` says.
    """

    def __init__(self, model: RewriterModel, features: Features, beam_size: int = 1, trusting: bool = False) -> None:
        self.model = model
        self.features = features
        self._beam_size = beam_size
        self._trusting = trusting
        self._predict = compile_function(
            model, rewrite_greedily if beam_size == 1 else lambda m, source: rewrite_with_beams(m, source, beam_size)
        )

    @classmethod
    def load(cls, directory: Path, beam_size: int = 1) -> "Rewriter":
        """Loads a model folder (see ``artefact``); raises ValueError if it is none."""
        return cls(load_model(directory), Features(*load_features(directory)), beam_size)

    def rewrite(self, conversations: Sequence[Conversation]) -> list[Rewrite]:
        """Rewrites each conversation's utterance, in order.

        Where nothing was said before, the utterance is too long or the model found no end or no word, it comes back as
        it is; in the latter cases with confidence 0. So it does where the rewrite is withheld: see Features.trusted.
        """
        return [candidates[0] for candidates in self.candidates(conversations)]

    def candidates(self, conversations: Sequence[Conversation]) -> list[list[Rewrite]]:
        """The best ``beam_size`` rewrites of each conversation, best first; the first text is not repeated."""
        found = [[Rewrite.unchanged(conversation, confidence=0.0)] for conversation in conversations]
        sources: dict[int, Source] = {}
        for index, conversation in enumerate(conversations):
            try:
                source = self.features.encode(conversation)
            except UtteranceTooLongError:
                continue
            if source.nothing_to_do:
                found[index] = [Rewrite.unchanged(conversation, confidence=1.0)]
            else:
                sources[index] = source
        pending = sorted(sources, key=lambda index: len(sources[index]))
        for start in range(0, len(pending), _BATCH_SIZE):
            chunk = pending[start : start + _BATCH_SIZE]
            length = round_up(max(len(sources[index]) for index in chunk), 16)
            outputs = self._predict(collate([sources[index] for index in chunk], length))
            for row, index in enumerate(chunk):
                answers = list(self._read(sources[index], outputs, row))
                if answers:
                    best = answers[0] if self._trusting else self.features.trusted(sources[index], answers[0])
                    found[index] = [best, *(answer for answer in answers[1:] if answer.text != best.text)]
        return found

    def _read(self, source: Source, outputs: dict[str, np.ndarray], row: int) -> Iterator[Rewrite]:
        # A rewrite without words is none.
        usable = outputs["finished"][row] & (outputs["positions"][row, ..., 0] != NO_TOKEN)
        if self._beam_size == 1:
            if usable:
                yield self.features.rewrite(
                    source, outputs["positions"][row], outputs["log_prob"][row], outputs["history_gate"][row]
                )
            return
        for beam in np.flatnonzero(usable):
            yield self.features.rewrite(source, outputs["positions"][row, beam], outputs["log_prob"][row, beam])


def _ends(source: SourceArrays) -> Any:
    """The position of EOS in each row: (B,) int32."""
    return ops.cast(ops.argmax(ops.cast(source["word_ids"] == EOS, "int32"), axis=-1), "int32")


def _repeat_rows(memory: Memory, times: int) -> Memory:
    repeated: Memory = keras.tree.map_structure(
        lambda tensor: None if tensor is None else ops.repeat(tensor, times, axis=0), memory
    )
    return repeated


def _to_numpy(outputs: Any) -> Any:
    return keras.tree.map_structure(ops.convert_to_numpy, outputs)
