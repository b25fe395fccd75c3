"""Prepared examples: int32 arrays on disk, and length-bucketed batches of them. Needs NumPy alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewriter.features import ARRAY_NAMES, Source, pad, round_up
from rewriter.vocabulary import EOT, UNK

# Batches are padded to multiples of these, so that few shapes have to be compiled.
_SOURCE_STEP = 8
_TARGET_STEP = 4
NO_POSITION = -1
# What was prepared, in counts; and among them the fingerprint of the weights that it was prepared for, if any.
REPORT_FILE = "report.json"
FOR_MODEL = "for_model"

Batch = dict[str, np.ndarray]


@dataclass(frozen=True)
class PreparedExamples:
    """N sources and targets, each array flattened over the examples; ``offsets`` (N + 1,) say where each one starts.

    An example without positions has a reference that cannot be copied from its conversation: it counts in validation,
    as an error, and is left out of training.
    """

    arrays: dict[str, np.ndarray]  # as features.collate, without the batch: (tokens,) and (tokens, C)
    source_offsets: np.ndarray  # (N + 1,)
    positions: np.ndarray  # (target tokens,)
    target_offsets: np.ndarray  # (N + 1,)

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @property
    def source_lengths(self) -> np.ndarray:
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> np.ndarray:
        return np.diff(self.target_offsets)

    @classmethod
    def from_sources(cls, sources: Sequence[Source], targets: Sequence[Sequence[int] | None]) -> "PreparedExamples":
        """Flattens sources and the positions of their references (None: cannot be copied)."""
        if not sources:
            raise ValueError("expected at least one example, found none")
        known = [list(target or ()) for target in targets]
        return cls(
            arrays={name: np.concatenate([getattr(s, name) for s in sources]) for name in ARRAY_NAMES},
            source_offsets=_offsets([len(source) for source in sources]),
            positions=np.array([position for target in known for position in target], np.int32),
            target_offsets=_offsets([len(target) for target in known]),
        )

    @classmethod
    def load(cls, path: Path) -> "PreparedExamples":
        with np.load(path) as stored:
            names = {*ARRAY_NAMES, "source_offsets", "positions", "target_offsets"}
            if set(stored.files) != names:
                raise ValueError(f"{path}: expected the arrays {sorted(names)}, found {sorted(stored.files)}")
            return cls(
                arrays={name: stored[name] for name in ARRAY_NAMES},
                source_offsets=stored["source_offsets"],
                positions=stored["positions"],
                target_offsets=stored["target_offsets"],
            )

    def save(self, path: Path) -> None:
        np.savez_compressed(
            path,
            allow_pickle=False,
            source_offsets=self.source_offsets,
            positions=self.positions,
            target_offsets=self.target_offsets,
            **self.arrays,
        )

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Pads these examples into one batch: the source arrays and ``positions`` (B, T), -1 after the end."""
        starts, ends = self.source_offsets[:-1], self.source_offsets[1:]
        length = round_up(max(int(ends[i] - starts[i]) for i in indices), _SOURCE_STEP)
        batch = {name: pad([flat[starts[i] : ends[i]] for i in indices], length) for name, flat in self.arrays.items()}
        targets = [self.positions[self.target_offsets[i] : self.target_offsets[i + 1]] for i in indices]
        longest = round_up(max(map(len, targets)), _TARGET_STEP)
        batch["positions"] = pad(targets, longest, NO_POSITION)
        return batch


def training_batches(
    parts: Sequence[tuple[PreparedExamples, float]], batch_size: int, word_dropout: float, seed: tuple[int, ...]
) -> Iterator[Batch]:
    """One epoch: each part by its share, shuffled, in batches of similar length. The same seed gives the same epoch."""
    rng = np.random.default_rng(seed)
    plan: list[tuple[PreparedExamples, np.ndarray]] = []
    for part, share in parts:
        chosen = _sample(np.flatnonzero(part.target_lengths > 0), share, rng)
        # Noise in the sort keeps the batches from being the same in every epoch.
        lengths = part.source_lengths[chosen] + 2 * part.target_lengths[chosen] + rng.uniform(0, 4, len(chosen))
        order = np.argsort(lengths, kind="stable")
        plan += [(part, chosen[order[start : start + batch_size]]) for start in range(0, len(chosen), batch_size)]
    for index in rng.permutation(len(plan)):
        part, examples = plan[index]
        batch = part.batch(examples)
        batch["word_ids"] = _drop_words(batch["word_ids"], word_dropout, rng)
        yield batch


class RandomBatches:
    """Batches of examples of similar length, drawn one by one: a part is as likely as its share of all makes it."""

    def __init__(self, parts: Sequence[tuple[PreparedExamples, float]], batch_size: int) -> None:
        shuffled = [np.random.default_rng(0).permutation(len(part)) for part, _ in parts]
        self._parts = [part for part, _ in parts]
        self._by_length = [
            indices[np.argsort(part.source_lengths[indices], kind="stable")]
            for part, indices in zip(self._parts, shuffled, strict=True)
        ]
        sizes = np.array([share * len(part) for part, share in parts])
        self._chances = sizes / sizes.sum()
        self._batch_size = batch_size

    def draw(self, rng: np.random.Generator) -> Batch:
        """The same random numbers draw the same batch."""
        chosen = int(rng.choice(len(self._parts), p=self._chances))
        indices = self._by_length[chosen]
        start = int(rng.integers(max(1, len(indices) - self._batch_size + 1)))
        return self._parts[chosen].batch(indices[start : start + self._batch_size])


def count_batches(parts: Sequence[tuple[PreparedExamples, float]], batch_size: int) -> int:
    """Batches in an epoch of ``training_batches``."""
    sizes = [round(share * np.count_nonzero(part.target_lengths)) for part, share in parts]
    return sum(-(-size // batch_size) for size in sizes)


def _sample(indices: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """``share`` of the indices: whole copies, and a random choice of what is left."""
    if not len(indices):
        raise ValueError("expected examples whose reference can be copied, found none")
    size = round(share * len(indices))
    copies, rest = divmod(size, len(indices))
    return np.concatenate([indices] * copies + [rng.permutation(indices)[:rest]])


def _drop_words(word_ids: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Makes a share of the words unknown, so that the model learns to read words by their characters."""
    dropped = (rng.random(word_ids.shape) < share) & (word_ids > EOT)
    return np.where(dropped, UNK, word_ids)


def _offsets(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
