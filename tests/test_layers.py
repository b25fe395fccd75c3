import keras
import numpy as np
import pytest
from keras import ops

from rewriter.layers import Attention, DecoderLayer, EncoderLayer, KeysValues, Sides, masked_softmax, sinusoid


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _scramble(layer: keras.layers.Layer) -> None:
    """Biases and norms start idle in Keras; here every weight counts."""
    for number, weight in enumerate(layer.trainable_variables):
        weight.assign(_random(*weight.shape, seed=number))


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_masked_softmax_is_the_softmax_of_the_open_positions() -> None:
    logits = _random(2, 5)
    found = np.array(masked_softmax(logits, np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1]], bool)))
    np.testing.assert_allclose(found[0, [0, 2, 3]], _softmax(logits[0, [0, 2, 3]]), rtol=1e-6)
    assert found[0, 1] == 0 and found[0, 4] == 0
    np.testing.assert_allclose(found[1], _softmax(logits[1]), rtol=1e-6)


def test_a_row_with_nothing_to_attend_to_gets_no_attention() -> None:
    found = np.array(masked_softmax(_random(2, 4), np.array([[0, 0, 0, 0], [0, 1, 0, 0]], bool)))
    np.testing.assert_array_equal(found, [[0, 0, 0, 0], [0, 1, 0, 0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_masked_softmax_computes_in_float32(dtype: str) -> None:
    logits = ops.cast(ops.convert_to_tensor([[1.0, 2.0, 60000.0]]), dtype)
    found = masked_softmax(logits, np.array([[True, True, False]]))
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(np.array(found), [[0.26894143, 0.73105854, 0.0]], rtol=1e-6)


def test_positions_are_embedded_as_in_the_transformer() -> None:
    # dim 4: the rates are 1 and 1/100.
    expected = [[np.sin(3), np.sin(0.03), np.cos(3), np.cos(0.03)], [0, 0, 1, 1]]
    np.testing.assert_allclose(np.array(sinusoid(np.array([3, 0]), 4)), expected, atol=1e-6)


@pytest.mark.parametrize("biased", [False, True])
def test_attention_is_that_of_its_numpy_twin(biased: bool) -> None:
    layer = Attention(hidden_dim=6, num_heads=2, dropout=0.0)
    layer.build(None)
    _scramble(layer)
    x, memory = _random(1, 2, 6), _random(1, 3, 6, seed=1)
    mask = np.array([[[True, True, False]]])
    q, kv, out = (
        [np.array(w) for w in part.get_weights()] for part in (layer.query, layer.key_value, layer.output_projection)
    )
    query, key, value = x[0] @ q[0] + q[1], *np.split(memory[0] @ kv[0] + kv[1], 2, axis=-1)
    bias = _random(1, 2, 2, 3, seed=2)
    heads = []
    for number, head in enumerate((slice(0, 3), slice(3, 6))):
        weights = _softmax(query[:, head] @ key[:2, head].T / np.sqrt(3) + biased * bias[0, number, :, :2])
        heads.append(weights @ value[:2, head])
    expected = np.concatenate(heads, axis=-1) @ out[0] + out[1]
    found = np.array(layer(x, layer.project(memory), mask, bias if biased else None))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_encoder_layer_does_not_read_masked_positions() -> None:
    layer = EncoderLayer(8, 12, 2, dropout=0.0)
    layer.build((None, None, 8))
    _scramble(layer)
    x = _random(1, 4, 8)
    mask = np.array([[[True, True, True, False]]])
    changed = x.copy()
    changed[:, 3] = _random(8, seed=20)
    before, after = np.array(layer(x, mask)), np.array(layer(changed, mask))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    changed[:, 2] = _random(8, seed=21)
    assert np.abs(np.array(layer(changed, mask))[:, :2] - before[:, :2]).max() > 1e-3


@pytest.fixture(scope="module")
def decoder_layer() -> DecoderLayer:
    layer = DecoderLayer(8, 12, 2, dropout=0.0)
    layer.build((None, None, 8))
    _scramble(layer)
    return layer


HISTORY = np.array([[[True, True, False, False]]])
UTTERANCE = np.array([[[False, False, True, True]]])


def _contexts(layer: DecoderLayer, memory: np.ndarray, history_mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = _random(1, 2, 8, seed=5)
    history, utterance = layer.history_attention.project(memory), layer.utterance_attention.project(memory)
    output = layer(x, Sides(history, utterance, history_mask, UTTERANCE))
    return np.array(output.history_context), np.array(output.utterance_context)


@pytest.mark.parametrize(
    ("changed_position", "which_changes"), [(0, "history"), (1, "history"), (2, "utterance"), (3, "utterance")]
)
def test_each_cross_attention_reads_its_own_side_alone(
    decoder_layer: DecoderLayer, changed_position: int, which_changes: str
) -> None:
    memory = _random(1, 4, 8, seed=6)
    changed = memory.copy()
    changed[:, changed_position] += 3
    before, after = _contexts(decoder_layer, memory, HISTORY), _contexts(decoder_layer, changed, HISTORY)
    moved = [not np.array_equal(b, a) for b, a in zip(before, after, strict=True)]
    assert moved == [which_changes == "history", which_changes == "utterance"]


def test_an_empty_history_gives_a_context_that_knows_nothing(decoder_layer: DecoderLayer) -> None:
    nothing = np.zeros((1, 1, 4), bool)
    history_context, _ = _contexts(decoder_layer, _random(1, 4, 8, seed=6), nothing)
    bias = np.array(decoder_layer.history_attention.output_projection.bias)
    np.testing.assert_allclose(history_context, np.broadcast_to(bias, (1, 2, 8)), atol=1e-6)


def test_dropout_falls_on_attention_in_training_alone() -> None:
    layer = Attention(hidden_dim=8, num_heads=2, dropout=0.5)
    layer.build(None)
    _scramble(layer)
    x = _random(1, 3, 8)
    memory: KeysValues = layer.project(_random(1, 4, 8, seed=1))
    mask = np.ones((1, 1, 4), bool)
    still = np.array(layer(x, memory, mask, training=False))
    np.testing.assert_array_equal(still, np.array(layer(x, memory, mask, training=False)))
    assert not np.allclose(still, np.array(layer(x, memory, mask, training=True)))
