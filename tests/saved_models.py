"""A tiny SavedModel with the signatures of an exported one, in TensorFlow alone: it rewrites by rule, loads at once."""

import json
from pathlib import Path
from typing import Any

from rewriter.config import FeaturesConfig
from rewriter.features import ARRAY_NAMES, UTTERANCE_TURN
from rewriter.tokenizer import Granularity
from rewriter.vocabulary import SPECIAL_CHARACTERS, SPECIAL_WORDS, Vocabulary

FINGERPRINT = 8_000_000_000_000_000_001
MAX_TARGET_TOKENS = 64
LENGTH_BUCKETS = (48, 80, 144, 272)
BATCH_SIZES = (1, 2, 4, 8)
WORDS = ("西安", "今天", "明天", "的", "天气", "怎么样", "有", "雨", "吗")
VOCABULARY = Vocabulary(SPECIAL_WORDS + WORDS, SPECIAL_CHARACTERS + tuple(sorted(set("".join(WORDS)))))
FEATURES = FeaturesConfig(granularity=Granularity.WORD, max_utterance_tokens=40)


def write_model(
    model_dir: Path,
    *,
    version: int = 1,
    fingerprint: int = FINGERPRINT,
    claimed_fingerprint: int = FINGERPRINT,
    vocabulary: Vocabulary = VOCABULARY,
    finished: bool = True,
) -> Path:
    """Writes a model that copies the first word of the turn before and then the utterance; returns ``model_dir``.

    Its second best hypothesis is the utterance alone. Answers carry ``fingerprint``, the manifest another one.
    """
    import tensorflow as tf

    version_dir = model_dir / str(version)
    module = _first_word_model(fingerprint, finished)
    signatures = {"serving_default": module.greedy, "beam": module.beam}
    tf.saved_model.save(module, str(version_dir), signatures=signatures)
    assets = version_dir / "assets.extra" / "rewriter"
    assets.mkdir(parents=True)
    vocabulary.save(assets)
    FEATURES.save(assets / "features.json")
    manifest = {
        "name": "first-word",
        "version": str(version),
        "fingerprint": str(claimed_fingerprint),
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "length_buckets": LENGTH_BUCKETS,
        "batch_sizes": BATCH_SIZES,
    }
    (assets / "model.json").write_text(json.dumps(manifest), encoding="utf-8")
    return model_dir


def _first_word_model(fingerprint: int, finished: bool) -> Any:
    """B sources, S source positions, T target positions; two hypotheses from beam."""
    import tensorflow as tf

    ranks = {name: 3 if name == "character_ids" else 2 for name in ARRAY_NAMES}
    inputs = [tf.TensorSpec([None] * ranks[name], tf.int32, name=name) for name in ARRAY_NAMES]

    def utterance(turn_ids: Any) -> Any:  # (B, T - 1)
        said = tf.cast(turn_ids == UTTERANCE_TURN, tf.int32)
        start = tf.argmax(said, axis=1, output_type=tf.int32)[:, None]
        count = tf.reduce_sum(said, axis=1)[:, None] - 1  # the last one is the end token
        steps = tf.range(MAX_TARGET_TOKENS - 1)[None, :]
        return tf.where(steps < count, start + steps, -1)

    def first_word_and_utterance(turn_ids: Any) -> Any:  # (B, T)
        before = tf.cast(turn_ids == UTTERANCE_TURN + 1, tf.int32)
        return tf.concat([tf.argmax(before, axis=1, output_type=tf.int32)[:, None], utterance(turn_ids)], axis=1)

    def answers(positions: Any, log_prob: Any) -> dict[str, Any]:
        return {
            "positions": positions,
            "log_prob": log_prob,
            "finished": tf.fill(tf.shape(log_prob), finished),
            "fingerprint": tf.fill([tf.shape(positions)[0]], tf.constant(fingerprint, tf.int64)),
        }

    class FirstWordModel(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
        @tf.function(input_signature=inputs, autograph=False)  # type: ignore[untyped-decorator]
        def greedy(self, word_ids: Any, character_ids: Any, turn_ids: Any, copy_ids: Any) -> dict[str, Any]:
            positions = first_word_and_utterance(turn_ids)
            return answers(positions, tf.fill([tf.shape(positions)[0]], tf.math.log(0.5)))

        @tf.function(input_signature=inputs, autograph=False)  # type: ignore[untyped-decorator]
        def beam(self, word_ids: Any, character_ids: Any, turn_ids: Any, copy_ids: Any) -> dict[str, Any]:
            alone = tf.pad(utterance(turn_ids), [[0, 0], [0, 1]], constant_values=-1)
            positions = tf.stack([first_word_and_utterance(turn_ids), alone], axis=1)
            log_prob = tf.tile(tf.math.log([[0.5, 0.25]]), [tf.shape(positions)[0], 1])
            return {**answers(positions, log_prob), "score": log_prob / 4.0}

    return FirstWordModel()
