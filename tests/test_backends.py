"""The same weights on two Keras backends: the one of this process and the other in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
# Between them they have all the parts of the family. With these seeds rows end at different steps: the loop runs past
# the end of some.
MODELS: dict[str, dict[str, Any]] = {
    "T-Ptr-lambda": {"seed": 4},
    "L-Ptr-Gen": {"seed": 78, "architecture": "lstm", "output": "ptr_gen"},
}
Outputs = dict[str, np.ndarray]

# The other backend is all there is: JAX must not need TensorFlow, nor TensorFlow JAX.
PROGRAM = f"""
import sys
sys.modules["{HERE}"] = None
import keras, numpy, test_backends
assert keras.backend.backend() == "{OTHER}"
for name in test_backends.MODELS:
    numpy.savez(f"{{sys.argv[1]}}/{{name}}.npz", **test_backends.everything(f"{{sys.argv[1]}}/{{name}}"))
"""


def everything(folder: str) -> Outputs:
    """The log-probabilities of the references, their loss, and the greedy rewrites of the model in this folder."""

    def run(model: RewriterModel, source: dict[str, np.ndarray]) -> Outputs:
        log_probs = model.decode(model.encode(source), tiny.targets())
        loss = CopyLoss()(tiny.targets(), log_probs)
        return {"log_probs": log_probs, "loss": loss, **rewrite_greedily(model, source)}

    found: Outputs = compile_function(load_model(Path(folder)), run)(tiny.arrays())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models, and beside each what it gives on the other backend."""
    if importlib.util.find_spec(OTHER) is None:
        pytest.skip(f"{OTHER} is not installed: nothing to compare with {HERE}")
    directory = tmp_path_factory.mktemp("backends")
    for name, changes in MODELS.items():
        model = tiny.model(num_encoder_layers=1, num_decoder_layers=1, **changes)
        save_artefact(directory / name, model, tiny.FEATURES, tiny.VOCABULARY)
    roots = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    environment = {**os.environ, "KERAS_BACKEND": OTHER, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(roots)}
    command = [sys.executable, "-c", PROGRAM, str(directory)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return directory


@pytest.fixture(scope="module", params=MODELS)
def outputs(folder: Path, request: pytest.FixtureRequest) -> tuple[Outputs, Outputs]:
    with np.load(folder / f"{request.param}.npz") as stored:
        return everything(str(folder / request.param)), {name: stored[name] for name in stored.files}


def test_the_same_weights_give_the_same_log_probabilities(outputs: tuple[Outputs, Outputs]) -> None:
    # At each target's own steps: after its end nobody reads.
    here, other = (output["log_probs"][tiny.targets() >= 0] for output in outputs)
    likely = here > -15  # near the floor a log magnifies rounding
    np.testing.assert_allclose(other[likely], here[likely], atol=1e-4)
    np.testing.assert_allclose(np.exp(other), np.exp(here), atol=1e-6)
    assert outputs[1]["loss"] == pytest.approx(outputs[0]["loss"], abs=1e-4)


def test_the_same_weights_give_the_same_rewrites(outputs: tuple[Outputs, Outputs]) -> None:
    here, other = outputs
    lengths = (here["positions"] >= 0).sum(axis=1)
    assert lengths.max() > lengths.min() > 0
    np.testing.assert_array_equal(other["positions"], here["positions"])
    np.testing.assert_array_equal(other["finished"], here["finished"])
    np.testing.assert_allclose(other["log_prob"], here["log_prob"], rtol=1e-5)
    np.testing.assert_allclose(other["history_gate"], here["history_gate"], atol=1e-4)
