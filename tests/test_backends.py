"""One folder of weights, two Keras backends: the one of this process and the other in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tiny

from rewriter.artefact import load_model, save_artefact
from rewriter.inference import compile_function, rewrite_greedily
from rewriter.model import RewriterModel
from rewriter.training import CopyLoss

HERE = keras.backend.backend()
OTHER = {"tensorflow": "jax", "jax": "tensorflow"}[HERE]

# The other backend is all there is: JAX must not need TensorFlow, nor TensorFlow JAX.
PROGRAM = f"""
import sys
sys.modules["{HERE}"] = None
import keras, numpy, test_backends
assert keras.backend.backend() == "{OTHER}"
numpy.savez(sys.argv[2], **test_backends.everything(sys.argv[1]))
"""


def everything(folder: str) -> dict[str, np.ndarray]:
    """The log-probabilities of the references, their loss, and the greedy rewrites of the model in this folder."""

    def run(model: RewriterModel, source: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        log_probs = model.decode(model.encode(source), tiny.targets())
        loss = CopyLoss(label_smoothing=0.1)(tiny.targets(), log_probs)
        return {"log_probs": log_probs, "loss": loss, **rewrite_greedily(model, source)}

    found: dict[str, np.ndarray] = compile_function(load_model(Path(folder)), run)(tiny.arrays())
    return found


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    if importlib.util.find_spec(OTHER) is None:
        pytest.skip(f"{OTHER} is not installed: nothing to compare with {HERE}")
    directory = tmp_path_factory.mktemp("backends")
    # With this seed rows end at different steps: the loop runs past the end of some.
    model = tiny.model(seed=4, num_encoder_layers=1, num_decoder_layers=1)
    save_artefact(directory / "model", model, tiny.FEATURES, tiny.VOCABULARY)
    roots = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    environment = {**os.environ, "KERAS_BACKEND": OTHER, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(roots)}
    command = [sys.executable, "-c", PROGRAM, str(directory / "model"), str(directory / "other.npz")]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-3000:]
    with np.load(directory / "other.npz") as stored:
        return everything(str(directory / "model")), {name: stored[name] for name in stored.files}


def test_the_same_weights_give_the_same_log_probabilities(
    outputs: tuple[dict[str, np.ndarray], dict[str, np.ndarray]],
) -> None:
    # At each target's own steps: after its end nobody reads.
    here, other = (output["log_probs"][tiny.targets() >= 0] for output in outputs)
    likely = here > -15  # near the floor a log magnifies rounding
    np.testing.assert_allclose(other[likely], here[likely], atol=1e-4)
    np.testing.assert_allclose(np.exp(other), np.exp(here), atol=1e-6)
    assert outputs[1]["loss"] == pytest.approx(outputs[0]["loss"], abs=1e-4)


def test_the_same_weights_give_the_same_rewrites(outputs: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]) -> None:
    here, other = outputs
    lengths = (here["positions"] >= 0).sum(axis=1)
    assert lengths.max() > lengths.min() > 0
    np.testing.assert_array_equal(other["positions"], here["positions"])
    np.testing.assert_array_equal(other["finished"], here["finished"])
    np.testing.assert_allclose(other["log_prob"], here["log_prob"], rtol=1e-5)
    np.testing.assert_allclose(other["history_gate"], here["history_gate"], atol=1e-4)
