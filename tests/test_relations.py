"""The bias that tells the encoder's attention what two positions are to each other."""

import numpy as np
import pytest
import tiny
from pydantic import ValidationError

from rewriter.relations import RelationBias

HEADS = 3


def biases(turn_ids: list[int], words: list[str]) -> np.ndarray:
    """(S, S, H) of a layer whose every number is another."""
    layer = RelationBias(HEADS)
    layer.build()
    layer.table.assign(np.arange(np.prod(layer.table.shape), dtype=np.float32).reshape(layer.table.shape))
    turns = np.array([turn_ids], np.int32)
    places = np.array([[turn_ids[:i].count(turn) for i, turn in enumerate(turn_ids)]], np.int32)
    same = np.array([[[a == b for b in words] for a in words]])
    return np.moveaxis(np.array(layer(turns, places, same))[0], 0, -1)


def test_within_a_turn_it_is_the_distance_and_its_direction_that_count() -> None:
    found = biases([2] * 12 + [1] * 12, [str(number) for number in range(24)])
    for turn in (0, 12):
        assert np.array_equal(found[turn, turn + 2], found[turn + 5, turn + 7])
        assert not np.array_equal(found[turn, turn + 2], found[turn + 2, turn])
        assert not np.array_equal(found[turn, turn + 2], found[turn, turn + 3])
        # Eight tokens away or eleven is the same.
        assert np.array_equal(found[turn, turn + 8], found[turn, turn + 11])
        assert not np.array_equal(found[turn, turn + 7], found[turn, turn + 8])
    assert np.array_equal(found[0, 2], found[12, 14])


def test_between_turns_it_is_how_many_turns_apart() -> None:
    turn_ids = [6, 5, 4, 3, 2, 2, 1, 1]
    found = biases(turn_ids, [str(number) for number in range(8)])
    assert np.array_equal(found[6, 4], found[7, 5]) and np.array_equal(found[6, 4], found[6, 5])
    assert not np.array_equal(found[6, 4], found[4, 6])
    assert not np.array_equal(found[6, 4], found[6, 3])
    # Three turns back or five is the same.
    assert np.array_equal(found[6, 2], found[6, 0])


def test_the_same_word_elsewhere_is_told_from_another_one() -> None:
    found = biases([2, 2, 1, 1], ["猫", "狗", "猫", "鱼"])
    assert not np.array_equal(found[2, 0], found[2, 1])
    assert np.array_equal(found[2, 1], found[3, 0])


def test_every_relation_has_a_number_of_its_own_for_each_head() -> None:
    turn_ids = [5] * 1 + [4] * 1 + [3] * 1 + [2] * 1 + [1] * 17
    kinds = set()
    for words in (["猫"] * 21, [str(number) for number in range(21)]):
        kinds |= {tuple(bias) for row in biases(turn_ids, words) for bias in row}
    layer = RelationBias(HEADS)
    layer.build()
    # 17 distances and six turns, same word or not; but a position holds its own word always.
    assert len(kinds) == layer.table.shape[0] - 1
    assert all(len(set(kind)) == HEADS for kind in kinds)


def test_relations_of_an_lstm_are_refused() -> None:
    with pytest.raises(ValidationError, match="expected relations with the transformer alone, found them with lstm"):
        tiny.model_config(architecture="lstm", relations=True)
