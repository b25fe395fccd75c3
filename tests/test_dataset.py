from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny

from rewriter.conversation import Conversation, Example
from rewriter.dataset import Batch, PreparedExamples, RandomBatches, count_batches, training_batches
from rewriter.features import ARRAY_NAMES, collate
from rewriter.preparation import encode_examples
from rewriter.vocabulary import EOS, EOT, PAD, UNK

LONG = Example(Conversation(("你 你 你 你 你 我 我 我 我 我 吗 吗 吗",), "我 我 我 我 我 我"), "我我我我我我")
NOT_COPYABLE = Example(Conversation(("你在干嘛",), "早上好"), "晚安")


@pytest.fixture(scope="module")
def prepared() -> PreparedExamples:
    return encode_examples(tiny.features(), tiny.EXAMPLES)


def _many(count: int) -> PreparedExamples:
    """Examples that can be told apart: the n-th has n % 8 + 1 words in its history and its number in its target."""
    sources = [tiny.source(" ".join(["北京"] * (n % 8 + 1)), "明天呢") for n in range(count)]
    return PreparedExamples.from_sources(sources, [[n] for n in range(count)])


def _epoch(
    parts: list[tuple[PreparedExamples, float]], seed: int = 0, size: int = 4, dropout: float = 0.0
) -> list[Batch]:
    return list(training_batches(parts, size, dropout, (seed, 0)))


def _numbers(batches: list[Batch]) -> list[int]:
    return [int(number) for batch in batches for number in batch["positions"][:, 0]]


def _equal(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a[name], b[name])
        for a, b in zip(one, other, strict=True)
        for name in (*ARRAY_NAMES, "positions")
    )


def test_training_reads_the_arrays_that_serving_reads(prepared: PreparedExamples) -> None:
    for index, example in enumerate(tiny.EXAMPLES):
        batch = prepared.batch([index])
        served = tiny.features().encode(example.conversation)
        expected = collate([served], batch["word_ids"].shape[1])
        for name in ARRAY_NAMES:
            np.testing.assert_array_equal(batch[name], expected[name])
            assert batch[name].dtype == np.int32


def test_the_targets_of_a_batch_spell_the_references(prepared: PreparedExamples) -> None:
    positions = prepared.batch(range(4))["positions"]
    for row, example in enumerate(tiny.EXAMPLES):
        source = tiny.sources()[row]
        copied = [int(p) for p in positions[row] if p >= 0]
        assert copied[-1] == source.end
        assert "".join(source.surfaces[p] or "" for p in copied[:-1]) == example.reference


def test_a_batch_is_padded_to_the_next_step_and_no_further(prepared: PreparedExamples) -> None:
    # The longest source has 17 positions, the longest target 6.
    batch = prepared.batch([3, 0, 2])
    assert batch["word_ids"].shape == (3, 24) and batch["character_ids"].shape == (3, 24, 3)
    assert batch["positions"].shape == (3, 8)
    for row, index in enumerate((3, 0, 2)):
        source = tiny.sources()[index]
        np.testing.assert_array_equal(batch["word_ids"][row, : len(source)], source.word_ids)
        for name in ARRAY_NAMES:
            assert (batch[name][row, len(source) :] == PAD).all()
    assert (batch["positions"][0] >= 0).sum() == 2 and (batch["positions"][0, 2:] == -1).all()
    assert prepared.batch([3])["word_ids"].shape == (1, 16)


def test_a_reference_that_cannot_be_copied_is_kept_for_validation_and_left_out_of_training() -> None:
    part = encode_examples(tiny.features(), [*tiny.EXAMPLES, NOT_COPYABLE])
    assert len(part) == 5 and part.target_lengths[4] == 0
    batches = _epoch([(part, 1.0)], size=2)
    assert sum(len(batch["positions"]) for batch in batches) == 4
    assert all((batch["positions"] >= 0).any(axis=1).all() for batch in batches)
    assert (part.batch([4])["positions"] == -1).all()


def test_the_same_seed_gives_the_same_epoch_and_another_one_another() -> None:
    parts = [(_many(20), 1.5), (_many(10), 0.5)]
    assert _equal(_epoch(parts, seed=3, dropout=0.3), _epoch(parts, seed=3, dropout=0.3))
    assert not _equal(_epoch(parts, seed=3), _epoch(parts, seed=4))
    assert _numbers(_epoch(parts, seed=3)) != _numbers(_epoch(parts, seed=4))


