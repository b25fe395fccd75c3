"""The versions on shared storage: how conversations become arrays for each of them.

TF Serving serves a model and no vocabulary, so the front reads it where TF Serving reads the model.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rewriter.features import Features
from serving.answer import Model
from serving.artefact import Manifest, load_features, load_manifest, manifest_path, newest_version
from serving.tf_serving.buckets import Buckets

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Version:
    """An exported version, without its weights."""

    number: int
    manifest: Manifest
    features: Features
    buckets: Buckets
    written: int  # when, in nanoseconds: a number may be used again

    @property
    def model(self) -> Model:
        return self.manifest.model

    def reads_as(self, other: "Version") -> bool:
        """True if arrays made for the one mean the same to the other."""
        return self.manifest.fingerprint == other.manifest.fingerprint


class Catalogue:
    """Reads ``model_dir``/<version>/assets.extra/rewriter; blocks while it does."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir

    def initial(self, number: int | None) -> Version:
        """What a front starts with: the version of this number, or the newest. Raises ValueError if there is none."""
        return self.load(number) if number else self.newest()

    def newest(self) -> Version:
        """The newest that can be read: one made for later fronts may lie beside the one that is served.

        Raises ValueError if there is none, or for the newest of all if none can be read.
        """
        newest = int(newest_version(self._model_dir).name)
        try:
            return self.load(newest)
        except ValueError:
            for number in self._older(newest):
                with suppress(ValueError):
                    version = self.load(number)
                    _LOGGER.warning("version %d cannot be read, version %d is the newest that can", newest, number)
                    return version
            raise

    def load(self, number: int) -> Version:
        """Raises ValueError naming the folder if there is no such version, or it cannot be used."""
        folder = self._model_dir / str(number)
        try:
            written = manifest_path(folder).stat().st_mtime_ns
            manifest, features = load_manifest(folder), load_features(folder)
        except FileNotFoundError as error:
            raise ValueError(
                f"{folder}: expected the assets of version {number}, found no {Path(error.filename).name}"
            ) from None
        except OSError as error:
            raise ValueError(f"{folder}: expected assets that can be read, found {error}") from None
        if manifest.version != str(number):
            raise ValueError(f"{folder}: expected the manifest of version {number}, found {manifest.version}")
        try:
            return Version(number, manifest, features, Buckets.of(manifest, features), written)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None

    def _older(self, newest: int) -> list[int]:
        """Newest first."""
        numbers = (int(path.name) for path in self._model_dir.iterdir() if path.is_dir() and path.name.isdecimal())
        return sorted((number for number in numbers if number < newest), reverse=True)

    def is_as_it_was(self, version: Version) -> bool:
        """False if the number belongs to another export now. Storage that is out of reach changes nothing."""
        try:
            return manifest_path(self._model_dir / str(version.number)).stat().st_mtime_ns == version.written
        except OSError:
            return True
