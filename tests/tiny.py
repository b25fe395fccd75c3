"""A language of 30 words, four examples in it and a model that runs in a blink, for any test that needs one."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.config import FeaturesConfig, ModelConfig
from rewriter.conversation import Conversation, Example
from rewriter.features import Features, Source, collate
from rewriter.tokenizer import Granularity
from rewriter.vocabulary import SPECIAL_CHARACTERS, SPECIAL_WORDS, Vocabulary

if TYPE_CHECKING:
    from rewriter.model import RewriterModel

FEATURES = FeaturesConfig(
    granularity=Granularity.WORD,
    function_words=("的", "是", "在"),
    characters_per_token=3,
    max_history_turns=4,
    max_source_tokens=32,
    max_utterance_tokens=12,
)
EXAMPLES = (
    Example(Conversation(("你喜欢梅西吗", "我喜欢看他踢球"), "他几岁"), "梅西几岁"),
    Example(Conversation(("北京今天冷吗", "今天很冷"), "明天呢"), "北京明天冷吗"),
    Example(Conversation(("你看过红楼梦吗", "看过两遍"), "作者是谁"), "红楼梦的作者是谁"),
    Example(Conversation(("你在干嘛", "我在喝茶"), "早上好"), "早上好"),
)
# 梅西, 红楼梦 and 球 are on no list: these words are read by their characters alone.
_WORDS = "你 我 他 吗 呢 的 是 在 很 谁 喜欢 看 踢球 几岁 今天 明天 冷 看过 两遍 作者 干嘛 喝茶 早上好 北京 住"
WORDS = tuple(_WORDS.split())
VOCABULARY = Vocabulary(
    SPECIAL_WORDS + WORDS, SPECIAL_CHARACTERS + tuple(sorted(set("".join((*WORDS, "梅西", "红楼梦")))))
)

# The eight models of the paper: changes to ``model_config``.
FAMILY: tuple[dict[str, Any], ...] = tuple(
    {"architecture": architecture, "output": output}
    for architecture in ("transformer", "lstm")
    for output in ("gen", "ptr_net", "ptr_gen", "ptr_lambda")
)


@lru_cache(maxsize=1)
def features() -> Features:
    return Features(FEATURES, VOCABULARY)


def source(*turns: str) -> Source:
    """The source of a conversation; the last turn is the utterance."""
    return features().encode(Conversation(turns[:-1], turns[-1]))


def sources() -> list[Source]:
    """Those of EXAMPLES: they differ in length."""
    return [features().encode(example.conversation) for example in EXAMPLES]


def arrays(*chosen: Source, length: int | None = None) -> dict[str, np.ndarray]:
    """One batch of these sources, by default of all EXAMPLES."""
    return collate(chosen or sources(), length)


def targets() -> np.ndarray:
    """The positions of the references of EXAMPLES, (4, T), -1 after the end."""
    found = [features().target(s, example.reference) for s, example in zip(sources(), EXAMPLES, strict=True)]
    longest = max(len(target or ()) for target in found)
    return np.array([[*(target or ()), *[-1] * (longest - len(target or ()))] for target in found], np.int32)


def model_config(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {
        "num_words": len(VOCABULARY.words),
        "num_characters": len(VOCABULARY.characters),
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "character_dim": 8,
        "num_heads": 2,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "dropout": 0.0,
    }
    return ModelConfig.model_validate(sizes | changes)


def model(seed: int = 1, **changes: Any) -> "RewriterModel":
    """A model with every weight drawn anew, biases and norms too, so that no part of it is idle at the start."""
    from rewriter.model import RewriterModel

    made = RewriterModel(model_config(**changes), FEATURES)
    rng = np.random.default_rng(seed)
    for weight in made.trainable_variables:
        around = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(rng.normal(around, 0.35, weight.shape).astype(np.float32))
    return made
