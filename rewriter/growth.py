"""A larger model from a smaller one that is at first the same function: a deeper encoder, more words.

Words are learnt faster with few layers, rewriting better with more. The further layers are copies of those that are
there, as in progressive stacking (Gong et al. 2019, "Efficient training of BERT by progressively stacking"), but with
outputs of zero: beside the residual connections nothing changes (Chen et al. 2016, "Net2Net", section 2.3), and nothing
is unlearnt. New words and characters begin as what they were so far: unknown.
"""

import re
from collections.abc import Mapping

import numpy as np

from rewriter.vocabulary import UNK

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


def with_more_words(weights: Mapping[str, np.ndarray], words: int, characters: int) -> dict[str, np.ndarray]:
    """The weights, by name, of a model that knows so many words and characters, from one that knows the first of them.

    Where that one knows more, its weights stay as they are.
    """
    grown = dict(weights)
    for name, size in (("word_embedding/embeddings", words), ("character_embedding/embeddings", characters)):
        known = weights.get(name)
        if known is None:
            continue
        unknown = np.repeat(known[UNK : UNK + 1], max(0, size - len(known)), axis=0)
        grown[name] = np.concatenate([known, unknown])
    return grown
