"""Who runs the model, by the settings, behind everything that guards it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from serving.artefact import Manifest, load_features, load_manifest, newest_version
from serving.backend import ServedModel
from serving.batch_metrics import BatchMetrics
from serving.config import ServerSettings
from serving.embedded import EmbeddedBackend
from serving.metrics import Metrics
from serving.resilience.cache import PredictionCache
from serving.resilience.member import Member, Replica
from serving.resilience.pool import Pool
from serving.resilience.single import SingleReplica
from serving.resilience_metrics import ResilienceMetrics
from serving.tf_serving.address import AddressBackend
from serving.tf_serving.backend import address_backends


class GuardedModel:
    """``pool`` is the backend; ``choose`` is for ``Rewriting``."""

    def __init__(
        self,
        pool: Pool,
        cache: PredictionCache | None = None,
        embedded: EmbeddedBackend | None = None,
        try_canary_on: Callable[[float], None] = lambda percent: None,
    ) -> None:
        self.pool = pool
        self.try_canary_on = try_canary_on
        self._cache = cache
        self._embedded = embedded

    def choose(self, conversation_id: str) -> ServedModel:
        served = self.pool.serving(conversation_id)
        return self._cache.around(served) if self._cache else served

    def usable(self) -> bool:
        return self.pool.usable

    def seconds_stuck(self) -> float:
        """How long a model in this process has been at one batch."""
        return self._embedded.busy_seconds if self._embedded else 0.0


def guarded_model(settings: ServerSettings, metrics: Metrics) -> GuardedModel:
    """Call it inside a running event loop. Raises ValueError or OSError if ``model_dir`` has no model to begin with."""
    return _far_model(settings, metrics) if settings.backend == "tf_serving" else _near_model(settings, metrics)


def _far_model(settings: ServerSettings, metrics: Metrics) -> GuardedModel:
    addresses = _address_backends(settings, metrics)
    pool, cache = _guarded(addresses, settings, metrics)

    def try_canary_on(percent: float) -> None:
        for address in addresses:
            address.try_canary_on(percent)

    return GuardedModel(pool, cache, try_canary_on=try_canary_on)


def _near_model(settings: ServerSettings, metrics: Metrics) -> GuardedModel:
    # Looked up once: a newer one may arrive at any moment.
    version_dir = newest_version(settings.model_dir)
    features, manifest = load_features(version_dir), load_manifest(version_dir)
    embedded = _embedded(version_dir, manifest, settings, metrics)
    replica = SingleReplica("embedded", embedded, features, manifest.model)
    pool, cache = _guarded([replica], settings, metrics)
    return GuardedModel(pool, cache, embedded)


def _guarded(
    replicas: Sequence[Replica], settings: ServerSettings, metrics: Metrics
) -> tuple[Pool, PredictionCache | None]:
    resilience = settings.resilience
    observer = ResilienceMetrics(metrics.registry, tuple(replica.address for replica in replicas))
    pool = Pool([Member(replica, resilience, observer) for replica in replicas], resilience, observer)
    cache = PredictionCache(resilience.cache, observer) if resilience.cache.max_entries else None
    return pool, cache


def _embedded(version_dir: Path, manifest: Manifest, settings: ServerSettings, metrics: Metrics) -> EmbeddedBackend:
    return EmbeddedBackend(
        version_dir,
        manifest.fingerprint,
        max_batch_size=settings.max_batch_size,
        max_queue_size=settings.max_queue_size,
        observer=BatchMetrics(metrics, settings.max_batch_size),
        close_seconds=settings.resilience.close_seconds,
    )


def _address_backends(settings: ServerSettings, metrics: Metrics) -> list[AddressBackend]:
    return address_backends(
        settings.tf_serving, settings.model_dir, observe=lambda max_batch_size: BatchMetrics(metrics, max_batch_size)
    )
