from typing import Any

import keras
import numpy as np
import pytest
import tiny

from rewriter.layers import DecoderOutput
from rewriter.pointer import Pointer, token_log_probs
from rewriter.vocabulary import EOT

FLOOR = np.log(1e-9)


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _output(batch: int, steps: int, dim: int) -> DecoderOutput:
    return DecoderOutput(*(_random(batch, steps, dim, seed=s) for s in (1, 2, 3)))


def _pointer(dim: int, copy_state: bool = True) -> Pointer:
    pointer = Pointer(dim, copy_state)
    pointer.build(None)
    return pointer


def _constant_pointer(gate: float, bonuses: tuple[float, float, float]) -> Pointer:
    """Whatever the decoder says, the logit of a position is the first number of its memory and the gate is ``gate``."""
    pointer = _pointer(4)
    for query in (pointer.history_query, pointer.utterance_query):
        query.set_weights([np.zeros((4, 4)), np.array([2.0, 0, 0, 0])])  # 2 makes good for the scale of 4 ** -0.5
    for key in (pointer.history_key, pointer.utterance_key):
        key.set_weights([np.eye(4), np.zeros(4)])
    pointer.gate.set_weights([np.zeros((12, 1)), np.array([np.log(gate / (1 - gate))])])
    assert pointer.bonuses is not None
    pointer.bonuses.set_weights([np.zeros((4, 3)), np.log(bonuses)])
    return pointer


def _memory(odds: list[float]) -> np.ndarray:
    memory = _random(1, len(odds), 4)
    memory[0, :, 0] = np.log(odds)
    return memory


def _is(*places: int, size: int) -> np.ndarray:
    return np.isin(np.arange(size), places)[None, None]


NOWHERE: tuple[int, ...] = ()


def test_two_history_words_and_two_utterance_words_by_hand() -> None:
    """Words: A B | C B. History odds 1 : 3, utterance odds 1 : 1, lambda 3/4.

    A: 3/4 * 1/4 = 3/16;  C: 1/4 * 1/2 = 2/16;  B: 3/4 * 3/4 + 1/4 * 1/2 = 11/16, at both of its positions.
    """
    pointer = _constant_pointer(gate=0.75, bonuses=(1, 1, 1))
    keys = pointer.project(_memory([1, 3, 1, 1]), {})
    written = pointer(
        _output(1, 1, 4), keys, _is(0, 1, size=4), _is(2, 3, size=4), _is(*NOWHERE, size=4), _is(*NOWHERE, size=4)
    )
    np.testing.assert_allclose(np.array(written.copied)[0, 0], [3 / 16, 9 / 16, 1 / 8, 1 / 8], rtol=1e-5)
    np.testing.assert_allclose(np.array(written.history_gate), [[0.75]], rtol=1e-6)
    words = np.array([0, 1, 2, 1])
    log_probs = token_log_probs(written, (words[:, None] == words[None]).astype(np.float32)[None])
    np.testing.assert_allclose(np.exp(np.array(log_probs))[0, 0], [3 / 16, 11 / 16, 2 / 16, 11 / 16], rtol=1e-5)


def test_the_next_position_and_the_frontier_get_their_bonuses_by_hand() -> None:
    """All odds 1, bonuses: next in history x2, next in utterance x3, frontier x5. Positions 0 1 2 | 3 4.

    Next is 1: history 1 : 2 : 1. Frontier is 4: utterance 1 : 5. Next is 4 as well: utterance 1 : 15.
    """
    pointer = _constant_pointer(gate=0.5, bonuses=(2, 3, 5))
    keys = pointer.project(_memory([1, 1, 1, 1, 1]), {})

    def attention(is_next: np.ndarray, is_frontier: np.ndarray) -> np.ndarray:
        masks = _is(0, 1, 2, size=5), _is(3, 4, size=5)
        return np.array(pointer(_output(1, 1, 4), keys, *masks, is_next, is_frontier)[0])[0, 0]

    in_history = attention(_is(1, size=5), _is(4, size=5))
    np.testing.assert_allclose(2 * in_history, [1 / 4, 2 / 4, 1 / 4, 1 / 6, 5 / 6], rtol=1e-5)
    in_utterance = attention(_is(4, size=5), _is(4, size=5))
    np.testing.assert_allclose(2 * in_utterance, [1 / 3, 1 / 3, 1 / 3, 1 / 16, 15 / 16], rtol=1e-5)


def _twin(pointer: Pointer, output: DecoderOutput, memory: np.ndarray, masks: Any, marks: Any) -> tuple[Any, Any]:
    """The equations of the module in NumPy, position by position."""

    def dense(layer: keras.layers.Dense, x: np.ndarray) -> np.ndarray:
        kernel, bias = layer.get_weights()
        return x @ kernel + bias

    h = output.hidden
    gamma, beta = pointer.norm.get_weights()
    d = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5) * gamma + beta
    batch, steps, size = len(h), h.shape[1], memory.shape[1]
    attention, gates = np.zeros((batch, steps, size)), np.zeros((batch, steps))
    keys = dense(pointer.history_key, memory), dense(pointer.utterance_key, memory)
    for b in range(batch):
        for t in range(steps):
            queries = dense(pointer.history_query, d[b, t]), dense(pointer.utterance_query, d[b, t])
            bonus = dense(pointer.bonuses, d[b, t]) if pointer.bonuses is not None else np.zeros(3)
            a = []
            for side in (0, 1):
                weights = np.zeros(size)
                for i in np.flatnonzero(masks[side][b, 0]):
                    logit = queries[side] @ keys[side][b, i] / np.sqrt(h.shape[-1])
                    logit += bonus[side] * marks[0][b, t, i] + bonus[2] * marks[1][b, t, i] * side
                    weights[i] = np.exp(logit)
                a.append(weights / max(weights.sum(), 1e-30))
            parts = np.concatenate([d[b, t], output.history_context[b, t], output.utterance_context[b, t]])
            gates[b, t] = 1 / (1 + np.exp(-dense(pointer.gate, parts)[0])) if masks[0][b].any() else 0.0
            attention[b, t] = gates[b, t] * a[0] + (1 - gates[b, t]) * a[1]
    return attention, gates


