"""The signatures of an exported model: how sources go in, and how its output arrays become predictions.

B sources of a batch, K hypotheses per source, T target positions.
"""

from collections.abc import Mapping

import numpy as np

from rewriter.features import ARRAY_NAMES
from serving.backend import BrokenAnswer, Hypothesis, Prediction

GREEDY = "serving_default"
BEAM = "beam"

INPUTS = frozenset(ARRAY_NAMES)
OUTPUTS = {
    GREEDY: frozenset({"positions", "log_prob", "finished", "fingerprint"}),
    BEAM: frozenset({"positions", "log_prob", "score", "finished", "fingerprint"}),
}


def read_predictions(
    outputs: Mapping[str, np.ndarray], *, beam: bool, batch_size: int, fingerprint: int
) -> list[Prediction]:
    """Raises BrokenAnswer if the arrays are not what the model with this fingerprint answers to so many sources."""
    missing = OUTPUTS[BEAM if beam else GREEDY] - set(outputs)
    if missing:
        raise BrokenAnswer(
            f"expected the outputs {sorted(OUTPUTS[BEAM if beam else GREEDY])}, missing {sorted(missing)}"
        )
    found = set(outputs["fingerprint"].ravel().tolist())
    if found != {fingerprint}:
        raise BrokenAnswer(f"expected an answer of the model {fingerprint}, found {sorted(found)}")
    arrays = dict(outputs) if beam else _with_one_hypothesis(outputs)
    rows = arrays["log_prob"].shape
    if len(rows) != 2 or rows[0] != batch_size or rows[1] == 0:
        raise BrokenAnswer(f"expected log-probabilities of {batch_size} sources, found the shape {rows}")
    for name in ("positions", "score", "finished"):
        if arrays[name].shape[:2] != rows or arrays[name].ndim != (3 if name == "positions" else 2):
            raise BrokenAnswer(f"expected {name} for {rows} hypotheses, found the shape {arrays[name].shape}")
    return [Prediction(_hypotheses(arrays, row)) for row in range(batch_size)]


def _with_one_hypothesis(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gives greedy outputs the axis of hypotheses that beam outputs have; one hypothesis is its own best score."""
    names = OUTPUTS[GREEDY] - {"fingerprint"}
    arrays = {name: outputs[name][:, np.newaxis] for name in names if outputs[name].ndim}
    return {**outputs, **arrays, "score": arrays.get("log_prob", outputs["log_prob"])}


def _hypotheses(arrays: Mapping[str, np.ndarray], row: int) -> tuple[Hypothesis, ...]:
    names = ("positions", "log_prob", "score", "finished")
    columns = zip(*(arrays[name][row].tolist() for name in names), strict=True)
    return tuple(
        Hypothesis(tuple(positions), log_prob, score, finished) for positions, log_prob, score, finished in columns
    )
