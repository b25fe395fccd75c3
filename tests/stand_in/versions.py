"""Which versions are loaded, and what labels mean (server_core.cc, aspired_versions_manager.cc)."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from .errors import failed_precondition, invalid_argument, not_found
from .servable import Servable

_LOGGER = logging.getLogger(__name__)


@dataclass
class Loaded:
    """A version that was seen since the start; ``error`` is why it could not be loaded."""

    state: int = ModelVersionStatus.START
    servable: Servable | None = None
    error: str = ""


@dataclass
class Model:
    """``config`` is a tensorflow.serving.ModelConfig."""

    config: Any
    versions: dict[int, Loaded] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)

    def available(self) -> list[int]:
        return sorted(number for number, each in self.versions.items() if each.state == ModelVersionStatus.AVAILABLE)


class Versions:
    """All models. ``poll`` brings what is loaded in line with what the folders hold."""

    def __init__(self, *, labels_may_wait: bool, load_seconds: float) -> None:
        self._labels_may_wait = labels_may_wait
        self._load_seconds = load_seconds
        self._models: dict[str, Model] = {}
        self._lock = threading.RLock()  # what is known
        self._changing = threading.Lock()  # one change at a time
        self._stopped = threading.Event()

    def reload(self, config: Any) -> None:
        """Replaces the set of models by that of a ModelServerConfig. Raises StatusError, and then changes nothing."""
        with self._changing:
            listed = {each.name: each for each in config.model_config_list.config}
            with self._lock:
                labels = {name: self._checked_labels(each) for name, each in listed.items()}
                for name, each in listed.items():
                    model = self._models.setdefault(name, Model(each))
                    model.config, model.labels = each, labels[name]
                gone = [name for name in self._models if name not in listed]
            for name in gone:
                self._unload_all_but(self._models[name], set())
                del self._models[name]
            self._poll()

    def poll(self) -> None:
        with self._changing:
            self._poll()

    def poll_every(self, seconds: float) -> None:
        """Until ``stop``."""
        while not self._stopped.wait(seconds):
            self.poll()

    def stop(self) -> None:
        self._stopped.set()

    def states(self, name: str, version: int | None) -> list[tuple[int, Loaded]]:
        """Raises StatusError if there are none (get_model_status_impl.cc)."""
        with self._lock:
            versions = self._models[name].versions if name in self._models else {}
            if version is not None:
                if version not in versions:
                    raise not_found(f"Could not find version {version} of model {name}")
                return [(version, versions[version])]
            if not versions:
                raise not_found(f"Could not find any versions of model {name}")
            return sorted(versions.items(), reverse=True)

    @contextmanager
    def servable(self, spec: Any) -> Iterator[tuple[int, Servable]]:
        """The version that a ModelSpec asks for, kept loaded meanwhile. Raises StatusError."""
        with self._lock:
            number, servable = self._find(spec)
            servable.__enter__()
        try:
            yield number, servable
        finally:
            servable.__exit__()

    def configured(self) -> Any:
        """The ModelConfigs in force."""
        with self._lock:
            return [model.config for model in self._models.values()]

    def _find(self, spec: Any) -> tuple[int, Servable]:
        if not spec.name:
            raise invalid_argument("ModelSpec has no name specified.")
        model = self._models.get(spec.name)
        choice = spec.WhichOneof("version_choice")
        if choice is None:
            available = model.available() if model else []
            if model is None or not available:
                raise not_found(f"Servable not found for request: Latest({spec.name})")
            number = available[-1]
        elif choice == "version":
            number = spec.version.value
        elif model is None or spec.version_label not in model.labels:
            raise invalid_argument(f"Unrecognized servable version label: {spec.version_label}")
        else:
            number = model.labels[spec.version_label]
        if model is None or number not in model.available():
            raise not_found(f"Servable not found for request: Specific({spec.name}, {number})")
        servable = model.versions[number].servable
        assert servable is not None
        return number, servable

    def _checked_labels(self, config: Any) -> dict[str, int]:
        model = self._models.get(config.name)
        for label, number in config.version_labels.items():
            new_label = model is None or model.labels.get(label, number) == number
            is_available = model is not None and number in model.available()
            if not is_available and not (self._labels_may_wait and new_label):
                raise failed_precondition(
                    f"Request to assign label to version {number} of model {config.name}, "
                    "which is not currently available for inference"
                )
        return dict(config.version_labels)

    def _poll(self) -> None:
        for model in list(self._models.values()):
            wanted = _wanted(model.config)
            for number in sorted(wanted - {n for n, each in model.versions.items() if each.servable or each.error}):
                self._load(model, number)
            # New versions first: there is always one that answers.
            self._unload_all_but(model, wanted)

    def _load(self, model: Model, number: int) -> None:
        loaded = Loaded(ModelVersionStatus.LOADING)
        with self._lock:
            model.versions[number] = loaded
        self._stopped.wait(self._load_seconds)
        try:
            servable = Servable(Path(model.config.base_path) / str(number))
        except Exception as error:
            _LOGGER.warning("%s version %d: %s", model.config.name, number, error)
            with self._lock:
                loaded.state, loaded.error = ModelVersionStatus.END, str(error)
            return
        with self._lock:
            loaded.servable, loaded.state = servable, ModelVersionStatus.AVAILABLE
        _LOGGER.info("loaded %s version %d", model.config.name, number)

    def _unload_all_but(self, model: Model, wanted: set[int]) -> None:
        for number in sorted(set(model.versions) - wanted):
            loaded = model.versions[number]
            with self._lock:
                servable, loaded.servable = loaded.servable, None
                loaded.state = ModelVersionStatus.UNLOADING if servable else ModelVersionStatus.END
            if servable:
                servable.unload()
                loaded.state = ModelVersionStatus.END
                _LOGGER.info("unloaded %s version %d", model.config.name, number)


def _wanted(config: Any) -> set[int]:
    """What the version policy of a ModelConfig says: the newest, if it says nothing."""
    folder = Path(config.base_path)
    found = sorted(int(path.name) for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())
    match config.model_version_policy.WhichOneof("policy_choice"):
        case "all":
            return set(found)
        case "specific":
            return set(found) & set(config.model_version_policy.specific.versions)
        case _:
            return set(found[-(config.model_version_policy.latest.num_versions or 1) :])
