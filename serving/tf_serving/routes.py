"""Which version a conversation gets: the stable one, or the one on trial for a fixed share of the conversations."""

import hashlib

from serving.backend import BackendError, BackendUnavailable
from serving.pb import tf_serving_pb2 as pb
from serving.tf_serving.catalogue import Version
from serving.tf_serving.endpoint import by_label, by_number, newest
from serving.tf_serving.fitting import Misfit
from serving.tf_serving.settings import TFServingSettings
from serving.tf_serving.statuses import VersionGone

_PARTS = 10_000


class Route:
    """One of the two, at one address: what to ask for, and which version was last seen to answer.

    ``version`` is None while there is none that we can ask; then ``trouble`` says why.
    """

    def __init__(self, name: str, wanted: pb.ModelSpec, *, may_stay: bool) -> None:
        self.name = name
        self.wanted = wanted
        self.asked = wanted  # another one while the wanted version is refused and its predecessor still answers
        self.version: Version | None = None
        self.trouble: BackendError = BackendUnavailable("TF Serving has not been reached yet")
        self._may_stay = may_stay

    def take(self, version: Version) -> None:
        self.version, self.asked = version, self.wanted

    def lose(self, trouble: BackendError, available: set[int]) -> None:
        """The wanted version cannot be asked. Its predecessor can if it is still there, by its number."""
        if self.version is not None and self.version.number in available:
            if not isinstance(trouble, Misfit | VersionGone):
                return  # nothing is known to have changed
            if self._may_stay:
                self.asked = by_number(self.version.number)
                return
        self.version, self.asked, self.trouble = None, self.wanted, trouble


def stable_route(settings: TFServingSettings) -> Route:
    if settings.version is not None:
        wanted = by_number(settings.version)
    else:
        wanted = by_label(settings.version_label) if settings.version_label else newest()
    return Route("stable", wanted, may_stay=True)


def canary_route(settings: TFServingSettings) -> Route | None:
    """A trial without its version is over: it does not stay with another one."""
    return Route("canary", by_label(settings.canary_label), may_stay=False) if settings.canary_percent else None


def is_on_trial(conversation_id: str, percent: float) -> bool:
    """The same for all turns of a conversation, in every process; more percent only add conversations."""
    if not conversation_id:
        return False
    digest = hashlib.sha256(conversation_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % _PARTS < percent * _PARTS / 100
