"""A trained model as a folder: config.json, features.json, words.txt, characters.txt, weights.npz (float16)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewriter.config import FeaturesConfig, ModelConfig
from rewriter.growth import deepened, doubled, with_more_words
from rewriter.vocabulary import Vocabulary

if TYPE_CHECKING:
    from rewriter.model import RewriterModel

MODEL_FILE = "config.json"
FEATURES_FILE = "features.json"
WEIGHTS_FILE = "weights.npz"


def save_artefact(directory: Path, model: "RewriterModel", features: FeaturesConfig, vocabulary: Vocabulary) -> None:
    """Writes the whole folder, weights as float16."""
    directory.mkdir(parents=True, exist_ok=True)
    model.config.save(directory / MODEL_FILE)
    features.save(directory / FEATURES_FILE)
    vocabulary.save(directory)
    save_weights(directory / WEIGHTS_FILE, model)


def average_artefacts(directories: Sequence[Path], output: Path) -> None:
    """Writes the model whose weights are the means of those of several: of one origin, or it knows nothing.

    A uniform soup (Wortsman et al. 2022, "Model soups", section 2). Raises ValueError if their configurations differ.
    """
    models = [load_model(directory) for directory in directories]
    for directory, model in zip(directories, models, strict=True):
        if model.config != models[0].config:
            raise ValueError(f"{directory}: expected a model configured as in {directories[0]}, found another")
    for weight, *others in zip(*(model.trainable_variables for model in models), strict=True):
        weight.assign(sum((other.value for other in others), weight.value) / len(models))
    save_artefact(output, models[0], *load_features(directories[0]))


def load_features(directory: Path) -> tuple[FeaturesConfig, Vocabulary]:
    """Reads what is needed to make a model's arrays, without the model."""
    return FeaturesConfig.load(directory / FEATURES_FILE), Vocabulary.load(directory)


def preprocessing_fingerprint(features: FeaturesConfig, vocabulary: Vocabulary) -> int:
    """63 bits that change with the word lists and the features; every answer of the model repeats it."""
    described = features.model_dump_json(exclude={"calibration"}) + vocabulary.fingerprint
    return int.from_bytes(hashlib.sha256(described.encode()).digest()[:8], "big") >> 1


def file_fingerprint(path: Path) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_model(directory: Path) -> "RewriterModel":
    """Builds the model of a folder, with its weights; raises ValueError if they do not fit its configuration."""
    from rewriter.model import RewriterModel

    if not (directory / MODEL_FILE).is_file():
        raise ValueError(f"{directory}: expected a model (a folder with {MODEL_FILE}), found none")
    model = RewriterModel(ModelConfig.load(directory / MODEL_FILE), FeaturesConfig.load(directory / FEATURES_FILE))
    load_weights(directory / WEIGHTS_FILE, model)
    return model


def save_weights(path: Path, model: "RewriterModel") -> None:
    """Stores each weight under its path in the model; an old file stays until the new one is whole.

    The file is the same for every Keras backend.
    """
    from keras import ops

    arrays = {_name(w.path): ops.convert_to_numpy(w.value).astype(np.float16) for w in model.trainable_variables}
    partial = path.with_suffix(".partial.npz")
    np.savez_compressed(partial, allow_pickle=False, **arrays)
    partial.replace(path)


def load_weights(path: Path, model: "RewriterModel") -> None:
    """Raises ValueError naming the first weight that is missing or has another shape."""
    with np.load(path) as stored:
        _assign(dict(stored), path, model)


def begin_with(initial: Path, model: "RewriterModel") -> None:
    """Gives a model that is to be trained the weights of the folder ``initial``.

    That one's encoder may be shallower, its layers half as wide, and its vocabulary the first part of the model's.

    Raises ValueError naming the first weight that is missing or has another shape.
    """
    path = initial / WEIGHTS_FILE
    with np.load(path) as stored:
        weights = with_more_words(stored, model.config.num_words, model.config.num_characters)
    if 2 * len(weights.get("encoder_norm/gamma", ())) == model.config.hidden_dim:
        weights = doubled(weights)
    _assign(deepened(weights, model.config.num_encoder_layers), path, model)


def _assign(weights: dict[str, np.ndarray], path: Path, model: "RewriterModel") -> None:
    for weight in model.trainable_variables:
        name = _name(weight.path)
        found = weights.get(name)
        if found is None or found.shape != tuple(weight.shape):
            shape = "none" if found is None else found.shape
            raise ValueError(f"{path}: expected {name} of shape {tuple(weight.shape)}, found {shape}")
        weight.assign(found.astype(np.float32))


def _name(path: str) -> str:
    """The path below the model, whose own name Keras numbers."""
    return path.split("/", 1)[1]
