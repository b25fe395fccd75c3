"""A deeper encoder from a shallower one: words are learnt faster with few layers, rewriting better with more.

The further layers are copies of those that are there, as in progressive stacking (Gong et al. 2019, "Efficient training
of BERT by progressively stacking"), but with outputs of zero: beside the residual connections the deeper model is at
first the same function as the shallower one (Chen et al. 2016, "Net2Net", section 2.3), and nothing is unlearnt.
"""

import re
from collections.abc import Mapping

import numpy as np

_LAYER = re.compile(r"encoder_(\d+)/")
_OUTPUTS = ("attention/output/", "feed_forward/contract/")


def deepened(weights: Mapping[str, np.ndarray], layers: int) -> dict[str, np.ndarray]:
    """The weights of a Transformer encoder of so many layers, by name, from those of one of as many or fewer.

    Raises ValueError if there are more layers already, or if they are not a Transformer's.
    """
    depth = 1 + max((int(found[1]) for name in weights if (found := _LAYER.match(name))), default=-1)
    if depth > layers:
        raise ValueError(f"expected {layers} encoder layers or fewer to begin with, found {depth}")
    if depth < layers and not all(f"encoder_0/{output}kernel" in weights for output in _OUTPUTS):
        raise ValueError("expected the layers of a Transformer to deepen, found others")
    added = {}
    for index in range(depth, layers):
        for name, weight in weights.items():
            if name.startswith(f"encoder_{index % depth}/"):
                part = name.partition("/")[2]
                added[f"encoder_{index}/{part}"] = np.zeros_like(weight) if part.startswith(_OUTPUTS) else weight
    return {**weights, **added}
