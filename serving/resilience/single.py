"""A backend without an address, such as the model in this process, as one that has one."""

from collections.abc import Sequence

from rewriter.features import Features, Source
from serving.answer import Model
from serving.backend import Backend, Prediction, ServedModel


class SingleReplica:
    """A ``member.Replica``, ready once its backend has started; ``address`` is for metrics and the log."""

    def __init__(self, address: str, backend: Backend, features: Features, model: Model) -> None:
        self.address = address
        self.ready = False
        self._backend = backend
        self._served = ServedModel(features, model, backend.predict)

    async def start(self) -> None:
        await self._backend.start()
        self.ready = True

    def serving(self, conversation_id: str) -> ServedModel:
        return self._served

    async def predict(self, sources: Sequence[Source], *, beam: bool, timeout_seconds: float) -> list[Prediction]:
        return await self._backend.predict(sources, beam=beam, timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        await self._backend.close()