@pytest.mark.parametrize("copy_state", [True, False])
def test_the_pointer_is_its_numpy_twin(copy_state: bool) -> None:
    pointer = _pointer(6, copy_state)
    for number, weight in enumerate(pointer.trainable_variables):
        weight.assign(_random(*weight.shape, seed=10 + number))
    rng = np.random.default_rng(4)
    output, memory = _output(3, 2, 6), _random(3, 5, 6, seed=9)
    history_mask = np.array([[[1, 1, 0, 0, 0]], [[1, 0, 1, 0, 0]], [[0, 0, 0, 0, 0]]], bool)
    utterance_mask = np.array([[[0, 0, 1, 1, 0]], [[0, 0, 0, 1, 1]], [[1, 1, 1, 0, 0]]], bool)
    marks = rng.random((2, 3, 2, 5)) < 0.4
    found = pointer(output, pointer.project(memory, {}), history_mask, utterance_mask, marks[0], marks[1])
    expected = _twin(pointer, output, memory, (history_mask, utterance_mask), marks)
    np.testing.assert_allclose(np.array(found[0]), expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.array(found[1]), expected[1], rtol=1e-4)
    np.testing.assert_allclose(np.array(found[0]).sum(-1), 1.0, rtol=1e-5)


def _decoded(model: Any, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (B, 4, S) after arbitrary prefixes, and the gates of the first step (B,)."""
    memory = model.encode(arrays)
    rows = len(arrays["word_ids"])
    positions = np.tile(np.array([[3, 4, 5, 3]], np.int32), (rows, 1))
    _, state = model.step(memory, model.start(memory, 2), np.full(rows, -1, np.int32), np.int32(0))
    return np.exp(np.array(model.decode(memory, positions))), np.array(state.history_gates)[:, 0]


def _sums(probabilities: np.ndarray, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Total over the words: each counts once, at its first position."""
    once = (arrays["copy_ids"] == np.arange(arrays["copy_ids"].shape[1])) & (arrays["turn_ids"] > 0)
    return np.where(once[:, None], probabilities, 0).sum(-1)


def test_the_copy_distribution_sums_to_one_and_merges_equal_words() -> None:
    arrays = tiny.arrays()
    probabilities, _ = _decoded(tiny.model(), arrays)
    np.testing.assert_allclose(_sums(probabilities, arrays), 1.0, atol=1e-5)
    source = tiny.sources()[0]
    said_twice = [i for i, surface in enumerate(source.surfaces) if surface == "喜欢"]
    assert len(said_twice) == 2
    np.testing.assert_array_equal(probabilities[0][:, said_twice[0]], probabilities[0][:, said_twice[1]])


def test_without_history_everything_comes_from_the_utterance() -> None:
    source = tiny.source("今天 冷吗 谁看过")
    arrays = tiny.arrays(source, length=len(source) + 3)
    model = tiny.model()
    model.pointer.gate.bias.assign([50.0])  # it would copy from the history if it could
    probabilities, gate = _decoded(model, arrays)
    assert np.isfinite(probabilities).all()
    in_utterance = arrays["turn_ids"][0] == 1
    np.testing.assert_allclose(probabilities[0][:, in_utterance].sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(probabilities[0][:, ~in_utterance], 1e-9, rtol=1e-4)
    assert gate[0] == 0.0


@pytest.mark.parametrize(("bias", "side"), [(50.0, "history"), (-50.0, "utterance")])
def test_lambda_near_one_copies_from_the_history(bias: float, side: str) -> None:
    source = tiny.sources()[1]
    model = tiny.model()
    kernel, _ = model.pointer.gate.get_weights()
    model.pointer.gate.set_weights([np.zeros_like(kernel), np.array([bias])])
    probabilities, gate = _decoded(model, tiny.arrays(source))
    turns = {
        word: {int(t) for s, t in zip(source.surfaces, source.turn_ids, strict=True) if s == word}
        for word in ("北京", "明天")
    }
    assert all(t > 1 for t in turns["北京"]) and turns["明天"] == {1}
    from_history = probabilities[0][:, source.surfaces.index("北京")]
    from_utterance = probabilities[0][:, source.surfaces.index("明天")]
    assert gate[0] == pytest.approx(1.0 if side == "history" else 0.0, abs=1e-6)
    copied, not_copied = (from_history, from_utterance) if side == "history" else (from_utterance, from_history)
    assert (copied > 1e-4).all() and (not_copied < 2e-9).all()


def test_the_end_of_a_turn_is_never_copied() -> None:
    arrays = tiny.arrays()
    model = tiny.model()
    ends_of_turns = arrays["word_ids"] == EOT
    assert ends_of_turns.sum() == 8
    memory = model.encode(arrays)
    log_probs = np.array(model.decode(memory, tiny.targets()))
    np.testing.assert_allclose(np.swapaxes(log_probs, 1, 2)[ends_of_turns], FLOOR, rtol=1e-4)
    stepped, _ = model.step(memory, model.start(memory, 3), np.full(4, -1, np.int32), np.int32(0))
    assert (np.array(stepped)[ends_of_turns] < -1e8).all()
    assert (np.array(stepped)[arrays["turn_ids"] == 0] < -1e8).all()
