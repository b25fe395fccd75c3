"""What two positions of a source are to each other, as a bias of the encoder's attention.

Shaw et al. 2018 (section 3) and Raffel et al. 2020 (T5, section 2.1: one scalar per head and distance) for turns of a
conversation: a distance means something within a turn alone; between turns it is how many turns apart that counts. That
both hold the same word is told too.
"""

from typing import Any

import keras
from keras import ops

# Further apart than this is the same as this far.
_TOKENS = 8
_TURNS = 3


class RelationBias(keras.layers.Layer):
    """One number per relation and head, zero at first."""

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, input_shape: Any = None) -> None:
        relations = 2 * (2 * _TOKENS + 1 + 2 * _TURNS)
        self.table = self.add_weight(shape=(relations, self.num_heads), initializer="zeros", name="table")
        self.built = True

    def call(self, turn_ids: Any, places: Any, same: Any) -> Any:
        """Turn ids and places within the turn (B, S), same word (B, S, S) bool -> (B, H, S, S), from row to column."""
        turns = turn_ids[:, :, None] - turn_ids[:, None]
        tokens = ops.clip(places[:, :, None] - places[:, None], -_TOKENS, _TOKENS) + _TOKENS
        later = ops.clip(turns, 1, _TURNS) - 1
        earlier = ops.clip(-turns, 1, _TURNS) - 1 + _TURNS
        elsewhere = ops.where(turns > 0, later, earlier) + 2 * _TOKENS + 1
        relation = 2 * ops.where(turns == 0, tokens, elsewhere) + ops.cast(same, "int32")
        return ops.transpose(ops.take(self.table, relation, axis=0), (0, 3, 1, 2))
