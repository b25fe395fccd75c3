"""One loaded version: a session on the graph of the SavedModel, as TF Serving runs it."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session

from .errors import by_number

_V1 = tf.compat.v1


class Servable:
    """Raises tf.errors.OpError or OSError if the folder holds no SavedModel. As a context, it is in use."""

    def __init__(self, folder: Path) -> None:
        self._session = _V1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            self._meta_graph = _V1.saved_model.load(self._session, [tf.saved_model.SERVING], str(folder))
        self._users = 0
        self._idle = threading.Condition()

    @property
    def signatures(self) -> Mapping[str, Any]:
        """SignatureDefs by name."""
        signatures: Mapping[str, Any] = self._meta_graph.signature_def
        return signatures

    def run(
        self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str], timeout_seconds: float | None
    ) -> list[np.ndarray]:
        """Feeds and fetches tensors by their names in the graph; raises StatusError."""
        # Not Session.run: that would check and convert what it is fed, with words of its own.
        graph = self._session.graph
        feeds = {graph.get_tensor_by_name(name)._as_tf_output(): value for name, value in inputs.items()}
        fetches = [graph.get_tensor_by_name(name)._as_tf_output() for name in outputs]
        options = config_pb2.RunOptions(timeout_in_ms=_milliseconds(timeout_seconds))
        serialized = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        try:
            found: list[np.ndarray] = pywrap_tf_session.TF_SessionRun_wrapper(
                self._session._session, serialized, feeds, fetches, [], None
            )
        except tf.errors.OpError as error:
            raise by_number(error.error_code, error.message) from None
        finally:
            pywrap_tf_session.TF_DeleteBuffer(serialized)
        return found

    def __enter__(self) -> "Servable":
        with self._idle:
            self._users += 1
        return self

    def __exit__(self, *error: object) -> None:
        with self._idle:
            self._users -= 1
            self._idle.notify_all()

    def unload(self) -> None:
        """Waits for the requests that it answers."""
        with self._idle:
            self._idle.wait_for(lambda: self._users == 0)
        self._session.close()


def _milliseconds(seconds: float | None) -> int:
    """0 is no limit; what is left of an expired deadline is 1."""
    return 0 if seconds is None else max(1, int(seconds * 1000))
