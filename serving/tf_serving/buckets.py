"""The few sizes that requests are padded to, read from the exported model, and TF Serving's batching file for them.

TF Serving makes a batch of whatever waits for one signature. If the lengths in it differ, it fails them all
(``pad_variable_length_inputs`` would pad with the first token instead of PAD). So there are two ways that work:

* The front makes batches of one length, and the server runs without ``--enable_batching``. Any exported model will do.
* The server makes them (from all fronts together), and each length has a signature of its own, hence its own queue:
  ``rewriter.length_signatures`` adds them to an exported model.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rewriter.features import Features
from rewriter.length_signatures import length_signature
from serving.artefact import Manifest
from serving.backend import BrokenAnswer
from serving.signatures import BEAM, GREEDY

SIGNATURES = (GREEDY, BEAM)


@dataclass(frozen=True)
class Buckets:
    """Both ascending. ``lengths``: source positions; ``batch_sizes``: sources."""

    lengths: tuple[int, ...]
    batch_sizes: tuple[int, ...]

    @classmethod
    def of(cls, manifest: Manifest, features: Features) -> "Buckets":
        """Raises ValueError if the longest source that the features make fits into none."""
        lengths, sizes = tuple(sorted(manifest.length_buckets)), tuple(sorted(manifest.batch_sizes))
        longest = len(features.config.function_words) + features.config.max_source_tokens
        if not lengths or lengths[-1] < longest:
            raise ValueError(f"expected length_buckets up to {longest}, found {list(lengths)}")
        if not sizes or sizes[0] < 1:
            raise ValueError(f"expected batch_sizes of 1 or more, found {list(sizes)}")
        return cls(lengths, sizes)

    def length_for(self, positions: int) -> int:
        return _next(self.lengths, positions, "positions")

    def batch_size_for(self, sources: int) -> int:
        return _next(self.batch_sizes, sources, "sources")

    def signature_names(self, batching: str) -> list[tuple[str, str]]:
        """Pairs of a signature and the name it is asked by: itself, or one name for each length."""
        if batching == "front":
            return [(signature, signature) for signature in SIGNATURES]
        return [(signature, length_signature(signature, length)) for signature in SIGNATURES for length in self.lengths]


def pad_rows(arrays: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """Repeats the last source until there are so many: an empty one would be a case that no model was trained on."""
    return {
        name: np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])
        for name, array in arrays.items()
    }


def batching_parameters(buckets: Buckets, *, num_batch_threads: int = 4, batch_timeout_micros: int = 1000) -> str:
    """The text of ``--batching_parameters_file``, for a server that makes the batches itself."""
    lines = [
        f"max_batch_size {{ value: {buckets.batch_sizes[-1]} }}",
        f"batch_timeout_micros {{ value: {batch_timeout_micros} }}",
        f"num_batch_threads {{ value: {num_batch_threads} }}",
        # A turn that would wait longer than this is better passed through.
        f"max_enqueued_batches {{ value: {2 * num_batch_threads} }}",
        *(f"allowed_batch_sizes: {size}" for size in buckets.batch_sizes),
        "pad_variable_length_inputs: false",
    ]
    return "\n".join(lines) + "\n"


def _next(sizes: tuple[int, ...], needed: int, unit: str) -> int:
    index = bisect_left(sizes, needed)
    if index == len(sizes):
        raise BrokenAnswer(f"expected at most {sizes[-1]} {unit}, found {needed}")
    return sizes[index]
