"""The backends of the settings, one for each address; ``serving.resilience.pool`` makes one of them all."""

from pathlib import Path

from serving.batching import NoObserver
from serving.tf_serving.address import AddressBackend
from serving.tf_serving.batches import Observe
from serving.tf_serving.catalogue import Catalogue
from serving.tf_serving.endpoint import Endpoint
from serving.tf_serving.settings import TFServingSettings


def address_backends(
    settings: TFServingSettings,
    model_dir: Path,
    *,
    observe: Observe = lambda max_batch_size: NoObserver(),
) -> list[AddressBackend]:
    """One for each address. Call it inside a running event loop.

    ``observe`` makes the observer of a queue from its largest batch. Raises ValueError if ``model_dir`` has no version
    to start with.
    """
    catalogue = Catalogue(model_dir)
    initial = catalogue.initial(settings.version)
    return [
        AddressBackend(Endpoint(address, settings), catalogue, initial, settings, observe)
        for address in settings.addresses
    ]
