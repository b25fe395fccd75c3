"""Keeps an eye on one address: is it up, which versions does it serve, do they fit. Requests wait for it, not do it."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from rewriter.features import collate
from serving.backend import PROBE, BackendError, BackendUnavailable, BrokenAnswer
from serving.logs import stack_of
from serving.pb import tf_serving_pb2 as pb
from serving.signatures import BEAM, read_predictions
from serving.tf_serving.catalogue import Catalogue, Version
from serving.tf_serving.endpoint import Endpoint, by_number
from serving.tf_serving.fitting import Misfit, check_signatures
from serving.tf_serving.routes import Route
from serving.tf_serving.settings import TFServingSettings
from serving.tf_serving.tensors import to_arrays

_LOGGER = logging.getLogger(__name__)

# Versions come one after the other; this many are kept for answers that are still on their way.
_MAX_VERSIONS = 8


class Watcher:
    """Looks every ``poll_seconds``, and at once when asked to. Keeps the routes up to date.

    A name that did not exist is found later than that: gRPC looks it up again after up to two minutes.
    """

    def __init__(
        self, endpoint: Endpoint, catalogue: Catalogue, routes: Sequence[Route], settings: TFServingSettings
    ) -> None:
        self.ready = False
        self._endpoint = endpoint
        self._catalogue = catalogue
        self._routes = routes
        self._settings = settings
        self._versions: OrderedDict[int, Version] = OrderedDict()
        self._wake = asyncio.Event()
        self._looks_begun = 0
        self._looks_ended = 0
        self._looked = asyncio.Condition()
        self._said: dict[str, tuple[str, dict[str, str]]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def known(self, number: int) -> Version | None:
        """A version that was found to fit."""
        return self._versions.get(number)

    async def look(self, *, at_once: bool = True) -> None:
        """Returns once everything has been looked at anew, in a look that begins after this call.

        Whoever no longer waits for it does not end it.
        """
        target = self._looks_begun + 1
        if at_once:
            self._wake.set()
        async with self._looked:
            await self._looked.wait_for(lambda: self._looks_ended >= target)

    async def _watch(self) -> None:
        while True:
            self._wake.clear()
            self._looks_begun += 1
            try:
                await self._look()
            except Exception as error:  # the watch must go on
                self._say("watch", f"unexpected {type(error).__name__}", logging.ERROR, stack=stack_of(error))
            async with self._looked:
                self._looks_ended = self._looks_begun
                self._looked.notify_all()
            try:
                async with asyncio.timeout(self._settings.poll_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        try:
            available = await self._endpoint.available_versions(self._settings.poll_timeout_seconds)
        except BackendError as error:
            # Routes keep their versions: the server may be back, with the same ones, before the next look.
            self.ready = False
            self._say("server", str(error), logging.WARNING)
            for route in self._routes:
                if route.version is None:
                    route.trouble = error
            return
        self._say("server", f"serves the versions {sorted(available)}")
        for route in self._routes:
            await self._look_at(route, available)
        self.ready = self._routes[0].version is not None

    async def _look_at(self, route: Route, available: set[int]) -> None:
        try:
            number, signatures = await self._endpoint.signatures(route.wanted, self._settings.poll_timeout_seconds)
            known = self._versions.get(number)
            if known is None or not await asyncio.to_thread(self._catalogue.is_as_it_was, known):
                known = await self._admit(number, signatures)
            route.take(known)
            self._say(route.name, f"version {number} is {route.name}")
        except BackendError as error:
            self._say(route.name, f"no {route.name} version: {error}", logging.WARNING)
            route.lose(error, available)

    async def _admit(self, number: int, signatures: Mapping[str, pb.SignatureDef]) -> Version:
        """Raises Misfit unless the version reads and answers as the one on shared storage does."""
        what = f"{self._endpoint.address}: {self._settings.model_name} version {number}"
        self._versions.pop(number, None)
        try:
            version = await asyncio.to_thread(self._catalogue.load, number)
            names = version.buckets.signature_names(self._settings.batching)
            check_signatures(signatures, names, version.features.config.characters_per_token)
            await self._probe(version)
        except (ValueError, Misfit, BrokenAnswer) as error:
            raise Misfit(f"{what}: {error}") from None
        self._versions[number] = version
        while len(self._versions) > _MAX_VERSIONS:
            self._versions.popitem(last=False)
        return version

    async def _probe(self, version: Version) -> None:
        """Has the version answer once by each signature: only an answer shows the fingerprint it was exported with."""
        source = version.features.encode(PROBE)
        length = version.buckets.length_for(len(source))
        for signature, name in version.buckets.signature_names(self._settings.batching):
            if name.endswith(f"_{length}") or name == signature:
                response = await self._endpoint.predict(
                    by_number(version.number), name, collate([source], length), self._settings.probe_timeout_seconds
                )
                read_predictions(
                    to_arrays(response.outputs),
                    beam=signature == BEAM,
                    batch_size=1,
                    fingerprint=version.manifest.fingerprint,
                )

    def _say(self, subject: str, what: str, level: int = logging.INFO, **facts: str) -> None:
        """Once for each change, or a server that is down would fill the log."""
        if self._said.get(subject) != (what, facts):
            self._said[subject] = what, facts
            _LOGGER.log(level, "%s: %s", self._endpoint.address, what, extra={"facts": facts})


async def wait_until_ready(watcher: Watcher, route: Route) -> None:
    """Raises BackendUnavailable once it is clear that waiting will not help."""
    while True:
        await watcher.look(at_once=False)
        if route.version is not None:
            return
        if isinstance(route.trouble, Misfit):
            raise BackendUnavailable(str(route.trouble))
