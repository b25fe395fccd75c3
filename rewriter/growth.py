"""A larger model from a smaller one that is at first the same function: a deeper encoder, more words, twice the units.

Words are learnt faster with few layers, rewriting better with more. The further layers are copies of those that are
there, as in progressive stacking (Gong et al. 2019, "Efficient training of BERT by progressively stacking"), but with
outputs of zero: beside the residual connections nothing changes (Chen et al. 2016, "Net2Net", section 2.3), and nothing
is unlearnt. New words and characters begin as what they were so far: unknown. A wider model has every unit twice; what
read the one now reads both, unevenly, with weights that add up to the old ("Net2Net", section 2.2), so that they can
learn to differ.
"""

import re
from collections.abc import Mapping

import numpy as np

from rewriter.config import ModelConfig
from rewriter.vocabulary import UNK

_LAYER = re.compile(r"encoder_(\d+)/")
_OUTPUTS = ("attention/output/", "feed_forward/contract/")

# Weights of tokens, which stay as wide as they are.
_OF_TOKENS = re.compile(
    r"(word|character|turn|occurrence|start)_embedding/|compose_characters/|(source|prefix)_norm/|read_\w+/bias"
    r"|pointer/(history_gate|bonuses)/bias|foretell/classify/bias"
)
# Of how many vectors side by side a weight reads, or is read by; one, where nothing is said. 0: of none, it stays.
_INPUTS = (
    (re.compile(r"decoder_\d+/feed_forward/expand/"), 2),
    (re.compile(r"pointer/history_gate/"), 3),
    (re.compile(r"relation_bias/|foretell/tell/|widen_"), 0),
)
_RESULTS = (
    (re.compile(r".*/key_value/|decoder_\d+/context_norm/"), 2),
    (re.compile(r"read_|pointer/(history_gate|bonuses)/|foretell/classify/"), 0),
)
# Dot products of all units grow with them by more than their scale takes back.
_COMPARED = re.compile(r"pointer/\w+_query/")


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


def doubled_sizes(config: ModelConfig) -> ModelConfig:
    """The sizes of the model that ``doubled`` makes: twice the units, of which tokens keep their own."""
    return config.model_copy(
        update={
            "hidden_dim": 2 * config.hidden_dim,
            "embedding_dim": config.token_dim,
            "intermediate_dim": 2 * config.intermediate_dim,
            "num_heads": 2 * config.num_heads,
        }
    )


def doubled(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights, by name, of a T-Ptr-lambda Transformer of ``doubled_sizes``.

    Raises ValueError if they are not a T-Ptr-lambda Transformer's.
    """
    if "encoder_0/attention/query/kernel" not in weights or "pointer/history_query/kernel" not in weights:
        raise ValueError("expected the weights of a T-Ptr-lambda Transformer to double, found others")
    random = np.random.default_rng(0)  # always the same: runs that are to be averaged begin alike
    [tokens] = weights["source_norm/gamma"].shape
    [layers] = weights["encoder_norm/gamma"].shape
    passed_on = {"kernel": np.eye(tokens, layers), "bias": np.zeros(layers)}
    widening = {f"{name}/{part}": w for name in ("widen_source", "widen_prefix") for part, w in passed_on.items()}
    return {
        name: weight if _OF_TOKENS.match(name) else _doubled(name, weight, random)
        for name, weight in {**widening, **weights}.items()
    }


def _doubled(name: str, weight: np.ndarray, random: np.random.Generator) -> np.ndarray:
    grown = weight.astype(np.float32)
    inputs, results = _vectors(name, _INPUTS), _vectors(name, _RESULTS)
    if results:
        grown = np.concatenate([np.tile(part, 2) for part in np.split(grown, results, axis=-1)], axis=-1)
    if inputs and weight.ndim > 1:
        grown = np.concatenate([_shared(part, random) for part in np.split(grown, inputs)])
    return grown * 0.5**0.5 if _COMPARED.match(name) else grown


def _shared(kernel: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """For two equal inputs what the kernel is for one: (I, O) -> (2 * I, O)."""
    half = kernel / 2
    uneven = random.normal(0.0, np.sqrt(np.mean(half**2)), kernel.shape)
    return np.concatenate([half + uneven, half - uneven]).astype(np.float32)


def _vectors(name: str, numbers: tuple[tuple[re.Pattern[str], int], ...]) -> int:
    return next((number for pattern, number in numbers if pattern.match(name)), 1)
