"""Batches as TF Serving's BatchingSession makes them (batching_session.cc, shared_batch_scheduler.h).

One queue for each set of input and output tensors. What is in one batch fails together.
"""

import queue
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .errors import StatusError, failed_precondition, invalid_argument, resource_exhausted, unavailable

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays, Sequence[str], float | None], list[np.ndarray]]


@dataclass(frozen=True)
class BatchingParameters:
    """The fields of the message of this name that the stand-in knows, with its defaults."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = 4  # TF Serving: the number of cores
    allowed_batch_sizes: tuple[int, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "BatchingParameters":
        """Raises ValueError for lines that it does not know."""
        values: dict[str, int] = {}
        sizes: list[int] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := re.fullmatch(r"(\w+) \{ value: (\d+) \}", line.strip()):
                values[match[1]] = int(match[2])
            elif match := re.fullmatch(r"allowed_batch_sizes: (\d+)", line.strip()):
                sizes.append(int(match[1]))
            elif line.strip() not in ("", "pad_variable_length_inputs: false"):
                raise ValueError(f"{path}: expected a line of batching parameters, found {line!r}")
        parameters = cls(**values, allowed_batch_sizes=tuple(sizes))
        if sizes and (sizes != sorted(set(sizes)) or sizes[-1] != parameters.max_batch_size):
            raise ValueError(f"{path}: expected ascending allowed_batch_sizes up to max_batch_size, found {sizes}")
        return parameters


@dataclass(eq=False)
class _Task:
    inputs: Arrays
    deadline: float | None
    done: Future[list[np.ndarray]] = field(default_factory=Future)

    @property
    def rows(self) -> int:
        return len(next(iter(self.inputs.values())))


class BatchQueue:
    """The requests for one version that feed and fetch the same tensors."""

    def __init__(self, run: Run, outputs: Sequence[str], parameters: BatchingParameters) -> None:
        self._run = run
        self._outputs = outputs
        self._parameters = parameters
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._left_over: _Task | None = None
        self._taking = threading.Lock()
        for _ in range(parameters.num_batch_threads):
            threading.Thread(target=self._work, daemon=True).start()

    def submit(self, inputs: Arrays, timeout_seconds: float | None) -> list[np.ndarray]:
        """Raises StatusError."""
        ranks, rows = {array.ndim for array in inputs.values()}, {array.shape[:1] for array in inputs.values()}
        if 0 in ranks:
            raise invalid_argument("Batching Run() input tensors must have at least one dimension")
        if len(rows) != 1:
            raise invalid_argument("Batching Run() input tensors must have equal 0th-dimension size")
        task = _Task(inputs, None if timeout_seconds is None else time.monotonic() + timeout_seconds)
        most = self._parameters.max_batch_size
        if task.rows > most:
            raise invalid_argument(f"Task size {task.rows} is larger than maximum input batch size {most}")
        limit = self._parameters.max_enqueued_batches
        if self._tasks.qsize() + task.rows > limit * most:
            raise unavailable(
                "The batch scheduling queue to which this task was submitted is full; "
                f"currently {limit} batches enqueued and max_enqueued_batches is {limit}"
            )
        self._tasks.put(task)
        return task.done.result()

    def _work(self) -> None:
        while True:
            with self._taking:
                batch = self._next_batch()
            try:
                results = self._run_batch(batch)
            except StatusError as error:
                for task in batch:
                    task.done.set_exception(error)
            else:
                for task, result in zip(batch, results, strict=True):
                    task.done.set_result(result)

    def _next_batch(self) -> list[_Task]:
        """Waits for one, then for others until the batch is full or too old."""
        batch = [self._left_over or self._tasks.get()]
        self._left_over = None
        close_at = time.monotonic() + self._parameters.batch_timeout_micros / 1e6
        while True:
            try:
                task = self._tasks.get(timeout=max(0.0, close_at - time.monotonic()))
            except queue.Empty:
                return batch
            if sum(each.rows for each in batch) + task.rows > self._parameters.max_batch_size:
                self._left_over = task
                return batch
            batch.append(task)

    def _run_batch(self, batch: Sequence[_Task]) -> list[list[np.ndarray]]:
        now = time.monotonic()
        deadlines = [task.deadline for task in batch]
        if all(deadline is not None and deadline <= now for deadline in deadlines):
            raise resource_exhausted("Run() timeout exceeded while waiting in batching queue")
        timeout = None if None in deadlines else max(deadline for deadline in deadlines if deadline) - now
        outputs = self._run(self._merged(batch), self._outputs, timeout)
        ends = np.cumsum([task.rows for task in batch])
        for array in outputs:
            if array.ndim == 0:
                raise failed_precondition("Batched output tensor has 0 dimensions")
            if len(array) < ends[-1]:
                raise failed_precondition(
                    "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
                    "input tensors"
                )
        return [[array[end - task.rows : end] for array in outputs] for task, end in zip(batch, ends, strict=True)]

    def _merged(self, batch: Sequence[_Task]) -> dict[str, np.ndarray]:
        merged = {}
        for name in batch[0].inputs:
            arrays = [task.inputs[name] for task in batch]
            if len({array.shape[1:] for array in arrays}) > 1:
                raise failed_precondition(
                    f"Tensors with name '{name}' from different tasks have different shapes and padding is turned off."
                    "Set pad_variable_length_inputs to true, or ensure that all tensors with the same name"
                    "have equal dimensions starting with the first dim."
                )
            rows = sum(map(len, arrays))
            padding = self._rounded_up(rows) - rows
            # The first row of the last request, as often as needed.
            merged[name] = np.concatenate([*arrays, np.repeat(arrays[-1][:1], padding, axis=0)])
        return merged

    def _rounded_up(self, rows: int) -> int:
        sizes = self._parameters.allowed_batch_sizes
        return sizes[bisect_left(sizes, rows)] if sizes else rows
