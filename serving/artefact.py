"""A model on disk: which version to serve, what it calls itself, and the preprocessing it was trained with."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rewriter.config import FeaturesConfig, first_fault
from rewriter.features import Features
from rewriter.vocabulary import Vocabulary
from serving.answer import Model

# TensorFlow Serving hands out everything in assets.extra untouched, and never reads names it does not know.
_ASSETS = Path("assets.extra/rewriter")


class Manifest(BaseModel):
    """``model.json``. Every answer of the model repeats ``fingerprint``.

    This proves that both have the same features and vocabulary. It says nothing of the weights.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    version: str
    fingerprint: int
    vocabulary_fingerprint: str
    # What TF Serving is sent, see tf_serving.buckets; the embedded model takes any size.
    length_buckets: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()

    @property
    def model(self) -> Model:
        return Model(self.name, self.version, self.vocabulary_fingerprint)


def newest_version(model_dir: Path) -> Path:
    """Returns the version folder with the highest number; raises ValueError if there is none."""
    if not model_dir.is_dir():
        raise ValueError(f"{model_dir}: expected a folder of model versions, found none")
    versions = [path for path in model_dir.iterdir() if path.is_dir() and path.name.isdecimal()]
    if not versions:
        raise ValueError(f"{model_dir}: expected a numbered version folder, found none")
    return max(versions, key=lambda path: int(path.name))


def manifest_path(version_dir: Path) -> Path:
    return version_dir / _ASSETS / "model.json"


def load_manifest(version_dir: Path) -> Manifest:
    """Raises ValueError naming the file if it is no manifest."""
    path = manifest_path(version_dir)
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error)}") from None


def load_features(version_dir: Path) -> Features:
    """Raises ValueError naming what does not fit, as a vocabulary that is not the one that the manifest names."""
    assets = version_dir / _ASSETS
    vocabulary = Vocabulary.load(assets)
    expected = load_manifest(version_dir).vocabulary_fingerprint
    if vocabulary.fingerprint != expected:
        raise ValueError(f"{assets}: expected the vocabulary {expected}, found {vocabulary.fingerprint}")
    path = assets / "features.json"
    try:
        return Features(FeaturesConfig.load(path), vocabulary)
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error)}") from None