@pytest.mark.parametrize(("share", "copies"), [(1.0, {1: 20}), (2.0, {2: 20}), (0.25, {1: 5}), (1.5, {1: 10, 2: 10})])
def test_an_epoch_has_the_share_that_was_asked_for(share: float, copies: dict[int, int]) -> None:
    found = Counter(Counter(_numbers(_epoch([(_many(20), share)]))).values())
    assert found == copies


def test_a_part_of_the_examples_is_another_part_in_the_next_epoch() -> None:
    part = _many(20)
    epochs = [{*_numbers(list(training_batches([(part, 0.25)], 4, 0.0, (1, epoch))))} for epoch in range(4)]
    assert len(set().union(*epochs)) > 5


def test_the_number_of_batches_is_known_beforehand() -> None:
    for parts in ([(_many(20), 1.0)], [(_many(21), 0.37), (_many(5), 2.5)], [(_many(9), 1.0), (_many(3), 1.0)]):
        assert count_batches(parts, 4) == len(_epoch(parts))


def test_batches_hold_examples_of_similar_length() -> None:
    lengths = [(batch["turn_ids"] > 0).sum(axis=1) for batch in _epoch([(_many(64), 1.0)], size=8)]
    # Lengths run over 8 values; the noise in the sort is 4.
    assert max(int(length.max() - length.min()) for length in lengths) <= 5


def test_dropped_words_leave_special_words_and_everything_else_alone() -> None:
    parts = [(_many(40), 1.0)]
    whole, dropped = _epoch(parts, seed=1), _epoch(parts, seed=1, dropout=0.5)
    special = share = total = 0
    for before, after in zip(whole, dropped, strict=True):
        for name in ("character_ids", "turn_ids", "copy_ids", "positions"):
            np.testing.assert_array_equal(before[name], after[name])
        is_special = before["word_ids"] <= EOT
        np.testing.assert_array_equal(after["word_ids"][is_special], before["word_ids"][is_special])
        changed = after["word_ids"] != before["word_ids"]
        assert (after["word_ids"][changed] == UNK).all()
        special += int(np.isin(before["word_ids"], (EOS, EOT)).sum())
        share += int(changed.sum())
        total += int((~is_special).sum())
    assert special == 80
    assert 0.4 < share / total < 0.6


def test_an_utterance_that_is_too_long_is_left_out() -> None:
    too_long = Example(Conversation(("你在干嘛",), "我 " * 13), "我")
    assert len(encode_examples(tiny.features(), [LONG, too_long])) == 1


def test_prepared_examples_come_back_from_disk(prepared: PreparedExamples, tmp_path: Path) -> None:
    prepared.save(tmp_path / "train.npz")
    loaded = PreparedExamples.load(tmp_path / "train.npz")
    assert _equal([prepared.batch(range(4))], [loaded.batch(range(4))])
    assert len(loaded) == 4


def test_a_file_of_other_arrays_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", kernel=np.zeros(3))
    with pytest.raises(ValueError, match=r"weights\.npz: expected the arrays .*positions.*found \['kernel'\]"):
        PreparedExamples.load(tmp_path / "weights.npz")


def test_no_examples_are_no_data_set() -> None:
    with pytest.raises(ValueError, match="expected at least one example, found none"):
        encode_examples(tiny.features(), [])


def test_random_batches_hold_neighbours_in_length_and_parts_are_as_likely_as_their_shares_make_them() -> None:
    numbered = _many(64)
    other = PreparedExamples(numbered.arrays, numbered.source_offsets, numbered.positions + 64, numbered.target_offsets)
    batches = RandomBatches([(numbered, 0.5), (other, 1.5)], 8)
    rng = np.random.default_rng(2)
    drawn = [batches.draw(rng) for _ in range(200)]
    for batch in drawn:
        lengths = (batch["turn_ids"] > 0).sum(axis=1)
        assert len(lengths) == 8 and lengths.max() - lengths.min() <= 1
    of_other = [min(_numbers([batch])) >= 64 for batch in drawn]
    assert np.mean(of_other) == pytest.approx(0.75, abs=0.1)
    assert len(set(_numbers(drawn))) > 100


def test_a_part_smaller_than_a_batch_is_drawn_whole() -> None:
    drawn = RandomBatches([(_many(3), 1.0)], 8).draw(np.random.default_rng(0))
    assert sorted(_numbers([drawn])) == [0, 1, 2]
